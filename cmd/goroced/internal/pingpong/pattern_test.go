package pingpong

import (
	"errors"
	"strings"
	"testing"
)

// TestCheckPattern: every byte counts, and page sizes of other machines pass.
func TestCheckPattern(t *testing.T) {
	const fill = 0x7B
	good := make([]byte, 3*65536+100)
	fillPattern(good, fill, true)
	if err := checkPattern(good, fill, 4096); err != nil {
		t.Errorf("our own pattern: %v", err)
	}
	if err := checkPattern(good, fill, 65536); err != nil {
		t.Errorf("from a machine with smaller pages: %v", err)
	}
	for _, c := range []struct {
		at   int
		to   byte
		want string
	}{
		{0, fill, "invalid data in page 0: byte 0 "}, {4096, 1, "invalid data in page 1: byte 4096 "},
		{4095, pageByte, "byte 4095 "}, {len(good) - 1, wipedByte, "byte 196707 "},
	} {
		bad := append([]byte(nil), good...)
		bad[c.at] = c.to
		if err := checkPattern(bad, fill, 4096); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("byte %d is %#x: error %v, want %q", c.at, c.to, err, c.want)
		}
	}
	fillPattern(good, fill, false)
	if err := checkPattern(good, fill, 4096); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "-c too") {
		t.Errorf("a client that does not check: error %v, want advice", err)
	}
	wipe(good)
	if err := checkPattern(good, fill, 4096); !errors.Is(err, ErrData) {
		t.Errorf("nothing arrived: error %v, want %v", err, ErrData)
	}
}
