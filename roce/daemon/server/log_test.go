package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// lines is a writer of a log that passes on its lines.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestClientGone: the line of a client that has left in good order has no error, that of one that broke the protocol
// says how.
func TestClientGone(t *testing.T) {
	log := make(lines, 16)
	_, dial := byHand(t, func(s *Server) {
		s.log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for _, c := range []struct {
		leave func(*abi.Conn) error
		fails bool
	}{
		{(*abi.Conn).Close, false},
		{func(c *abi.Conn) error { _, err := c.Write([]byte("?")); return err }, true},
	} {
		conn := dial()
		begin(t, conn)
		must(t, c.leave(conn))
		line := <-log
		for !strings.Contains(line, `msg="client gone"`) {
			line = <-log
		}
		if strings.Contains(line, " err=") != c.fails || !strings.Contains(line, " pid=") ||
			!strings.Contains(line, " uid=") {
			t.Errorf("error %v: %s, want pid, uid, and err only of an error", c.fails, line)
		}
	}
}
