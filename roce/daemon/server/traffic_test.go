package server

import (
	"os"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestUserBytes: the bytes of a user never go down, though a queue pair that is closed meanwhile may be counted neither
// as closed nor as open; who has no client has none.
func TestUserBytes(t *testing.T) {
	var s *Server
	dev := serving(t, func(made *Server) { s = made })
	uid := uint32(os.Getuid())
	count := func(closed uint64) Bytes {
		s.accounts.mu.Lock()
		s.accounts.users[uid].traffic.sent.Store(closed)
		s.accounts.mu.Unlock()
		return s.UserBytes()[uid]
	}
	for _, c := range []struct{ closed, want uint64 }{{100, 100}, {40, 100}, {160, 160}} {
		if got := count(c.closed); got.Sent != c.want {
			t.Errorf("got %d bytes when queue pairs with %d are found, want %d", got.Sent, c.closed, c.want)
		}
	}
	must(t, dev.Close())
	require.Until(t, "the user has left", func() bool { return len(s.UserBytes()) == 0 })
}
