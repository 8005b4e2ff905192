package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// Descriptors are the daemon's, and few: clients may hold so many that some are left for
// what is short, such as those that come with a request. The kernel gives out the
// lowest number that is free, so a number tells how many are taken.

// spare returns an error if fd, which is new, is one too many to be kept for a client.
func spare(fd int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	most := limit.Cur - limit.Cur/8
	if uint64(fd) < most {
		return nil
	}
	return ib.Refuse("serve a client", "descriptors of the daemon", fd+1,
		fmt.Sprintf("%d; LimitNOFILE= of its unit, or ulimit -n, raises it", most), ib.ErrLimit)
}

// spareConn is spare for a connection.
func spareConn(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = spare(int(fd)) })
	return errors.Join(controlErr, err)
}

// fullPause is how long nobody is let in when the system has no descriptors, or no memory.
const fullPause = 100 * time.Millisecond

// full reports whether accept failed for something that passes, and waits for that.
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
