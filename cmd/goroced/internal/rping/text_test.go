package rping

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// ping0 and ping1 are what the C tool's client sent in a capture of two rdma_rxe
// hosts, without the NUL at the end.
const (
	ping0 = "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr"
	ping1 = "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs"
)

func TestFillText(t *testing.T) {
	for _, c := range []struct {
		n, size int
		want    string // without the NUL
	}{
		{0, 64, ping0},
		{1, 64, ping1},
		{0, 1, ""},
		{0, 5, "rdma"},
		{0, 13, "rdma-ping-0:"},
		{0, 14, "rdma-ping-0: "},
		{57, 18, "rdma-ping-57: zAB"}, // begins with the last letter and goes on with the first
		{58, 18, "rdma-ping-58: ABC"},
	} {
		b := bytes.Repeat([]byte{'?'}, c.size)
		fillText(b, c.n)
		if string(b) != c.want+"\x00" {
			t.Errorf("ping %d of %d bytes: %q, want %q", c.n, c.size, b, c.want)
		}
		if string(text(b)) != c.want {
			t.Errorf("ping %d of %d bytes: text %q, want %q", c.n, c.size, text(b), c.want)
		}
	}
	if got := text([]byte("no end")); string(got) != "no end" {
		t.Errorf("text without NUL: %q, want %q", got, "no end")
	}
}

// TestCheckText: each byte counts, and one that was never written is named as such.
func TestCheckText(t *testing.T) {
	want := []byte(ping0 + "\x00")
	if err := checkText(bytes.Clone(want), want); err != nil {
		t.Error(err)
	}
	for i := range want {
		got := bytes.Clone(want)
		got[i] ^= 1
		if err := checkText(got, want); !errors.Is(err, ErrData) {
			t.Errorf("byte %d differs: %v, want %v", i, err, ErrData)
		}
	}
	got := make([]byte, len(want))
	wipe(got)
	if err := checkText(got, want); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("nothing returned: %v, want %v and %q", err, ErrData, "nothing was written")
	}
}

// TestPrintText: only a terminal gets lines that are not the C tool's.
func TestPrintText(t *testing.T) {
	for columns, want := range map[int]string{
		0: "ping data: abcdefgh\n", 80: "ping data: abcdefgh\n", 19: "ping data: abcdefgh\n",
		12: "ping data: a\nbcdefgh\n",
	} {
		var out strings.Builder
		o := Options{Out: &out, Columns: columns}
		o.printText("ping data", []byte("abcdefgh"))
		if out.String() != want {
			t.Errorf("on %d columns: %q, want %q", columns, out.String(), want)
		}
	}
}
