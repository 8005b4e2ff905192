//go:build rnic && cgo

package rnic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
)

func TestDescribe(t *testing.T) {
	r := openRig(t)
	attr := r.Attr()
	t.Logf("%+v", attr)
	names := try(Devices())(r)
	if len(names) == 0 || attr.Name == "" || attr.NodeGUID == 0 || attr.Ports < 1 || attr.MaxQP < 2 ||
		attr.MaxInline < 32 {
		t.Errorf("devices %v; attributes %+v; want some, with a name, a GUID, a port, 2 QPs, 32 bytes inline",
			names, attr)
	}
	port := try(r.QueryPort(1))(r)
	if port.State != ib.PortActive || !port.ActiveMTU.Valid() || port.ActiveMTU > port.MaxMTU || port.GIDTableLen < 1 ||
		port.NetIf == "" {
		t.Errorf("port %+v, want %v with an MTU, GIDs and an interface", port, ib.PortActive)
	}
	if key := try(r.PKey(1, 0))(r); key != ib.DefaultPKey {
		t.Errorf("P_Key %#x, want the default partition", key)
	}
	rows := try(r.GIDs(1))(r)
	for _, row := range rows {
		if row.NetIf != port.NetIf || row.GID.Addr().IsUnspecified() || row.Index >= port.GIDTableLen {
			t.Errorf("GID row %+v on port %+v, want one of them", row, port)
		}
	}
	if len(rows) < 2 {
		t.Errorf("GID table %v, want a link-local address and others", rows)
	}
	if attr.Caps&ib.CapTimestamp == 0 {
		if _, err := r.Clock(); !errors.Is(err, ib.ErrNotSupported) {
			t.Errorf("clock of a device without timestamps: %v, want %v", err, ib.ErrNotSupported)
		}
	}
	for _, err := range []error{second(r.QueryPort(0)), second(r.GIDs(attr.Ports + 1)), second(r.PKey(1, 1<<16)),
		second(Open("no-such"))} {
		if e := new(ib.AttrError); !errors.As(err, &e) || !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("%v: want an AttrError, invalid", err)
		}
	}
	if name := try(Open(""))(r); name.Attr().Name != names[0] {
		t.Errorf("no name opens %s, want the first of %v", name.Attr().Name, names)
	} else {
		r.must(name.Close())
	}
}

func second[T any](_ T, err error) error { return err }

// reliable is a pair of RC QPs with memory at both ends.
type reliable struct {
	*rig
	a, b     ib.QP
	src, dst ib.MR
	from, to []byte
}

func newReliable(t *testing.T) *reliable {
	r := &reliable{rig: openRig(t)}
	r.a, r.b = r.newPair(ib.RC)
	r.src, r.from = r.register(8192)
	r.dst, r.to = r.register(8192)
	for i := range r.from {
		r.from[i] = byte(i * 7)
	}
	return r
}

// pieces returns the first 3,001 bytes as three scatter-gather entries.
func (r *reliable) pieces() []ib.SGE {
	return []ib.SGE{sge(r.src, 0, 1000), sge(r.src, 1000, 1), sge(r.src, 1001, 2000)}
}

// remote fills in a request with ID 1 on the peer's memory.
func (r *reliable) remote(op ib.WROpcode, wr ib.SendWR) ib.SendWR {
	wr.ID, wr.Opcode, wr.Flags = 1, op, wr.Flags|ib.SendSignaled
	wr.RemoteAddr, wr.RKey = r.dst.Addr(), r.dst.RKey()
	return wr
}

// arrived fails the test unless the first n bytes are the same at both ends.
func (r *reliable) arrived(n int) {
	r.Helper()
	if !bytes.Equal(r.from[:n], r.to[:n]) {
		r.Errorf("the first %d bytes differ", n)
	}
	clear(r.to)
}

