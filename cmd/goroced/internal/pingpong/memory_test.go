package pingpong

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
)

var allServices = []Service{RC, UC, UD, SRQ}

// desk takes receives without any device behind it.
type desk struct {
	t      *testing.T
	posted map[uint64]ib.SGE
}

func (d *desk) PostRecv(wrs []ib.RecvWR) (int, error) {
	for _, wr := range wrs {
		if _, twice := d.posted[wr.ID]; twice {
			d.t.Errorf("receive %#x is posted twice", wr.ID)
		}
		d.posted[wr.ID] = wr.SGL[0]
	}
	return len(wrs), nil
}

// region is registered memory whose addresses are offsets.
type region struct{ ib.MR }

func (region) SGE(off, n int) ib.SGE {
	return ib.SGE{Addr: uint64(off), Length: uint32(n), LKey: 0x100}
}

// newGame returns a game on a desk, whose peer is QP 0x22 at 192.0.2.2.
func newGame(t *testing.T, o *Options) (*game, *desk) {
	t.Helper()
	d := &desk{t: t, posted: map[uint64]ib.SGE{}}
	gid := func(s string) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(s)) }
	e := &endpoint{traits: o.Service.traits(), o: o, mem: newMemory(nil, o), mr: region{}, recvs: d,
		gids: []ib.GIDEntry{{GID: gid("192.0.2.1")}}}
	for slot := range o.RxDepth {
		e.free = append(e.free, slot)
	}
	if err := e.refill(); err != nil {
		t.Fatal(err)
	}
	remote := make([]address, o.NumQP)
	for i := range remote {
		remote[i] = address{qpn: 0x22, gid: gid("192.0.2.2")}
	}
	return &game{endpoint: e, remote: remote, page: 4096}, d
}

// arrive places a right message in a posted receive and returns its completion.
func (g *game) arrive(d *desk, id uint64) *ib.WC {
	d.t.Helper()
	sge, ok := d.posted[id]
	if !ok {
		d.t.Fatalf("receive %#x is not posted", id)
	}
	delete(d.posted, id)
	b := g.mem.buf[sge.Addr:][:sge.Length]
	wc := &ib.WC{ID: id, ByteLen: sge.Length}
	if g.datagrams {
		wc.Flags, wc.SrcQP = ib.WCGRH, 0x22
		b[20] = 0x45
		copy(b[32:], []byte{192, 0, 2, 2, 192, 0, 2, 1})
		b = b[ib.GRHLen:]
	}
	fillPattern(b, g.fill, true)
	return wc
}

// TestMessagesMustArrive: a message that is looked at twice, or before it came, is
// not taken for a new one, however short it is.
func TestMessagesMustArrive(t *testing.T) {
	for _, service := range allServices {
		for _, size := range []int{1, 5000} {
			o := Defaults(service)
			o.Size, o.Check = size, true
			g, d := newGame(t, &o)
			const id = recvID | 3<<slotBit
			early := &ib.WC{ID: id, ByteLen: uint32(g.headroom + size)}
			if err := g.look(0, early); err == nil {
				t.Errorf("%v: %d bytes before anything came are taken, want an error", service, size)
			}
			wc := g.arrive(d, id)
			if err := g.look(0, wc); err != nil {
				t.Errorf("%v: %d bytes that came: %v", service, size, err)
			}
			if err := g.look(0, wc); err == nil {
				t.Errorf("%v: %d bytes are taken twice, want an error", service, size)
			}
		}
	}
}

// TestOwnMemory: with a check, a message does not disturb those of other queue
// pairs that have arrived and were not looked at yet, nor what is sent.
func TestOwnMemory(t *testing.T) {
	o := Defaults(SRQ)
	o.Check, o.RxDepth, o.NumQP = true, 20, 4
	g, d := newGame(t, &o)
	if len(d.posted) != 20 {
		t.Fatalf("%d receives are posted, want 20", len(d.posted))
	}
	var wcs []*ib.WC
	for slot := range 20 {
		wcs = append(wcs, g.arrive(d, recvID|uint64(slot)<<slotBit))
	}
	for i, wc := range wcs {
		if err := g.look(i%4, wc); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := checkPattern(g.mem.buf[g.mem.send:], g.fill, g.page); err != nil {
		t.Errorf("what is sent has changed: %v", err)
	}
}

// TestRefill: receives are posted again when as many are left as there are queue
// pairs, so that no message finds none.
func TestRefill(t *testing.T) {
	for _, service := range allServices {
		o := Defaults(service)
		o.RxDepth = 20
		g, d := newGame(t, &o)
		for n := range 100 {
			if len(d.posted) < o.NumQP {
				t.Fatalf("%v: %d receives are left after %d messages, want at least %d, one a queue pair", service,
					len(d.posted), n, o.NumQP)
			}
			for id := range d.posted {
				if err := g.look(0, g.arrive(d, id)); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
}

// TestSharedMemory: without a check the server returns what it got, as the C tool
// does, from behind the GRH.
func TestSharedMemory(t *testing.T) {
	for _, service := range allServices {
		o := Defaults(service)
		g, _ := newGame(t, &o)
		_, message := g.mem.area(7)
		if len(g.mem.buf) != g.headroom+o.Size || &message[0] != &g.mem.buf[g.mem.send] {
			t.Errorf("%v: messages arrive elsewhere than they are sent from", service)
		}
	}
}

// TestStranger: a datagram of somebody else is no message of the peer.
func TestStranger(t *testing.T) {
	for _, change := range []func(wc *ib.WC, grh []byte){
		func(wc *ib.WC, _ []byte) { wc.SrcQP = 0x23 },
		func(_ *ib.WC, grh []byte) { grh[35] = 9 }, // from 192.0.2.9
		func(_ *ib.WC, grh []byte) { grh[39] = 9 }, // to 192.0.2.9
		func(wc *ib.WC, _ []byte) { wc.Flags = 0 },
		func(_ *ib.WC, grh []byte) { clear(grh) },
	} {
		o := Defaults(UD)
		o.Check = true
		g, d := newGame(t, &o)
		wc := g.arrive(d, recvID)
		grh, _ := g.mem.area(0)
		change(wc, grh)
		if err := g.look(0, wc); !errors.Is(err, ErrData) && !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("GRH %x, source QP %#x, flags %#x: error %v, want %v or %v", grh, wc.SrcQP, wc.Flags, err, ErrData,
				ib.ErrInvalid)
		}
	}
}
