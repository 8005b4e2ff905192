package serve

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// activated uses the sockets that the service manager has passed (LISTEN_FDS, see sd_listen_fds(3)). They are told
// apart by their types, so one socket unit can have both.
func (s *sockets) activated() error {
	for _, f := range activation.Files(true) {
		err := s.take(f)
		_ = f.Close() // the listener has a duplicate
		if err != nil {
			return fmt.Errorf("socket activation, %s: %w", f.Name(), err)
		}
	}
	return nil
}

func (s *sockets) take(f *os.File) error {
	var to **net.UnixListener
	switch kind, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE); {
	case err != nil:
		return err
	case kind == unix.SOCK_SEQPACKET:
		to = &s.client
	case kind == unix.SOCK_STREAM:
		to = &s.admin
	default:
		return fmt.Errorf("a socket of type %d; take ListenSequentialPacket= for clients and ListenStream= for "+
			"looking at the daemon", kind)
	}
	if *to != nil {
		return fmt.Errorf("a second socket of the type of %s; one of each is taken", (*to).Addr())
	}
	if err := unix.SetNonblock(int(f.Fd()), true); err != nil {
		return err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		_ = l.Close()
		return fmt.Errorf("%s is no Unix socket", l.Addr())
	}
	*to = u
	return nil
}
