package abi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Status is the result of a request. If it is not OK the body of the reply is that of PutError.
type Status uint16

// Statuses. Each but OK and Failed stands for a sentinel error of package ib or of this package.
const (
	OK Status = iota
	Failed
	Invalid
	State
	QueueFull
	Limit
	Busy
	Closed
	NotSupported
	Foreign
	Permission
	BadVersion
	AddrInUse
	NoAddr
	PrivateData
	NoPort
	NoRoute
	numStatuses
)

// Errors that the daemon adds to those of package ib.
var (
	// ErrPermission means that the client's user may not do that.
	ErrPermission = ib.ErrPermission
	// ErrVersion means that client and daemon have no version of the protocol in common.
	ErrVersion = errors.New("version not supported")
)

var sentinels = [numStatuses]error{Invalid: ib.ErrInvalid, State: ib.ErrState, QueueFull: ib.ErrQueueFull,
	Limit: ib.ErrLimit,
	Busy:  ib.ErrBusy, Closed: ib.ErrClosed, NotSupported: ib.ErrNotSupported, Foreign: ib.ErrForeign,
	Permission: ErrPermission, BadVersion: ErrVersion,
	AddrInUse: ib.ErrAddrInUse, NoAddr: ib.ErrNoAddr, PrivateData: ib.ErrPrivateData, NoPort: ib.ErrNoPort,
	NoRoute: ib.ErrNoRoute}

// statusOf returns the status that stands for err. It tries later statuses first: they are more
// specific, as their sentinels wrap those of earlier ones.
func statusOf(err error) Status {
	for s := len(sentinels) - 1; s > 0; s-- {
		if sentinels[s] != nil && errors.Is(err, sentinels[s]) {
			return Status(s)
		}
	}
	return Failed
}

// maxText bounds each text of a failure.
const maxText = 1 << 10

// PutError appends the body of a reply that reports err, and returns it with its status. The
// body is four texts, each a u16 length followed by its bytes. They are Op, Attr, Value and
// Allowed of an *ib.AttrError; for other errors the first is the error's text, and the others
// are empty.
func PutError(b []byte, err error) ([]byte, Status) {
	var attr *ib.AttrError
	texts := [4]string{err.Error()}
	if errors.As(err, &attr) && err == error(attr) {
		texts = [4]string{attr.Op, attr.Attr, fmt.Sprint(attr.Value), attr.Allowed}
	}
	for _, text := range texts {
		text = text[:min(len(text), maxText)]
		b = binary.NativeEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	return b, statusOf(err)
}

// GetError decodes the error that PutError encoded. The result is an *ib.AttrError if the encoded
// error was one, and matches the same sentinel with errors.Is. A malformed body gives ib.ErrInvalid.
func GetError(b []byte, s Status) error {
	var texts [4]string
	for i := range texts {
		if len(b) < 2 || len(b)-2 < int(binary.NativeEndian.Uint16(b)) {
			return fmt.Errorf("malformed error reply of the daemon, with status %d: %w", s, ib.ErrInvalid)
		}
		n := int(binary.NativeEndian.Uint16(b))
		texts[i], b = string(b[2:2+n]), b[2+n:]
	}
	var sentinel error
	if int(s) < len(sentinels) {
		sentinel = sentinels[s]
	}
	switch {
	case texts[1] != "":
		return driver.Refuse(texts[0], texts[1], texts[2], texts[3], sentinel)
	case sentinel == nil:
		return errors.New(texts[0])
	}
	return &failure{texts[0], sentinel}
}

// failure is an error of the daemon, with the daemon's text and a sentinel.
type failure struct {
	text     string
	sentinel error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.sentinel }
