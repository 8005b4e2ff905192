package qp

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestRecordSize: a record has 32 bytes, and a recorder is a size class of the allocator.
func TestRecordSize(t *testing.T) {
	if got := unsafe.Sizeof(Record{}); got != 32 {
		t.Errorf("got a record of %d bytes, want 32", got)
	}
	if got := unsafe.Sizeof(Ring{}); got != 8192 {
		t.Errorf("got a ring of %d bytes, want 8192", got)
	}
}

// TestRecordHeaders: the headers of a packet of any service and operation come out of its record as they went in.
func TestRecordHeaders(t *testing.T) {
	known := 0
	for op := range 256 {
		if wire.Opcode(op).HeaderLen() == 0 {
			continue
		}
		known++
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.Opcode(op), PKey: ib.DefaultPKey, PSN: 0xABCDEF, AckReq: op%2 == 0,
			SE: op%3 == 0, PadCnt: 3, DestQP: 0x123456}, XRCSRQ: 0x654321,
			DETH:   wire.DETH{QKey: 0x80010203, SrcQP: 0x777},
			FETH:   wire.FETH{Placement: 3, Selectivity: 1},
			RETH:   wire.RETH{VA: 0x1122334455667788, RKey: 0x99AABBCC, Len: 0x7FFFFFFF},
			Atomic: wire.AtomicETH{VA: 0x8877665544332211, RKey: 0xDDEEFF00, Swap: 1<<63 + 5, Compare: 1<<63 + 9},
			AETH:   wire.AETH{Syndrome: wire.NAKRemoteAccess, MSN: 0xFEDCBA}, AtomicAck: 1<<64 - 2, Imm: 0xCAFEBABE,
			InvKey: 0xFEEDF00D}
		const payload = 1021
		if wire.AlikeLen(p.Opcode) > 0 { // those are whole messages or have no RETH
			p.RETH.Len = payload
		}
		var recs [2]Record
		if recs[0].setPacket(RecordSent, 5, &p, payload, 0) {
			recs[1].setHeaders(&p)
		}
		got := recs[0].Packet(&recs[1])
		if p.Opcode.Service() != wire.UD {
			got.DestQP = p.DestQP
		}
		if a, b := got.AppendHeaders(nil), p.AppendHeaders(nil); !bytes.Equal(a, b) {
			t.Errorf("%v: got headers %x, want %x", p.Opcode, a, b)
		}
	}
	if known < 50 {
		t.Errorf("got %d opcodes, want more", known)
	}
}

// kindsOf returns the kinds of a QP's records.
func kindsOf(q *QP) (kinds []RecordKind) {
	for _, r := range q.Recorder().Records() {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

// TestRecorderWraps: a recorder keeps the latest records, oldest first.
func TestRecorderWraps(t *testing.T) {
	a, b := connected(t)
	x := &exchange{t: t, a: a, b: b}
	for i := range 200 {
		a.post(&ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: []ib.SGE{a.sge(0, 8)}, RemoteAddr: memAddr,
			RKey: b.region.Key(), Flags: ib.SendSignaled})
		x.run(ib.Instant(i))
	}
	list := a.q.Recorder().Records()
	if len(list) != recordsMost {
		t.Fatalf("got %d records, want %d", len(list), recordsMost)
	}
	want := []RecordKind{RecordPosted, RecordSent, RecordReceived, RecordCompleted}
	for i := range list {
		r := &list[len(list)-1-i]
		if at, kind := ib.Instant(199-i/4), want[3-i%4]; r.At != at || r.Kind != kind {
			t.Fatalf("record %d from the end: got kind %d at %d, want %d at %d", i, r.Kind, r.At, kind, at)
		}
		switch {
		case r.Kind == RecordSent && r.PSN() != ourPSN.Add(199-i/4):
			t.Errorf("got psn %d, want %d", r.PSN(), ourPSN.Add(199-i/4))
		case r.Kind == RecordPosted && r.Addr != uint64(199-i/4):
			t.Errorf("got ID %d, want %d", r.Addr, 199-i/4)
		}
	}
}

// TestRecorderAtTheEnd: what a peer sends to a QP in ERR, and the requests that are flushed, do not overwrite what came
// before.
func TestRecorderAtTheEnd(t *testing.T) {
	a, _ := connected(t)
	for range 100 {
		a.postRecv(&ib.RecvWR{SGL: []ib.SGE{a.sge(0, 8)}})
	}
	a.handle(1, request(wire.RCSendOnly, peerPSN, make([]byte, 9)))
	for range 1000 {
		a.handle(2, request(wire.RCSendOnly, peerPSN, nil))
		a.post(&ib.SendWR{Opcode: ib.WRSend})
		a.postRecv(&ib.RecvWR{})
		var wcs [8]ib.WC
		for a.sendCQ.Poll(wcs[:])+a.recvCQ.Poll(wcs[:]) > 0 {
		}
	}
	want := []RecordKind{RecordState, RecordReceived, RecordRefused, RecordCompleted, RecordFailed, RecordState,
		RecordCompleted, RecordCompleted}
	got := kindsOf(a.q)
	if len(got) != len(want) {
		t.Fatalf("got kinds %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got kinds %v, want %v", got, want)
		}
	}
	list := a.q.Recorder().Records()
	if v := list[1].Verdict(); v != Refused {
		t.Errorf("got verdict %d of the packet, want %d", v, Refused)
	}
	if recvs, sends := list[6].Length, list[7].Length; recvs != 1099 || sends != 1000 {
		t.Errorf("got %d flushed receives and %d requests in a record each, want 1099 and 1000", recvs, sends)
	}
}

