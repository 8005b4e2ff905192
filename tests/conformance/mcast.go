package conformance

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
)

func mcastCases() []Case {
	needs := both(ib.CapMulticast)
	return []Case{
		{Name: "multicast/members-receive", Needs: needs, Active: mcastSend, Passive: mcastMembers},
		{Name: "multicast/attached-twice-receives-once", Needs: needs, Active: mcastSend, Passive: mcastTwice},
		{Name: "multicast/detached-receives-no-more", Needs: needs, Active: mcastTwoSends, Passive: mcastDetached},
		{Name: "multicast/groups-are-apart", Needs: needs, Active: mcastTwoSends, Passive: mcastOtherGroup},
		{Name: "multicast/needs-a-multicast-address", Needs: needs, Alone: func(e *End) {
			c := e.into(ib.StateRTS, service(ib.UD))
			e.names(c.qp.AttachMulticast(e.s.me.GID), "attaching to a unicast address", "group", ib.ErrInvalid)
		}},
		{Name: "multicast/needs-ud", Needs: needs, Alone: func(e *End) {
			c := e.into(ib.StateRTS)
			e.is(c.qp.AttachMulticast(e.group(1)), "attaching an RC QP", ib.ErrInvalid, ib.ErrNotSupported)
		}},
		{Name: "multicast/detach-needs-attach", Needs: needs, Alone: func(e *End) {
			c := e.into(ib.StateRTS, service(ib.UD))
			e.is(c.qp.DetachMulticast(e.group(1)), "detaching what was not attached", ib.ErrInvalid)
		}},
	}
}

// group returns multicast group n of the parties' IP version. Other pairs that play on the same network at the same
// time have other groups.
func (e *End) group(n byte) ib.GID {
	first, second := e.s.me.GID, e.peer.GID
	if bytes.Compare(first[:], second[:]) > 0 {
		first, second = second, first
	}
	pair := 251*binary.BigEndian.Uint16(first[14:]) + binary.BigEndian.Uint16(second[14:])
	high, low := byte(pair>>8), byte(pair)
	if e.s.me.GID.Is4() {
		return ib.GIDFromAddr(netip.AddrFrom4([4]byte{239, 77 + n, high, low}))
	}
	return ib.GIDFromAddr(netip.AddrFrom16([16]byte{0: 0xff, 1: 0x12, 12: 0x77, 13: n, 14: high, 15: low}))
}

// toGroup returns a SEND to a group.
func (d *endpoint) toGroup(id uint64, group ib.GID, sgl []ib.SGE) ib.SendWR {
	wr := d.message(id, sgl)
	wr.AH = d.e.newAH(d.e.pd(), func(a *ib.AHAttr) { a.DGID = group }).Num()
	wr.RemoteQPN = ib.QPNMulticast
	return wr
}

func (d *endpoint) attach(group ib.GID) {
	d.e.must(d.qp.AttachMulticast(group), "attach to %v", group.Addr())
}

// got expects datagrams with these lengths, in any order, because those to a group and those to a queue pair may take
// different ways.
func (d *endpoint) got(lengths ...int) {
	for range lengths {
		wc := d.rq.next()
		i := slices.Index(lengths, int(wc.ByteLen)-ib.GRHLen)
		if wc.Status != ib.WCSuccess || i < 0 {
			d.e.fatalf("receive %d: %v, %d bytes; due are datagrams of %v", wc.ID, wc.Status, int(wc.ByteLen)-ib.GRHLen,
				lengths)
		}
		lengths = slices.Delete(lengths, i, i+1)
	}
	d.e.linger(5 * time.Millisecond)
	d.rq.empty()
}

// member creates a queue pair with receives that is attached to the first group.
func (e *End) member() *endpoint {
	d := e.datagram()
	m := e.mem(4*128, ib.LocalWrite)
	for i := range 4 {
		d.recv(uint64(i), m.sgl(128*i, 128))
	}
	d.attach(e.group(1))
	return d
}

func mcastSend(e *End) {
	d := e.datagram()
	m := e.mem(64, 0)
	e.sync("attached")
	d.do(d.toGroup(1, e.group(1), m.all()))
	d.do(d.message(2, m.sgl(0, 5)))
	e.sync("received")
}

// mcastMembers attaches two queue pairs; both receive the datagram.
func mcastMembers(e *End) {
	d := e.member()
	other := e.into(ib.StateRTS, service(ib.UD))
	m := e.mem(128, ib.LocalWrite)
	other.recv(1, m.all())
	e.must(other.qp.AttachMulticast(e.group(1)), "attach another QP")
	e.sync("attached")
	other.rq.received(1, ib.GRHLen+64)
	d.got(64, 5)
	e.must(d.qp.DetachMulticast(e.group(1)), "detach")
	e.sync("received")
}

func mcastTwice(e *End) {
	d := e.member()
	d.attach(e.group(1))
	e.sync("attached")
	d.got(64, 5)
	e.sync("received")
}

func mcastTwoSends(e *End) {
	d := e.datagram()
	m := e.mem(64, 0)
	e.sync("attached")
	d.do(d.toGroup(1, e.group(1), m.all()))
	e.sync("sent")
	e.sync("detached")
	d.do(d.toGroup(2, e.group(2), m.sgl(0, 9)))
	d.do(d.message(3, m.sgl(0, 5)))
	e.sync("received")
}

// mcastDetached detaches from the second group before a datagram is sent to it.
func mcastDetached(e *End) {
	d := e.member()
	d.attach(e.group(2))
	e.sync("attached")
	e.sync("sent")
	d.got(64)
	e.must(d.qp.DetachMulticast(e.group(2)), "detach")
	e.sync("detached")
	d.got(5)
	e.sync("received")
}

// mcastOtherGroup is attached to the first group only.
func mcastOtherGroup(e *End) {
	d := e.member()
	e.sync("attached")
	e.sync("sent")
	d.got(64)
	e.sync("detached")
	d.got(5)
	e.sync("received")
}
