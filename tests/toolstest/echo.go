package toolstest

import (
	"bytes"
	"io"
	"testing"

	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
)

// Echo sends data from a to a listener of b at an address, which returns it, over a stream, and compares.
func Echo(t *testing.T, a, b *rdmacm.CM, at string, data []byte) {
	t.Helper()
	l, err := rsocket.Listen(t.Context(), b, at, rsocket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	conn, err := rsocket.Dial(t.Context(), a, at, rsocket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = conn.Write(data)
		_ = conn.CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes back, %v; want %d, as they were sent", len(got), err, len(data))
	}
}