func TestReliableSend(t *testing.T) {
	r := newReliable(t)
	r.recv(r.b, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(r.dst, 0, 1500), sge(r.dst, 1500, 1501)}})
	r.send(r.a, ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: r.pieces()})
	wc := r.wantBoth(1, 2)
	if wc.Opcode != ib.WCRecv || wc.ByteLen != 3001 || wc.QPN != r.b.Num() || wc.Flags&ib.WCWithImm != 0 {
		t.Errorf("SEND: completion %+v, want %v of 3001 bytes, without immediate, at QP %v", wc, ib.WCRecv, r.b.Num())
	}
	r.arrived(3001)

	r.recv(r.b, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(r.dst, 0, 64)}})
	r.send(r.a, ib.SendWR{ID: 1, Opcode: ib.WRSendImm, Flags: ib.SendSignaled | ib.SendInline, Inline: r.from[:9],
		Imm: 0x01020304})
	wc = r.wantBoth(1, 2)
	if wc.Imm != 0x01020304 || wc.Flags&ib.WCWithImm == 0 || wc.ByteLen != 9 {
		t.Errorf("SEND with immediate: completion %+v, want 9 bytes and 0x01020304", wc)
	}
	r.arrived(9)

	r.recv(r.b, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(r.dst, 0, 64)}})
	r.send(r.a, ib.SendWR{ID: 7, Opcode: ib.WRSend, Flags: ib.SendSolicited | ib.SendFence, SGL: r.pieces()[1:2]})
	r.want(2, ib.WCRecv)
	if n := try(r.cq.Poll(make([]ib.WC, 4)))(r.rig); n != 0 {
		t.Errorf("%d completions of an unsignaled request, want none", n)
	}
}

func TestReliableWriteAndRead(t *testing.T) {
	r := newReliable(t)
	r.send(r.a, r.remote(ib.WRWrite, ib.SendWR{SGL: r.pieces()}))
	r.want(1, ib.WCWrite)
	r.arrived(3001)

	r.recv(r.b, ib.RecvWR{ID: 2})
	r.send(r.a, r.remote(ib.WRWriteImm, ib.SendWR{SGL: r.pieces()[:1], Imm: 0xFFEEDDCC}))
	if wc := r.wantBoth(1, 2); wc.Opcode != ib.WCRecvImm || wc.Imm != 0xFFEEDDCC || wc.ByteLen != 1000 {
		t.Errorf("WRITE with immediate: completion %+v, want %v of 1000 bytes, with 0xFFEEDDCC", wc, ib.WCRecvImm)
	}
	r.arrived(1000)

	for i := range r.to {
		r.to[i] = byte(i * 3)
	}
	r.send(r.a, r.remote(ib.WRRead, ib.SendWR{SGL: []ib.SGE{sge(r.src, 0, 2000), sge(r.src, 2000, 1000)}}))
	r.want(1, ib.WCRead)
	r.arrived(3000)
}

func TestReliableAtomics(t *testing.T) {
	r := newReliable(t)
	binary.NativeEndian.PutUint64(r.to, 100)
	for _, c := range []struct {
		op            ib.WROpcode
		compare, swap uint64
		wcOp          ib.WCOpcode
		before, after uint64
	}{
		{ib.WRFetchAdd, 0, 5, ib.WCFetchAdd, 100, 105},
		{ib.WRCompareSwap, 105, 1 << 63, ib.WCCompareSwap, 105, 1 << 63},
		{ib.WRCompareSwap, 7, 9, ib.WCCompareSwap, 1 << 63, 1 << 63},
	} {
		r.send(r.a, r.remote(c.op, ib.SendWR{SGL: []ib.SGE{sge(r.src, 0, 8)}, Compare: c.compare, Swap: c.swap}))
		r.want(1, c.wcOp)
		before, after := binary.NativeEndian.Uint64(r.from), binary.NativeEndian.Uint64(r.to)
		if before != c.before || after != c.after {
			t.Errorf("%v(%d, %d): %d became %d; want %d and %d", c.op, c.compare, c.swap, before, after, c.before,
				c.after)
		}
	}
}

