package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// All clients share the daemon's descriptors, which are limited. An eighth is reserved for those
// that are open briefly, such as those that come with a request. The kernel assigns the lowest
// free number, so the number of a new descriptor tells how many are in use.

// spare returns an error if the new descriptor fd is in the reserved eighth, so that it must not
// be kept for a client.
func spare(fd int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	most := limit.Cur - limit.Cur/8
	if uint64(fd) < most {
		return nil
	}
	return driver.Refuse("serve a client", "descriptors of the daemon", fd+1,
		fmt.Sprintf("%d; LimitNOFILE= of its unit, or ulimit -n, raises it", most), ib.ErrLimit)
}

// spareConn is spare for the descriptor of a connection.
func spareConn(c *abi.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = spare(int(fd)) })
	return errors.Join(controlErr, err)
}

// fullPause is how long Serve accepts nothing when the system has no descriptors, or no memory.
const fullPause = 100 * time.Millisecond

// full reports whether accept(2) failed for a temporary reason. If so it first waits fullPause.
func full(ctx context.Context, err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, e) {
			select {
			case <-time.After(fullPause):
			case <-ctx.Done():
			}
			return true
		}
	}
	return false
}
