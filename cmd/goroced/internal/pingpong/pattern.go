package pingpong

import (
	"errors"
	"fmt"
	"os"
)

// ErrData: bytes arrived that are not those that were sent.
var ErrData = errors.New("data differ")

// The C tools fill their buffer with one byte and, checking data, write the number
// of each page modulo sizeof(char), which is 0, to the page's first byte. Their
// servers look at these bytes once, at the end.
const (
	pageByte  = 0x00
	wipedByte = 0xE5 // stands where nothing has arrived

	// smallestPage is the page size that some peers have and all of ours are
	// multiples of: there, the byte is that of a page or not.
	smallestPage = 4096
)

// fillPattern writes what the client sends.
func fillPattern(b []byte, fill byte, check bool) {
	for i := range b {
		b[i] = fill
	}
	for i := 0; check && i < len(b); i += os.Getpagesize() {
		b[i] = pageByte
	}
}

// checkPattern looks at every byte of a message.
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