// TestRemoteErrors checks that a request that the peer refuses completes with the right status,
// and that the QP goes to ERR.
func TestRemoteErrors(t *testing.T) {
	r := openRig(t)
	mr, _ := r.register(64)
	for _, c := range []struct {
		name string
		wr   ib.SendWR
		want ib.WCStatus
	}{
		{"bad key", ib.SendWR{Opcode: ib.WRWrite, RemoteAddr: mr.Addr(), RKey: mr.RKey() ^ 1}, ib.WCRemAccessErr},
		{"out of bounds", ib.SendWR{Opcode: ib.WRRead, RemoteAddr: mr.Addr() + 60, RKey: mr.RKey()}, ib.WCRemAccessErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.in(t)
			a, _ := r.newPair(ib.RC)
			c.wr.ID, c.wr.SGL = 9, []ib.SGE{sge(mr, 0, 8)}
			r.send(a, c.wr) // failures complete without being signaled
			if wc := r.next(r.cq); wc.ID != 9 || wc.Status != c.want || wc.QPN != a.Num() {
				t.Errorf("completion %+v, want status %v", wc, c.want)
			}
			r.send(a, c.wr)
			if wc := r.next(r.cq); wc.Status != ib.WCWRFlushErr {
				t.Errorf("a request after the failure ended with %v, want %v", wc.Status, ib.WCWRFlushErr)
			}
			if attr := try(a.Query())(r); attr.State != ib.StateErr {
				t.Errorf("the QP is in %v, want %v", attr.State, ib.StateErr)
			}
		})
	}
}

// newFlushable creates a pair whose second QP permits FLUSH, if the device supports it, and a
// region at that end.
func newFlushable(t *testing.T) *reliable {
	r := newReliable(t)
	access := ib.LocalWrite | ib.RemoteWrite
	if r.Attr().Caps&ib.CapFlushGlobal != 0 {
		access |= ib.FlushGlobal
		r.must(r.b.Modify(ib.QPAttr{Access: ib.RemoteWrite | ib.FlushGlobal}, ib.AttrAccess))
		if got := try(r.b.Query())(r.rig).Access; got != ib.RemoteWrite|ib.FlushGlobal {
			t.Errorf("the QP's rights are %#x, want %#x", got, ib.RemoteWrite|ib.FlushGlobal)
		}
	}
	r.to = make([]byte, 4096)
	r.dst = try(r.pd.RegMR(ib.MRInit{Buf: r.to, Access: access}))(r.rig)
	return r
}

// TestAtomicWrite tests ATOMIC WRITE of 8 bytes, inline or from memory, if kernel and provider
// support it (IBTA A19).
func TestAtomicWrite(t *testing.T) {
	r := newFlushable(t)
	wr := r.remote(ib.WRAtomicWrite, ib.SendWR{})
	wr.RemoteAddr += 8
	if r.Attr().Caps&ib.CapAtomicWrite == 0 {
		if _, err := r.a.PostSend([]ib.SendWR{wr}); !errors.Is(err, ib.ErrNotSupported) {
			t.Errorf("without the capability: %v, want %v", err, ib.ErrNotSupported)
		}
		return
	}
	inline, gathered := wr, wr
	inline.Flags |= ib.SendInline
	inline.Inline = r.from[8:16]
	gathered.SGL = []ib.SGE{sge(r.src, 8, 3), sge(r.src, 11, 5)}
	for _, wr := range []ib.SendWR{inline, gathered} {
		clear(r.to)
		r.send(r.a, wr)
		r.want(1, ib.WCAtomicWrite)
		if !bytes.Equal(r.to[8:16], r.from[8:16]) || r.to[7] != 0 || r.to[16] != 0 {
			t.Errorf("% x was written, want % x in its middle", r.to[:24], r.from[8:16])
		}
	}
	for _, length := range []int{0, 7, 9} {
		wr.SGL = []ib.SGE{sge(r.src, 0, length)}
		if _, err := r.a.PostSend([]ib.SendWR{wr}); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("%d bytes: %v, want %v", length, err, ib.ErrInvalid)
		}
	}
	wr.SGL = []ib.SGE{sge(r.src, 8190, 8)}
	if _, err := r.a.PostSend([]ib.SendWR{wr}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("bytes beyond the region: %v, want %v", err, ib.ErrInvalid)
	}
}

