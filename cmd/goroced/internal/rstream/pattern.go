package rstream

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrData: received bytes differ from those that were sent.
var ErrData = errors.New("data verification failed")

// pattern generates and checks the data of an end, if they are verified: bytes that count up through all tests and
// connections, for each direction separately.
type pattern struct {
	sent, received int64
}

// counting has bytes that count up, at least 4 KiB of them from each of its first 256 bytes on.
var counting = func() (b [256 + 4096]byte) {
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// after returns the pattern after n bytes.
func after(n int64) []byte { return counting[byte(n):] }

// fill writes the next bytes to send.
func (p *pattern) fill(b []byte) {
	for len(b) > 0 {
		n := copy(b, after(p.sent))
		p.sent += int64(n)
		b = b[n:]
	}
}

// check compares the next received bytes.
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

// firstWrong returns the error for the first byte that differs.
func (p *pattern) firstWrong(b []byte) error {
	i := 0
	for b[i] == byte(p.received+int64(i)) {
		i++
	}
	at := p.received + int64(i)
	return fmt.Errorf("%w: byte %d is %#02x, should be %#02x; both ends need -T v and the same tests", ErrData, at,
		b[i], byte(at))
}
