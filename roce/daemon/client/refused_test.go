package client

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestRefusedEarly: the reason is told by a daemon that has refused the connection, and closed it, before the hello.
func TestRefusedEarly(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	server, conn := abi.NewConn(connOf(t, ends[0])), abi.NewConn(connOf(t, ends[1]))
	body, status := abi.PutError(nil, driver.Refuse("hello", "connections", 2, "1", ib.ErrLimit))
	if err := server.Send(abi.Header{Op: abi.OpHello, Status: status}, body); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	l := newControl(conn)
	<-l.gone
	if _, _, err := l.do(abi.OpHello, nil); !errors.Is(err, ib.ErrLimit) {
		t.Errorf("a refused client gets %v, want ErrLimit", err)
	}
}