// TestFlush tests FLUSH alone and between other requests, if kernel and provider support it
// (IBTA A19).
func TestFlush(t *testing.T) {
	r := newFlushable(t)
	wr := r.remote(ib.WRFlush, ib.SendWR{Flush: ib.Flush{Length: 4096, Level: ib.FlushGlobally}})
	n, err := r.a.PostSend([]ib.SendWR{wr})
	if errors.Is(err, ib.ErrNotSupported) {
		t.Skip("skipped: needs a kernel and an rdma-core with FLUSH (tests/rxe has 6.12 with that of Debian 13): " +
			err.Error())
	}
	if r.must(err); n != 1 {
		t.Fatal("not posted")
	}
	r.want(1, ib.WCFlush)

	write := r.remote(ib.WRWrite, ib.SendWR{SGL: []ib.SGE{sge(r.src, 0, 8)}})
	wr.Flush.Extent = ib.FlushRegion
	r.send(r.a, write, wr, write, wr)
	for _, op := range []ib.WCOpcode{ib.WCWrite, ib.WCFlush, ib.WCWrite, ib.WCFlush} {
		r.want(1, op)
	}
	wr.Flush.Level = ib.FlushPersistently // the region does not grant it
	r.send(r.a, wr)
	if wc := r.next(r.cq); wc.Err() == nil {
		t.Errorf("a FLUSH without the right completed: %+v, want an error", wc)
	}
}

// TestUnreliable checks that UC supports SEND and WRITE, and no operation that needs a response.
func TestUnreliable(t *testing.T) {
	r := openRig(t)
	a, b := r.newPair(ib.UC)
	mr, buf := r.register(4096)
	copy(buf, "datagrams of a connection")
	r.recv(b, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(mr, 1000, 100)}})
	r.send(a, ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: []ib.SGE{sge(mr, 0, 25)}})
	if wc := r.wantBoth(1, 2); wc.ByteLen != 25 || !bytes.Equal(buf[1000:1025], buf[:25]) {
		t.Errorf("completion %+v, data %q; want 25 bytes, %q", wc, buf[1000:1025], buf[:25])
	}
	r.recv(b, ib.RecvWR{ID: 2})
	r.send(a, ib.SendWR{ID: 1, Opcode: ib.WRWriteImm, Flags: ib.SendSignaled, SGL: []ib.SGE{sge(mr, 0, 25)},
		RemoteAddr: mr.Addr() + 2000, RKey: mr.RKey(), Imm: 3})
	if wc := r.wantBoth(1, 2); wc.Imm != 3 || !bytes.Equal(buf[2000:2025], buf[:25]) {
		t.Errorf("completion %+v, data %q; want immediate 3, %q", wc, buf[2000:2025], buf[:25])
	}
	for _, op := range []ib.WROpcode{ib.WRRead, ib.WRFetchAdd, ib.WRSendInv, ib.WRFlush, ib.WRAtomicWrite} {
		if _, err := a.PostSend([]ib.SendWR{{Opcode: op}}); !errors.Is(err, ib.ErrNotSupported) {
			t.Errorf("%v on UC: %v, want %v", op, err, ib.ErrNotSupported)
		}
	}
}

