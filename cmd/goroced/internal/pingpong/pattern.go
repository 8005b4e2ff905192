package pingpong

import (
	"errors"
	"fmt"
	"os"
)

// ErrData: received bytes differ from those that were sent.
var ErrData = errors.New("data differ")

// The C tools fill their buffer with one byte. To check data they write the number of each page modulo sizeof(char),
// which is 0, to the first byte of the page, and their servers check these bytes once, at the end.
const (
	pageByte  = 0x00
	wipedByte = 0xE5 // value of bytes that have not been received yet

	// smallestPage is the page size of some peers; all other page sizes are multiples of it. There a byte may be the
	// first of a page or not.
	smallestPage = 4096
)

// fillPattern writes the data of the client.
func fillPattern(b []byte, fill byte, check bool) {
	for i := range b {
		b[i] = fill
	}
	for i := 0; check && i < len(b); i += os.Getpagesize() {
		b[i] = pageByte
	}
}

// checkPattern checks every byte of a message.
func checkPattern(b []byte, fill byte, pageSize int) error {
	for i, got := range b {
		if got == fill && i%pageSize != 0 {
			continue
		}
		if got == pageByte && i%smallestPage == 0 {
			continue
		}
		want := fill
		if i%pageSize == 0 {
			want = pageByte
		}
		hint := ""
		if got == fill {
			hint = "; the client must run with -c too"
		}
		return fmt.Errorf("%w: invalid data in page %d: byte %d is %#02x, should be %#02x%s", ErrData, i/pageSize, i,
			got, want, hint)
	}
	return nil
}
