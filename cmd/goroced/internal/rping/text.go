package rping

import (
	"bytes"
	"fmt"
	"slices"
)

// wipedByte is the value of bytes that have not returned. It does not occur in texts.
const wipedByte = 0xE5

// fillText writes the text of ping n, from 0 on: a name, then the ASCII characters from 'A' to 'z', starting one later
// in each ping, and a NUL as the last byte.
func fillText(b []byte, n int) {
	const first, span = 'A', 'z' - 'A' + 1
	named := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for i := range b[named:] {
		b[named+i] = byte(first + (n+i)%span)
	}
	b[len(b)-1] = 0
}

// text returns the bytes before the first NUL, or all if there is none.
func text(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}

// printText prints the text of a ping, on a terminal in lines of its width.
func (o *Options) printText(what string, text []byte) {
	line := fmt.Appendf(nil, "%s: %s", what, text)
	width := len(line)
	if o.Columns > 0 {
		width = o.Columns
	}
	fmt.Fprintf(o.Out, "%s\n", bytes.Join(slices.Collect(slices.Chunk(line, width)), []byte("\n")))
}

// checkText compares the returned text with the one that was sent.
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