// TestDatagram checks that a UD QP sends to an address handle, and replies to a received datagram.
func TestDatagram(t *testing.T) {
	r := openRig(t)
	a, b := r.newPair(ib.UD)
	mr, buf := r.register(4096)
	copy(buf, "a datagram")
	to := try(r.pd.CreateAH(r.here()))(r)
	if got := try(to.Query())(r); got != r.here() {
		t.Errorf("the handle says %+v, want %+v", got, r.here())
	}
	wr := ib.SendWR{ID: 1, Opcode: ib.WRSendImm, Flags: ib.SendSignaled, SGL: []ib.SGE{sge(mr, 0, 10)}, Imm: 77,
		AH: to.Num(), RemoteQPN: b.Num(), RemoteQKey: testQKey}
	receive := func(q ib.QP) ib.WC {
		t.Helper()
		clear(buf[1000:2000])
		r.recv(q, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(mr, 1000, 1000)}})
		sender := a
		if q == a {
			sender = b
		}
		r.send(sender, wr)
		wc := r.wantBoth(1, 2)
		if wc.ByteLen != ib.GRHLen+10 || wc.SrcQP != sender.Num() || wc.Flags&ib.WCGRH == 0 ||
			!bytes.Equal(buf[1000+ib.GRHLen:][:10], buf[:10]) {
			t.Errorf("completion %+v, data %q; want %d bytes with a GRH from QP %v, %q", wc, buf[1000+ib.GRHLen:][:10],
				ib.GRHLen+10, sender.Num(), buf[:10])
		}
		return wc
	}
	wc := receive(b)
	if wc.Imm != 77 {
		t.Errorf("immediate %d, want 77", wc.Imm)
	}
	wr.RemoteQKey = 1 << 31 // the QP's own
	receive(b)

	answer := try(ib.AHFromWC(try(r.GIDs(1))(r), &wc, buf[1000:][:ib.GRHLen]))(r)
	if answer.DGID != r.gid.GID || answer.SGIDIndex != r.gid.Index || answer.TrafficClass != 32 {
		t.Errorf("the address that answers is %+v, want %v by index %d, traffic class 32", answer, r.gid.GID,
			r.gid.Index)
	}
	for range maxOldAHs + 10 {
		r.must(to.Modify(answer))
	}
	if got := try(to.Query())(r); got != answer {
		t.Errorf("the modified handle says %+v, want %+v", got, answer)
	}
	wr.RemoteQPN = wc.SrcQP
	receive(a)

	r.must(to.Close())
	if n, err := a.PostSend([]ib.SendWR{wr}); n != 0 || !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("a closed handle: %d accepted, %v; want 0 and %v", n, err, ib.ErrInvalid)
	}
	other := try(r.AllocPD())(r)
	foreign := try(other.CreateAH(r.here()))(r)
	wr.AH = foreign.Num()
	if _, err := a.PostSend([]ib.SendWR{wr}); !errors.Is(err, ib.ErrForeign) {
		t.Errorf("a handle of another PD: %v, want %v", err, ib.ErrForeign)
	}
}

// TestReplacedHandle checks that Modify succeeds when a handle that it has replaced cannot be destroyed, and that later
// calls destroy that.
func TestReplacedHandle(t *testing.T) {
	r := openRig(t)
	a := try(r.pd.CreateAH(r.here()))(r).(*ah)
	for range maxOldAHs {
		r.must(a.Modify(r.here()))
	}
	oldest := a.old[0]
	handle := oldest.handle
	oldest.handle = 1 << 31 // the kernel knows no such handle, and refuses
	want := r.here()
	want.TrafficClass = 64
	if err := a.Modify(want); err != nil || a.attr != want || len(a.old) != maxOldAHs+1 || a.old[0] != oldest {
		t.Errorf("modified to %+v with %d old handles: %v; want %+v, the oldest kept beside %d", a.attr, len(a.old),
			err, want, maxOldAHs)
	}
	oldest.handle = handle
	if err := a.Modify(want); err != nil || len(a.old) != maxOldAHs || a.old[0] == oldest {
		t.Errorf("%d old handles, %v; want %d, without the oldest", len(a.old), err, maxOldAHs)
	}
}

// TestMulticast checks that IPv4 and IPv6 groups can be joined and left, that joining twice is
// the same as once, and that a QP in a group can be closed.
func TestMulticast(t *testing.T) {
	r := openRig(t)
	if r.Attr().Caps&ib.CapMulticast == 0 {
		t.Skip("skipped: needs a device with multicast (rdma_rxe in tests/rxe is one)")
	}
	q := r.newQP(ib.UD)
	r.ready(q, 0)
	v6 := ib.GID{0: 0xFF, 1: 0x0E, 15: 0x77}
	v4 := ib.GID{10: 0xFF, 11: 0xFF, 12: 239, 13: 1, 14: 2, 15: 3}
	for _, group := range []ib.GID{v6, v4} {
		r.must(q.AttachMulticast(group))
		r.must(q.AttachMulticast(group))
		r.must(q.DetachMulticast(group))
		if err := q.DetachMulticast(group); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("left %v twice: %v, want %v", group.Addr(), err, ib.ErrInvalid)
		}
		r.must(q.AttachMulticast(group))
	}
	if err := q.AttachMulticast(r.gid.GID); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("a group that is none: %v, want %v", err, ib.ErrInvalid)
	}
	if err := r.newQP(ib.RC).AttachMulticast(v6); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("an RC QP: %v, want %v", err, ib.ErrInvalid)
	}
	r.must(q.Close())
}

