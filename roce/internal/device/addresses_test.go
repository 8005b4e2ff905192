package device_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

func gid(last byte) ib.GID { return ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 14: 2, 15: last} }

// gids returns a device's GID table by index.
func gids(t testing.TB, dev ib.Device) map[int]ib.GID {
	t.Helper()
	table, err := dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	m := map[int]ib.GID{}
	for _, e := range table {
		m[e.Index] = e.GID
	}
	return m
}

// wantChanges reads all events, which must be GID changes.
func wantChanges(t *testing.T, dev ib.Device, want int) {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	got := 0
	for ; ; got++ {
		ev, err := dev.NextEvent(over)
		if err != nil {
			break
		}
		if ev.Type != ib.EventGIDChange || ev.QP != nil || ev.CQ != nil || ev.SRQ != nil {
			t.Errorf("event %+v, want a GID change of the device", ev)
		}
	}
	if got != want {
		t.Errorf("%d changes of the GID table are told, want %d", got, want)
	}
}

// TestHopLimit: packets to one host have the hop limit of routes, whatever the address vector has.
func TestHopLimit(t *testing.T) {
	for _, hops := range []uint8{0, 1, 255} {
		w := newWorld(t, 1, 64, plain)
		w.connect(ib.MTU1024, func(a *ib.QPAttr) { a.AH.HopLimit = hops })
		if got, err := w.a.qp.Query(); err != nil || got.AH.HopLimit != 64 {
			t.Errorf("hop limit %d: got %d, %v, want 64", hops, got.AH.HopLimit, err)
		}
	}
}

// TestGIDIndexes: rows keep their index; an address that comes back gets its old index if
// that is free.
func TestGIDIndexes(t *testing.T) {
	h := openHost(t, mem.NewNetwork().Open([]ib.GID{gid(1), gid(2), gid(3)}, mem.Options{}),
		device.Options{Manual: true, Seed: 1}, 64)
	for _, step := range []struct {
		what string
		set  []ib.GID
		want map[int]ib.GID
		news int
		rows int
	}{
		{"the same", []ib.GID{gid(3), gid(2), gid(1)}, map[int]ib.GID{0: gid(1), 1: gid(2), 2: gid(3)}, 0, 3},
		{"two go", []ib.GID{gid(3)}, map[int]ib.GID{2: gid(3)}, 2, 3},
		{"the later one is back", []ib.GID{gid(3), gid(2)}, map[int]ib.GID{1: gid(2), 2: gid(3)}, 1, 3},
		{"a new one takes the first empty row", []ib.GID{gid(3), gid(2), gid(9)},
			map[int]ib.GID{0: gid(9), 1: gid(2), 2: gid(3)}, 1, 3},
		{"whose row is taken gets another", []ib.GID{gid(1), gid(3), gid(2), gid(9)},
			map[int]ib.GID{0: gid(9), 1: gid(2), 2: gid(3), 3: gid(1)}, 1, 4},
		{"one for another", []ib.GID{gid(1), gid(3), gid(7), gid(9)},
			map[int]ib.GID{0: gid(9), 1: gid(7), 2: gid(3), 3: gid(1)}, 2, 4},
		{"none", nil, map[int]ib.GID{}, 4, 4},
		{"back in another order", []ib.GID{gid(1), gid(9)}, map[int]ib.GID{0: gid(9), 3: gid(1)}, 2, 4},
	} {
		if err := h.dev.SetAddresses(step.set); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		if diff := cmp.Diff(step.want, gids(t, h.dev)); diff != "" {
			t.Errorf("%s: GID table (-want +got):\n%s", step.what, diff)
		}
		if p, err := h.dev.QueryPort(1); err != nil || p.GIDTableLen != step.rows {
			t.Errorf("%s: %d rows, %v; want %d", step.what, p.GIDTableLen, err, step.rows)
		}
		wantChanges(t, h.dev, step.news)
	}
}

// refusing is a link that cannot get an address.
type refusing struct {
	link.Link
	not ib.GID
}

var errNotYet = errors.New("not yet")

func (r *refusing) AddLocal(g ib.GID) error {
	if g == r.not {
		return errNotYet
	}
	return r.Link.AddLocal(g)
}

// TestAddressRefused: an address that one of the links cannot get is not added to the device,
// the others are, and the caller can try again.
func TestAddressRefused(t *testing.T) {
	links := mem.NewNetwork().OpenShards([]ib.GID{gid(1)}, mem.Options{}, 2)
	second := &refusing{links[1], gid(5)}
	h := openHostShards(t, []link.Link{links[0], second}, 0, device.Options{Manual: true, Seed: 1}, 64)
	all := []ib.GID{gid(1), gid(5), gid(6)}
	if err := h.dev.SetAddresses(all); !errors.Is(err, errNotYet) {
		t.Errorf("error %v, want %v", err, errNotYet)
	}
	if diff := cmp.Diff(map[int]ib.GID{0: gid(1), 1: gid(6)}, gids(t, h.dev)); diff != "" {
		t.Errorf("GID table (-want +got):\n%s", diff)
	}
	wantChanges(t, h.dev, 1)
	second.not = ib.GID{}
	if err := h.dev.SetAddresses(all); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[int]ib.GID{0: gid(1), 1: gid(6), 2: gid(5)}, gids(t, h.dev)); diff != "" {
		t.Errorf("tried again: GID table (-want +got):\n%s", diff)
	}
}

