//go:build rnic && cgo

package rnic

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/goroce/ib"
)

// This file makes errors of package ib from those of verbs. A verb that returns a pointer returns NULL and sets errno.
// One that returns an int returns an errno, with some providers a negative one; ibv_query_pkey returns -1 and sets
// errno.
//
// Of a C function that sets errno the callers take the second result of cgo. It is errno after the call, and may be
// set after a success too, so the first result alone tells whether the verb has failed.

// sentinels has the sentinel errors for errnos of verbs, except ENOMEM. That means a full queue
// when requests are posted, and a limit when objects are created.
var sentinels = map[syscall.Errno]error{
	syscall.EINVAL:          ib.ErrInvalid,
	syscall.EFAULT:          ib.ErrInvalid, // memory that is not mapped, or not writable
	syscall.EPERM:           ib.ErrInvalid,
	syscall.ENODATA:         ib.ErrInvalid, // a row of the GID table that is empty
	syscall.ENETUNREACH:     ib.ErrInvalid, // an address without a route
	syscall.EHOSTUNREACH:    ib.ErrInvalid,
	syscall.ETIMEDOUT:       ib.ErrInvalid,
	syscall.EBUSY:           ib.ErrBusy,
	syscall.EOPNOTSUPP:      ib.ErrNotSupported,
	syscall.ENOSYS:          ib.ErrNotSupported,
	syscall.EPROTONOSUPPORT: ib.ErrNotSupported,
	syscall.EIO:             ib.ErrClosed, // the device was removed
	syscall.ENODEV:          ib.ErrClosed,
	syscall.ENOSPC:          ib.ErrLimit,
	syscall.EMFILE:          ib.ErrLimit,
	syscall.EAGAIN:          ib.ErrLimit, // limit of locked memory or of processes
}

// why wraps an errno together with its sentinel; nomem is the sentinel for ENOMEM. So errors.Is matches both, for
// programs that are written against either. An errno without a sentinel is wrapped alone. A provider may fail without
// setting errno: err is nil then.
func why(err error, nomem error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno == 0 {
		return fmt.Errorf("refused without a reason: %w", ib.ErrInvalid)
	}
	if errno == syscall.ENOMEM {
		return fmt.Errorf("%w (errno %d, %w)", nomem, int(errno), errno)
	}
	if s := sentinels[errno]; s != nil {
		return fmt.Errorf("%w (errno %d, %w)", s, int(errno), errno)
	}
	return fmt.Errorf("errno %d, %w", int(errno), errno)
}

// verbError is the error of a verb that the library, the driver or the device has refused.
func verbError(op string, err error) error {
	return fmt.Errorf("%s: %w", op, why(err, ib.ErrLimit))
}

// check converts the return value of a verb, 0 or an errno, to an error. It is not for verbs that return -1.
func check[T ~int32 | ~int](op string, ret T) error {
	if ret == 0 {
		return nil
	}
	return verbError(op, syscall.Errno(max(ret, -ret))) // some providers return -errno
}