// TestBatches posts more requests than one call of the shim carries, until the queue is full.
// The accepted ones must complete in order, each with its own memory.
func TestBatches(t *testing.T) {
	r := openRig(t)
	const depth = 100
	r.cq = r.newCQ(4 * depth)
	a, b := r.newPair(ib.RC, func(init *ib.QPInit) { init.Cap.MaxSendWR, init.Cap.MaxRecvWR = depth, depth })
	mr, buf := r.register(8 * 1000)
	recvs := make([]ib.RecvWR, 1000)
	sends := make([]ib.SendWR, 1000)
	for i := range sends {
		recvs[i] = ib.RecvWR{ID: uint64(1000 + i), SGL: []ib.SGE{sge(mr, 8*i, 8)}}
		sends[i] = ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline,
			Inline: binary.BigEndian.AppendUint64(nil, uint64(i))}
	}
	posted, err := b.PostRecv(recvs)
	if posted < depth || posted == len(recvs) || !errors.Is(err, ib.ErrQueueFull) {
		t.Fatalf("%d receives accepted: %v; want %d or more, but not all, %v", posted, err, depth, ib.ErrQueueFull)
	}
	r.send(a, sends[:depth]...)
	var sent, received uint64
	for range 2 * depth {
		wc := r.next(r.cq)
		want := &sent
		if wc.Opcode == ib.WCRecv {
			want = &received
			wc.ID -= 1000
			if got := binary.BigEndian.Uint64(buf[8*wc.ID:]); got != wc.ID {
				t.Errorf("message %d carried %d, want %d", wc.ID, got, wc.ID)
			}
		}
		if wc.Err() != nil || wc.ID != *want {
			t.Fatalf("completion %+v, %v; want the %d-th", wc, wc.Err(), *want)
		}
		*want++
	}

	// If a request in the middle is invalid, those before it are posted.
	sends[40].SGL = make([]ib.SGE, 1)
	if n, err := a.PostSend(sends[:60]); n != 40 || !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("%d accepted before a bad one: %v; want 40 and %v", n, err, ib.ErrInvalid)
	}
	if _, err := a.PostRecv(make([]ib.RecvWR, 0)); err != nil {
		t.Errorf("nothing to post: %v", err)
	}
}

// TestExtendedPolling polls an ibv_cq_ex, which timestamps need. It works without timestamps
// on devices that lack them.
func TestExtendedPolling(t *testing.T) {
	r := openRig(t)
	cq := try(r.Device.(*device).createCQ(ib.CQInit{Entries: 16, Channel: r.ch}, true))(r)
	r.cq = cq
	a, b := r.newPair(ib.RC)
	mr, buf := r.register(64)
	for i := range uint32(3) {
		r.recv(b, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(mr, 0, 64)}})
		r.send(a, ib.SendWR{ID: 1, Opcode: ib.WRSendImm, Flags: ib.SendSignaled | ib.SendInline, Inline: []byte("abc"),
			Imm: i})
		if wc := r.wantBoth(1, 2); wc.Imm != i || wc.ByteLen != 3 || wc.QPN != b.Num() || wc.Opcode != ib.WCRecv ||
			string(buf[:3]) != "abc" {
			t.Errorf("completion %+v, want %v of 3 bytes, immediate %d, at QP %v", wc, ib.WCRecv, i, b.Num())
		}
	}
	r.must(a.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	r.send(a, ib.SendWR{ID: 3, Opcode: ib.WRSend}, ib.SendWR{ID: 4, Opcode: ib.WRSend})
	for id := uint64(3); id <= 4; id++ {
		if wc := r.next(cq); wc.ID != id || wc.Status != ib.WCWRFlushErr {
			t.Errorf("completion %+v, want request %d flushed", wc, id)
		}
	}
	if n := try(cq.Poll(make([]ib.WC, 4)))(r); n != 0 {
		t.Errorf("%d completions more, want none", n)
	}
}
