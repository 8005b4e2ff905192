package rping

import (
	"bytes"
	"fmt"
)

// wipedByte stands where no text has returned. No text has it.
const wipedByte = 0xE5

// fillText writes the text of ping n, counted from 0: its name, then letters and
// what ASCII has between them from 'A' to 'z', begun one later in each ping, and a
// NUL as the last byte.
func fillText(b []byte, n int) {
	const first, span = 'A', 'z' - 'A' + 1
	named := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for i := range b[named:] {
		b[named+i] = byte(first + (n+i)%span)
	}
	b[len(b)-1] = 0
}

// text returns what stands before the first NUL, which is all if there is none.
func text(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}

// checkText compares what has returned with what was sent.
func checkText(got, want []byte) error {
	for i := range want {
		if got[i] == want[i] {
			continue
		}
		hint := ""
		if got[i] == wipedByte {
			hint = " (nothing was written there)"
		}
		return fmt.Errorf("%w: byte %d is %#02x%s, should be %#02x", ErrData, i, got[i], hint, want[i])
	}
	return nil
}

func wipe(b []byte) {
	for i := range b {
		b[i] = wipedByte
	}
}
