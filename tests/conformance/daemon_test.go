package conformance

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/daemon/server"
)

// serve gives out a device to other processes until the test ends, and returns the path
// of the socket.
func serve(t *testing.T, p Party) string {
	t.Helper()
	s, err := server.New([]roce.Device{p.Device.(roce.Device)}, server.Options{OwnProcesses: true})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

const arenaSize = 256 << 20

func newArena(t *testing.T) *Arena {
	t.Helper()
	buf, err := client.Alloc(arenaSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Free(buf) })
	return NewArena(buf)
}

// tenant is a client of the daemon at a socket, whose memory is memfds, or where Go's
// allocator puts it.
func tenant(t *testing.T, socket string, memfd bool) Party {
	t.Helper()
	dev, err := client.Dial(t.Context(), client.Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	p := Party{Device: dev, Kind: "goroce"}
	if memfd {
		p.Alloc = newArena(t).Alloc
	}
	return p
}

// TestDaemon pairs clients of daemons: of one each, and of the same one.
func TestDaemon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		daemons int
		shards  int
		memfd   [2]bool
		full    bool // only with GOROCE_FULL
	}{
		{"two daemons", 2, 1, [2]bool{true, true}, true},
		{"one daemon", 1, 1, [2]bool{true, true}, true},
		{"one daemon of two shards", 1, 2, [2]bool{true, true}, false},
		{"process memory", 2, 1, [2]bool{}, true},
		{"process memory at one end", 2, 1, [2]bool{0: true}, false},
		{"process memory at one end, one daemon", 1, 1, [2]bool{0: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repeats(t, c.full)
			runPair(t, func(t *testing.T) (here, there Party) {
				a := serve(t, loopback(t, c.shards))
				b := a
				if c.daemons > 1 {
					b = serve(t, loopback(t, c.shards))
				}
				return tenant(t, a, c.memfd[0]), tenant(t, b, c.memfd[1])
			})
		})
	}
}
