package ib

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is. Errors of devices wrap one of them and say what was wrong, where, and what is allowed.
var (
	// ErrInvalid: an argument or attribute is not valid (C verbs: EINVAL).
	ErrInvalid = errors.New("invalid argument")
	// ErrState: the object's state does not allow the call (EINVAL).
	ErrState = errors.New("wrong state")
	// ErrQueueFull: no free work queue entry; poll completions first (ENOMEM).
	ErrQueueFull = errors.New("work queue full")
	// ErrLimit: a device limit is reached (ENOMEM).
	ErrLimit = errors.New("limit reached")
	// ErrBusy: another object still uses this one (EBUSY).
	ErrBusy = errors.New("in use")
	// ErrClosed: the object or its device is closed.
	ErrClosed = errors.New("closed")
	// ErrNotSupported: this device has no such operation (EOPNOTSUPP).
	ErrNotSupported = errors.New("not supported")
	// ErrForeign: the object belongs to another device or protection domain.
	ErrForeign = errors.New("belongs to another device or protection domain")
)

// AttrError reports an attribute that a verb refused.
type AttrError struct {
	Op      string // the verb: "modify QP 0x12 INIT to RTR"
	Attr    string // the name of the field: "PathMTU"
	Value   any    // the refused value
	Allowed string // what is allowed, and the next step if there is one
	Err     error  // ErrInvalid, ErrState, ErrLimit ...
}

func (e *AttrError) Error() string {
	return fmt.Sprintf("%s: %s is %v: %v; allowed: %s", e.Op, e.Attr, e.Value, e.Err, e.Allowed)
}

// Unwrap returns the sentinel.
func (e *AttrError) Unwrap() error { return e.Err }

// WCError is the error of a completion that did not succeed.
type WCError struct {
	ID     uint64
	QPN    QPN
	Status WCStatus
	Vendor uint32 // ReasonOf(Vendor) is the reason, if a software device knows it; QP.Failure says more
}

func (e *WCError) Error() string {
	text := fmt.Sprintf("work request %d on QP %#x: %v (status %d, vendor error %#x)", e.ID, uint32(e.QPN), e.Status,
		e.Status, e.Vendor)
	if r := ReasonOf(e.Vendor); r != ReasonNone {
		text += fmt.Sprintf(": %v", r)
	}
	return text
}

// Is makes errors.Is(err, &WCError{Status: s}) match by status alone.
func (e *WCError) Is(target error) bool {
	t, ok := target.(*WCError)
	return ok && t.Status == e.Status
}

// Err returns nil for a successful completion, and a *WCError otherwise.
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	return &WCError{ID: wc.ID, QPN: wc.QPN, Status: wc.Status, Vendor: wc.VendorErr}
}