func TestGIDTableFull(t *testing.T) {
	h := openHost(t, mem.NewNetwork().Open([]ib.GID{gid(1)}, mem.Options{}), device.Options{Manual: true, Seed: 1}, 64)
	var all []ib.GID
	for i := range device.MaxGIDs + 1 {
		all = append(all, gid(byte(i+1)))
	}
	var full *ib.AttrError
	if err := h.dev.SetAddresses(all); !errors.As(err, &full) || !errors.Is(err, ib.ErrLimit) {
		t.Errorf("error %v, want an *ib.AttrError that wraps ErrLimit", err)
	}
	if n := len(gids(t, h.dev)); n != device.MaxGIDs {
		t.Errorf("%d GIDs, want %d", n, device.MaxGIDs)
	}
	if err := h.dev.SetAddresses(all[1:]); err != nil {
		t.Errorf("as many as fit: %v", err)
	}
}

// TestEmptyRow: no QP or address handle can be set to an address that was removed.
func TestEmptyRow(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	w.connect(ib.MTU1024, nil)
	dev := w.a.dev
	ah, err := w.a.pd.CreateAH(ib.AHAttr{DGID: gidB})
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.SetAddresses([]ib.GID{gid(77)}); err != nil { // which takes the row
		t.Fatal(err)
	}
	if err := dev.SetAddresses(nil); err != nil {
		t.Fatal(err)
	}
	_, created := w.a.pd.CreateAH(ib.AHAttr{DGID: gidB})
	old := w.a.qp
	w.makeQP(w.a)
	w.modify(w.a.qp, ib.QPAttr{State: ib.StateInit, Port: 1}, ib.Required(ib.RC, ib.StateInit))
	toRTR := ib.QPAttr{State: ib.StateRTR, AH: ib.AHAttr{DGID: gidB}, PathMTU: ib.MTU1024, DestQPN: 9}
	for what, err := range map[string]error{
		"create AH": created,
		"modify AH": ah.(*device.AH).Modify(ib.AHAttr{DGID: gidB}),
		"modify QP": w.a.qp.Modify(toRTR, ib.Required(ib.RC, ib.StateRTR)),
	} {
		var refused *ib.AttrError
		if !errors.As(err, &refused) || !errors.Is(err, ib.ErrInvalid) || refused.Attr != "AH" {
			t.Errorf("%s: %v, want an *ib.AttrError for AH", what, err)
		}
	}
	if a, err := old.Query(); err != nil || a.State != ib.StateRTS {
		t.Errorf("the QP whose address has gone is %v, %v; want RTS", a.State, err)
	}
}

// TestAddressGone: requests of a QP whose address was removed fail when its retries are
// exhausted. If the address comes back before, the QP continues. Other QPs are not affected.
func TestAddressGone(t *testing.T) {
	for _, tt := range []struct {
		name string
		back bool
		want ib.WCStatus
	}{{"for good", false, ib.WCRetryExcErr}, {"for a while", true, ib.WCSuccess}} {
		for _, end := range []string{"requester", "responder"} {
			t.Run(tt.name+", the "+end+"'s", func(t *testing.T) {
				w := newWorld(t, 1, 1<<16, plain)
				w.connect(ib.MTU1024, nil)
				dev, own := w.a.dev, gidA
				if end == "responder" {
					dev, own = w.b.dev, gidB
				}
				fill(w.a.buf, 1)
				if err := dev.SetAddresses(nil); err != nil {
					t.Fatal(err)
				}
				w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: w.a.sge(0, 1<<16), RemoteAddr: w.b.mr.Addr(),
					RKey: w.b.mr.RKey()})
				for range 3 { // timeouts
					w.advance()
				}
				if bytes.Equal(w.a.buf, w.b.buf) {
					t.Error("data arrived without an address")
				}
				if tt.back {
					if err := dev.SetAddresses([]ib.GID{own}); err != nil {
						t.Fatal(err)
					}
				}
				if wc := w.poll(w.a); wc.Status != tt.want {
					t.Errorf("WRITE: %v, want %v", wc.Status, tt.want)
				}
				if same := bytes.Equal(w.a.buf, w.b.buf); same != tt.back {
					t.Errorf("data arrived: %v, want %v", same, tt.back)
				}
			})
		}
	}
}

// TestSetNetIf: the rows of the GID table have the interface's name, and a change is told.
func TestSetNetIf(t *testing.T) {
	dev := newWorld(t, 1, 1<<14, plain).a.dev
	for _, name := range []string{"eth7", "eth7", "eth8"} {
		dev.SetNetIf(name)
		port, err := dev.QueryPort(1)
		must(t, err)
		gids, err := dev.GIDs(1)
		must(t, err)
		if port.NetIf != name || gids[0].NetIf != name {
			t.Errorf("got interface %q, of the GID %q, want %q", port.NetIf, gids[0].NetIf, name)
		}
	}
	wantChanges(t, dev, 2)
}

