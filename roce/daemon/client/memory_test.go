package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/server"
)

// kinds returns the kinds of a daemon's regions.
func (d *daemon) kinds() (list []string) {
	for _, r := range d.server.MRs() {
		list = append(list, r.Kind)
	}
	return list
}

// mappings returns how many mappings the daemon has of clients' memory.
func (d *daemon) mappings() int64 {
	for _, u := range d.server.Usage() {
		return u.Amount["mappings"]
	}
	return 0
}

// TestAllocAgain: memory of Alloc is mapped by the daemon as often as it is registered, by whichever device of it,
// until Free.
func TestAllocAgain(t *testing.T) {
	d := newDaemon(t, server.Options{})
	a, b := d.newHolder(t), d.newHolder(t)
	buf, err := Alloc(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	before := d.mappings()
	for round, h := range []*holder{a, a, b, a, b} {
		mr, err := h.pd.RegMR(ib.MRInit{Buf: buf[100:5000], Access: ib.LocalWrite})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.kinds(); fmt.Sprint(got) != "[memfd]" {
			t.Errorf("round %d: regions are %v, want one of a memfd", round, got)
		}
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := d.mappings() - before; got != 2 {
		t.Errorf("two devices have shared the memory, and the daemon has %d mappings of it, want 2", got)
	}
	mr, err := a.pd.RegMR(ib.MRInit{Buf: buf})
	if err != nil {
		t.Fatal(err)
	}
	if err := Free(buf); err != nil {
		t.Error(err)
	}
	if got := d.mappings() - before; got != 1 {
		t.Errorf("after Free, with one region left, the daemon has %d mappings, want 1", got)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
	if got := d.mappings() - before; got != 0 {
		t.Errorf("after the last region the daemon has %d mappings more than before, want none", got)
	}
}

// TestAllocElsewhere: memory that one daemon has mapped another one cannot map. It takes it as memory of the process,
// if it may, and says both reasons if it may not.
func TestAllocElsewhere(t *testing.T) {
	first, second := newDaemon(t, server.Options{}), newDaemon(t, server.Options{})
	a, b := first.newHolder(t), second.newHolder(t)
	if _, err := a.pd.RegMR(ib.MRInit{Buf: a.buf}); err != nil {
		t.Fatal(err)
	}
	_, err := b.pd.RegMR(ib.MRInit{Buf: a.buf})
	var refused *ib.AttrError
	if !errors.Is(err, abi.ErrPermission) || !errors.As(err, &refused) || refused.Attr != "seals" ||
		!strings.Contains(err.Error(), "memory.own_processes") {
		t.Errorf("memory of another daemon: %v, want what is wrong with its seals, and ErrPermission", err)
	}
	second.server.SetProcesses(true, true)
	mr, err := b.pd.RegMR(ib.MRInit{Buf: a.buf})
	if err != nil {
		t.Fatal(err)
	}
	if got := second.kinds(); fmt.Sprint(got) != "[process]" {
		t.Errorf("regions are %v, want one of the process", got)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}

// TestFreeAndClose: memory may be freed before or after the device that has shared it is closed.
func TestFreeAndClose(t *testing.T) {
	d := newDaemon(t, server.Options{})
	for _, first := range []string{"free", "close"} {
		h := d.newHolder(t)
		buf, err := Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.pd.RegMR(ib.MRInit{Buf: buf}); err != nil {
			t.Fatal(err)
		}
		p := pieceOf(buf)
		if first == "free" {
			err = errors.Join(Free(buf), h.dev.Close())
		} else {
			err = h.dev.Close()
			if len(p.shares) != 0 {
				t.Error("a closed device is not forgotten")
			}
			err = errors.Join(err, Free(buf))
		}
		if err != nil {
			t.Errorf("first %s: %v", first, err)
		}
	}
}
