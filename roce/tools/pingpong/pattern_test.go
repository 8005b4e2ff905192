package pingpong

import (
	"errors"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestCheckPattern: every byte counts, and page sizes of other machines pass.
func TestCheckPattern(t *testing.T) {
	good := make([]byte, 3*65536+100)
	fillPattern(good, true)
	if err := checkPattern(good, 4096); err != nil {
		t.Errorf("our own pattern: %v", err)
	}
	if err := checkPattern(good, 65536); err != nil {
		t.Errorf("from a machine with smaller pages: %v", err)
	}
	for _, c := range []struct {
		at   int
		to   byte
		want string
	}{
		{0, fillByte, "invalid data in page 0: byte 0 "}, {4096, 1, "invalid data in page 1: byte 4096 "},
		{4095, pageByte, "byte 4095 "}, {len(good) - 1, wipedByte, "byte 196707 "},
	} {
		bad := append([]byte(nil), good...)
		bad[c.at] = c.to
		if err := checkPattern(bad, 4096); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("byte %d is %#x: error %v, want %q", c.at, c.to, err, c.want)
		}
	}
	fillPattern(good, false)
	if err := checkPattern(good, 4096); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "-c too") {
		t.Errorf("a client that does not check: error %v, want advice", err)
	}
	wipe(good)
	if err := checkPattern(good, 4096); !errors.Is(err, ErrData) {
		t.Errorf("nothing arrived: error %v", err)
	}
}

// TestMessagesMustArrive: a message that is looked at twice, or before it came, is
// not taken for a new one, however short it is.
func TestMessagesMustArrive(t *testing.T) {
	dev, _ := device(t, wrap.FaultConfig{})
	for _, size := range []int{1, 5000} {
		o := Defaults()
		o.Size, o.Check = size, true
		e, err := newEndpoint(dev, &o)
		if err != nil {
			t.Fatal(err)
		}
		g := &game{endpoint: e, page: 4096}
		wc := &ib.WC{ID: recvID, ByteLen: uint32(size)}
		if err := g.look(wc); !errors.Is(err, ErrData) {
			t.Errorf("%d bytes before anything came: error %v", size, err)
		}
		fillPattern(e.recvBuf, true)
		if err := g.look(wc); err != nil {
			t.Errorf("%d bytes that came: %v", size, err)
		}
		if err := g.look(wc); !errors.Is(err, ErrData) {
			t.Errorf("%d bytes again: error %v", size, err)
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}
}