// TestMTUChange: the active MTU follows the interface, but never exceeds its initial value;
// connected QPs keep their path MTU.
func TestMTUChange(t *testing.T) {
	w := newWorld(t, 1, 1<<14, plain)
	w.connect(ib.MTU2048, nil)
	connected := w.a.qp
	for _, tt := range []struct {
		bytes int
		want  ib.MTU
	}{{1500, ib.MTU1024}, {576, ib.MTU256}, {68, ib.MTU256}, {0, ib.MTU256}, {2200, ib.MTU2048}, {9000, ib.MTU4096},
		{1104, ib.MTU1024}, {1103, ib.MTU512}} {
		w.a.dev.SetMTU(tt.bytes)
		if p, err := w.a.dev.QueryPort(1); err != nil || p.ActiveMTU != tt.want || p.MaxMTU != ib.MTU4096 {
			t.Errorf("interface MTU %d: active MTU %d of %d, %v; want %d", tt.bytes, p.ActiveMTU, p.MaxMTU, err,
				tt.want)
		}
	}
	wantChanges(t, w.a.dev, 0)
	w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: w.a.sge(0, 1<<14), RemoteAddr: w.b.mr.Addr(),
		RKey: w.b.mr.RKey()})
	w.wantDone(w.a, 1)
	if a, err := connected.Query(); err != nil || a.PathMTU != ib.MTU2048 {
		t.Errorf("a connected QP has path MTU %d, %v; want 2048", a.PathMTU, err)
	}
	w.makeQP(w.a)
	w.modify(w.a.qp, ib.QPAttr{State: ib.StateInit, Port: 1}, ib.Required(ib.RC, ib.StateInit))
	attr := ib.QPAttr{State: ib.StateRTR, AH: ib.AHAttr{DGID: gidB}, PathMTU: 8192, DestQPN: 9}
	mask := ib.Required(ib.RC, ib.StateRTR)
	if err := w.a.qp.Modify(attr, mask); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("path MTU 8192: %v, want ErrInvalid", err)
	}
	attr.PathMTU = ib.MTU4096 // of short messages
	w.modify(w.a.qp, attr, mask)
}

// TestNewAddressOverUDP: an address that is added while the shards run can carry a
// connection, over sockets of each shard.
func TestNewAddressOverUDP(t *testing.T) {
	for _, shards := range []int{1, 4} {
		first, later := linktest.Loopback(), linktest.Loopback()
		open := func(a netip.Addr) *host {
			links, err := udp.OpenShards([]netip.Addr{a}, udp.Options{}, shards)
			if err != nil {
				t.Fatal(err)
			}
			for i := range links {
				links[i] = wrap.Seal(wrap.Loopback(links[i]))
			}
			return openHostShards(t, links, shards-1, device.Options{}, 1<<16)
		}
		w := &world{t: t, a: open(first), b: open(linktest.Loopback()), timeout: liveTimeout}
		fill(w.a.buf, 3)
		spare := ib.GIDFromAddr(later)
		if err := w.a.dev.SetAddresses([]ib.GID{w.a.gid(), spare}); err != nil {
			t.Fatal(err)
		}
		w.makeQP(w.a)
		w.makeQP(w.b)
		w.bringUp(w.a, w.b.gid(), w.b.qp.Num(), ib.MTU1024, func(a *ib.QPAttr) { a.AH.SGIDIndex = 1 })
		w.bringUp(w.b, spare, w.a.qp.Num(), ib.MTU1024, nil)
		write := ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: w.a.sge(0, 1<<16), RemoteAddr: w.b.mr.Addr(),
			RKey: w.b.mr.RKey()}
		for round := range 3 {
			clear(w.b.buf)
			w.send(w.a, write)
			if wc := w.wait(w.a); wc.Err() != nil || !bytes.Equal(w.a.buf, w.b.buf) {
				t.Fatalf("%d shards: WRITE %v, data are right: %v; want %v, true", shards, wc.Err(),
					bytes.Equal(w.a.buf, w.b.buf), ib.WCSuccess)
			}
			// Later, packets cross shards that arrive while only some shards have their sockets.
			if n := w.a.dev.Stats().CrossedShards; n > 0 && round == 0 {
				t.Errorf("%d shards: %d frames came by the sockets of another shard, want none", shards, n)
			}
			// The address is removed and added again while a request is outstanding.
			if err := w.a.dev.SetAddresses([]ib.GID{w.a.gid()}); err != nil {
				t.Fatal(err)
			}
			w.send(w.a, write)
			if err := w.a.dev.SetAddresses([]ib.GID{spare, w.a.gid()}); err != nil {
				t.Fatal(err)
			}
			if wc := w.wait(w.a); wc.Err() != nil {
				t.Fatalf("%d shards: WRITE while the address was gone: %v", shards, wc.Err())
			}
		}
		if diff := cmp.Diff(map[int]ib.GID{0: w.a.gid(), 1: spare}, gids(t, w.a.dev)); diff != "" {
			t.Errorf("GID table (-want +got):\n%s", diff)
		}
	}
}
