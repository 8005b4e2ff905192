package rstream

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrData: bytes arrived that are not those that were sent.
var ErrData = errors.New("data verification failed")

// pattern is the data of an end, if they are verified: bytes that count up, through
// all tests and connections, each way for itself.
type pattern struct {
	sent, received int64
}

// counting counts up, from each of its first 256 bytes on for at least 4 KiB.
var counting = func() (b [256 + 4096]byte) {
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// after is what follows n bytes.
func after(n int64) []byte { return counting[byte(n):] }

// fill writes the next bytes that are sent.
func (p *pattern) fill(b []byte) {
	for len(b) > 0 {
		n := copy(b, after(p.sent))
		p.sent += int64(n)
		b = b[n:]
	}
}

// check looks at the next bytes that have arrived.
func (p *pattern) check(b []byte) error {
	for len(b) > 0 {
		want := after(p.received)
		n := min(len(b), len(want))
		if !bytes.Equal(b[:n], want[:n]) {
			return p.firstWrong(b)
		}
		p.received += int64(n)
		b = b[n:]
	}
	return nil
}

// firstWrong says which byte is.
func (p *pattern) firstWrong(b []byte) error {
	i := 0
	for b[i] == byte(p.received+int64(i)) {
		i++
	}
	at := p.received + int64(i)
	return fmt.Errorf("%w: byte %d is %#02x, should be %#02x; both ends need -T v and the same tests", ErrData, at,
		b[i], byte(at))
}