// TestRecorders: with more QPs than recorders, one that was idle for a second loses its own; one that was not keeps it.
func TestRecorders(t *testing.T) {
	pool := NewRecorders(2)
	limits := &Limits{GIDs: 1, MTU: ib.MTU4096, MaxRdAtomic: 16, Recorders: pool}
	var all []*host
	use := func(h *host, now ib.Instant) { h.handle(now, request(wire.RCWriteOnly, peerPSN, nil)) }
	for range 4 {
		h := newHost(t, ourNum)
		h.q.cfg.Limits = limits
		h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
		if h.q.Recorder() != nil {
			t.Error("a QP has a recorder before its first packet")
		}
		all = append(all, h)
	}
	check := func(when string, want ...bool) {
		t.Helper()
		for i, h := range all {
			if got := h.q.Recorder() != nil; got != want[i] {
				t.Errorf("%s: got recorder %v of QP %d, want %v", when, got, i, want[i])
			}
		}
	}
	const second = recorderIdle
	use(all[0], 0)
	use(all[1], second/2)
	use(all[2], second-1)
	check("both are in use", true, true, false, false)
	use(all[2], second-1+recorderRetry)
	check("the first is idle", false, true, true, false)
	all[1].q.ReleaseRecorder()
	use(all[3], second+recorderRetry)
	check("one was released", false, false, true, true)
	all[2].must(all[2].modify(ib.StateReset, ib.QPAttr{}, 0))
	all[3].must(all[3].modify(ib.StateReset, ib.QPAttr{}, 0))
	check("both were reset", false, false, false, false)
	if len(pool.holders) != 0 {
		t.Errorf("got %d holders, want none", len(pool.holders))
	}
}

// BenchmarkRecorder is the cost of the recorder: WRITEs of 8 bytes between two QPs, each with its ACK and completion.
// Four records are written for each at the requester, two at the responder.
func BenchmarkRecorder(b *testing.B) {
	for _, c := range []struct {
		name string
		most int
	}{{"with", 1}, {"without", 0}} {
		b.Run(c.name, func(b *testing.B) {
			x := &exchange{t: b}
			x.a, x.b = connected(b)
			x.a.q.cfg.Limits.Recorders, x.b.q.cfg.Limits.Recorders = NewRecorders(c.most), NewRecorders(c.most)
			wr := ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{x.a.sge(0, 8)}, RemoteAddr: memAddr,
				RKey: x.b.region.Key(), Flags: ib.SendSignaled}
			b.ReportAllocs()
			packets := 0
			for i := range b.N {
				x.a.post(&wr)
				packets += x.run(ib.Instant(i))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
		})
	}
}

// BenchmarkRecord is the cost of one record of a packet.
func BenchmarkRecord(b *testing.B) {
	a, _ := connected(b)
	tx := []TxPacket{{Packet: request(wire.RCWriteOnly, ourPSN, nil), Len: 1024}}
	b.ReportAllocs()
	for i := range b.N {
		a.q.recordSent(ib.Instant(i), tx)
	}
}
