package track

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

var (
	hostA = ib.GIDFromAddr(netip.MustParseAddr("10.0.0.1"))
	hostB = ib.GIDFromAddr(netip.MustParseAddr("10.0.0.2"))
)

// A's queue pair is 0xA, B's 0xB, and PSNs of A's requests begin at 100, those of
// B's at 9000.
const (
	qpA ib.QPN = 0xA
	qpB ib.QPN = 0xB
)

// step is a packet of a story, and what the tracker shall say of it.
type step struct {
	ms   float64 // when
	from byte    // 'A' or 'B'
	p    wire.Packet
	want string
}

// packet builders; n is the length of the payload.

func req(op wire.Opcode, psn ib.PSN, n int) wire.Packet {
	return wire.Packet{BTH: wire.BTH{Opcode: op, PSN: psn}, Payload: make([]byte, n)}
}

func rdma(op wire.Opcode, psn ib.PSN, length uint32, n int) wire.Packet {
	p := req(op, psn, n)
	p.RETH.Len = length
	return p
}

func resp(op wire.Opcode, psn ib.PSN, n int) wire.Packet {
	p := req(op, psn, n)
	p.AETH = wire.AETH{Syndrome: wire.AckNoCredits}
	return p
}

func ack(psn ib.PSN) wire.Packet { return resp(wire.RCAck, psn, 0) }

func nak(psn ib.PSN, s wire.Syndrome) wire.Packet {
	p := ack(psn)
	p.AETH.Syndrome = s
	return p
}

// stories are conversations of one connection, packet numbers from 1.
var stories = []struct {
	name  string
	steps []step
}{
	{"messages of several packets, both ways", []step{
		{0, 'A', req(wire.RCSendFirst, 100, 256), "SEND 1, bytes 0..255"},
		{0, 'A', req(wire.RCSendMiddle, 101, 256), "SEND 1, bytes 256..511"},
		{0, 'A', req(wire.RCSendLast, 102, 8), "SEND 1, bytes 512..519 of 520"},
		{0, 'A', req(wire.RCSendOnly, 103, 5), "SEND 2, all 5 B"},
		{1, 'B', ack(103), "acknowledges #1..#4, completes SEND 1..2"},
		{1, 'B', rdma(wire.RCWriteFirst, 9000, 300, 256), "WRITE 1, bytes 0..255 of 300"},
		{1, 'B', rdma(wire.RCWriteLast, 9001, 0, 44), "WRITE 1, bytes 256..299 of 300"},
		{1, 'B', req(wire.RCSendOnly, 9002, 0), "SEND 1, all 0 B"},
		{2, 'A', ack(9001), "acknowledges #6..#7, completes WRITE 1"},
		{2, 'A', ack(9002), "acknowledges #8, completes SEND 1"},
	}},
	{"a NAK for a lost packet, go back", []step{
		{0, 'A', req(wire.RCSendOnly, 100, 1), "SEND 1, all 1 B"},
		{0, 'A', req(wire.RCSendOnly, 101, 1), "SEND 2, all 1 B"},
		{0, 'A', req(wire.RCSendOnly, 102, 1), "SEND 3, all 1 B"},
		{1, 'B', nak(101, wire.NAKSequence),
			"NAK: expected #2, want it again; acknowledges #1, completes SEND 1; so #2 was lost after its capture"},
		{2, 'A', req(wire.RCSendOnly, 101, 1), "AGAIN: #2, after NAK #4; SEND 2, all 1 B"},
		{2, 'A', req(wire.RCSendOnly, 102, 1), "AGAIN: #3, going back with #5; SEND 3, all 1 B"},
		{2, 'A', req(wire.RCSendOnly, 103, 1), "SEND 4, all 1 B"},
		{3, 'B', ack(103), "acknowledges #5..#7, completes SEND 2..4"},
	}},
	{"a lost acknowledge, the timer", []step{
		{0, 'A', req(wire.RCSendOnly, 100, 1), "SEND 1, all 1 B"},
		{1, 'B', ack(100), "acknowledges #1, completes SEND 1"},
		{68, 'A', req(wire.RCSendOnly, 100, 1),
			"AGAIN: #1, timeout 68.0 ms after #1; SEND 1, all 1 B; so #2 was late, or lost after its capture"},
		{69, 'B', ack(100), "acknowledges nothing new"},
	}},
	{"the timer runs out again while going back", []step{
		{0, 'A', req(wire.RCSendOnly, 100, 1), "SEND 1, all 1 B"},
		{0, 'A', req(wire.RCSendOnly, 101, 1), "SEND 2, all 1 B"},
		{68, 'A', req(wire.RCSendOnly, 100, 1), "AGAIN: #1, timeout 68.0 ms after #1; SEND 1, all 1 B"},
		{136, 'A', req(wire.RCSendOnly, 101, 1), "AGAIN: #2, timeout 136 ms after #2; SEND 2, all 1 B"},
	}},
	{"receiver not ready", []step{
		{0, 'A', req(wire.RCSendOnly, 100, 1), "SEND 1, all 1 B"},
		{1, 'B', nak(100, wire.RNRNak(12)), "RNR: no receive posted for #1, wait 640 us"},
		{2, 'A', req(wire.RCSendOnly, 100, 1), "AGAIN: #1, 1.00 ms after RNR NAK #2; SEND 1, all 1 B"},
		{3, 'B', ack(100), "acknowledges #3, completes SEND 1"},
	}},
	{"requests lost before the capture", []step{
		{0, 'A', req(wire.RCSendFirst, 100, 256), "SEND 1, bytes 0..255"},
		{0, 'A', req(wire.RCSendMiddle, 103, 256), "GAP: psn 101..102 missing; SEND 1, bytes 768..1023"},
		{1, 'B', nak(101, wire.NAKSequence), "NAK: expected psn 101, want it again; acknowledges #1"},
		{2, 'A', req(wire.RCSendMiddle, 101, 256), "LATE; SEND 1, bytes 256..511"},
		{2, 'A', req(wire.RCSendMiddle, 102, 256), "LATE; SEND 1, bytes 512..767"},
		{2, 'A', req(wire.RCSendMiddle, 103, 256), "AGAIN: #2, going back with #4; SEND 1, bytes 768..1023"},
		{2, 'A', req(wire.RCSendLast, 104, 1), "SEND 1, bytes 1024..1024 of 1025"},
		{3, 'B', ack(104), "acknowledges #4..#7, completes SEND 1"},
	}},
	{"READ before the path MTU is known", []step{
		{0, 'A', rdma(wire.RCReadRequest, 100, 1300, 0), "READ 1, all 1300 B"},
		{0, 'A', rdma(wire.RCReadRequest, 103, 512, 0), "READ 2, all 512 B"}, // so it is 512
		{1, 'B', resp(wire.RCReadRespFirst, 100, 512), "READ 1 (#1), bytes 0..511 of 1300"},
		{1, 'B', resp(wire.RCReadRespMiddle, 101, 512), "READ 1 (#1), bytes 512..1023 of 1300"},
		{1, 'B', resp(wire.RCReadRespLast, 102, 276), "READ 1 (#1), bytes 1024..1299 of 1300"},
		{1, 'B', resp(wire.RCReadRespOnly, 103, 512), "READ 2 (#2), all 512 B"},
		{2, 'A', rdma(wire.RCReadRequest, 104, 1024, 0), "READ 3, all 1024 B"},
		{2, 'A', req(wire.RCSendOnly, 106, 1), "SEND 1, all 1 B"},
	}},
	{"a READ is issued again from where a response was lost", []step{
		{0, 'A', rdma(wire.RCReadRequest, 100, 1000, 0), "READ 1, all 1000 B"},
		{1, 'B', resp(wire.RCReadRespFirst, 100, 256), "READ 1 (#1), bytes 0..255 of 1000"},
		{1, 'B', resp(wire.RCReadRespMiddle, 101, 256), "READ 1 (#1), bytes 256..511 of 1000"},
		{1, 'B', resp(wire.RCReadRespMiddle, 102, 256), "READ 1 (#1), bytes 512..767 of 1000"},
		{2, 'A', rdma(wire.RCReadRequest, 101, 744, 0),
			"AGAIN: #1, implied NAK, response psn 101 is missing; READ 1, bytes 256..999 of 1000; so #3 was lost " +
				"after its capture"},
		{3, 'B', resp(wire.RCReadRespFirst, 101, 256), "AGAIN: #3; READ 1, bytes 256..511 of 1000"},
		{3, 'B', resp(wire.RCReadRespMiddle, 102, 256), "AGAIN: #4; READ 1, bytes 512..767 of 1000"},
		{3, 'B', resp(wire.RCReadRespLast, 103, 232), "READ 1 (#5), bytes 768..999 of 1000"},
	}},
	{"responses lost before the capture", []step{
		{0, 'A', rdma(wire.RCReadRequest, 100, 1000, 0), "READ 1, all 1000 B"},
		{0, 'A', rdma(wire.RCReadRequest, 104, 200, 0), "READ 2, all 200 B"},
		{1, 'B', resp(wire.RCReadRespFirst, 100, 256), "READ 1 (#1), bytes 0..255 of 1000"},
		{1, 'B', resp(wire.RCReadRespMiddle, 102, 256), "GAP: psn 101 missing; READ 1 (#1), bytes 512..767 of 1000"},
		{1, 'B', resp(wire.RCReadRespOnly, 104, 200), "GAP: psn 103 missing; READ 2 (#2), all 200 B"},
		{2, 'A', rdma(wire.RCReadRequest, 101, 744, 0),
			"AGAIN: #1, implied NAK, response psn 101 is missing; READ 1, bytes 256..999 of 1000"},
		{3, 'B', resp(wire.RCReadRespLast, 103, 232), "GAP: psn 101 missing; READ 1 (#6), bytes 768..999 of 1000"},
	}},
	{"an acknowledge instead of responses", []step{
		{0, 'A', rdma(wire.RCReadRequest, 100, 200, 0), "READ 1, all 200 B"},
		{0, 'A', req(wire.RCSendOnly, 101, 1), "SEND 1, all 1 B"},
		{1, 'B', ack(101), "GAP: psn 100 missing; acknowledges #2, completes SEND 1"},
	}},
	{"a response acknowledges what was before it", []step{
		{0, 'A', req(wire.RCSendOnly, 100, 1), "SEND 1, all 1 B"},
		{0, 'A', req(wire.RCFetchAdd, 101, 0), "FetchAdd 1"},
		{0, 'A', req(wire.RCCompareSwap, 102, 0), "CmpSwap 1"},
		{0, 'A', rdma(wire.RCFlush, 103, 10, 0), "FLUSH 1"},
		{1, 'B', resp(wire.RCAtomicAck, 101, 0), "FetchAdd 1 (#2), was 0x0; acknowledges #1, completes SEND 1"},
		{1, 'B', resp(wire.RCAtomicAck, 102, 0), "CmpSwap 1 (#3), was 0x0"},
		{1, 'B', resp(wire.RCReadRespOnly, 103, 0), "FLUSH 1 (#4)"},
	}},
	{"a refusal ends the connection", []step{
		{0, 'A', rdma(wire.RCWriteOnly, 100, 4, 4), "WRITE 1, all 4 B"},
		{1, 'B', nak(100, wire.NAKRemoteAccess),
			"NAK: #1 refused, remote access error; the connection is over; WRITE 1"},
	}},
	{"PSNs wrap around", []step{
		{0, 'A', req(wire.RCSendFirst, ib.PSNMask, 256), "SEND 1, bytes 0..255"},
		{0, 'A', req(wire.RCSendLast, 0, 1), "SEND 1, bytes 256..256 of 257"},
		{1, 'B', ack(0), "acknowledges #1..#2, completes SEND 1"},
		{2, 'A', req(wire.RCSendLast, 0, 1),
			"AGAIN: #2, a probe 2.00 ms after #2; SEND 1, bytes 256..256 of 257; " +
				"so #3 was late, or lost after its capture"},
	}},
	{"the capture begins in the middle", []step{
		{0, 'B', ack(99), "answers what the capture does not show"},
		{0, 'A', req(wire.RCSendMiddle, 100, 256), "SEND 1, begun before the capture"},
		{0, 'A', req(wire.RCSendLast, 101, 1), "SEND 1, begun before the capture"},
		{1, 'B', ack(101), "acknowledges #2..#3, completes SEND 1"},
		{1, 'B', ack(102), "acknowledges what the capture does not show"},
		{1, 'B', resp(wire.RCReadRespOnly, 103, 0), "answers what the capture does not show"},
	}},
	{"another connection on the same queue pairs", []step{
		{0, 'A', req(wire.RCSendOnly, 100, 1), "SEND 1, all 1 B"},
		{1, 'B', ack(100), "acknowledges #1, completes SEND 1"},
		{2, 'A', req(wire.RCSendOnly, 5000000, 1), "a new connection: its PSNs start anew; SEND 2, all 1 B"},
		{3, 'B', ack(5000000), "acknowledges #3, completes SEND 2"},
	}},
	{"PSNs that go back too far, in the middle of a message", []step{
		{0, 'A', req(wire.RCSendFirst, 5000000, 256), "SEND 1, bytes 0..255"},
		{0, 'A', req(wire.RCSendMiddle, 100, 256),
			"a new connection: its PSNs start anew; SEND 2, begun before the capture"},
	}},
	{"UC: nothing is answered or sent again", []step{
		{0, 'A', req(wire.UCSendFirst, 100, 256), "SEND 1, bytes 0..255"},
		{0, 'A', req(wire.UCSendLast, 102, 1), "GAP: psn 101 missing; SEND 1, bytes 512..512 of 513"},
		{0, 'A', req(wire.UCSendMiddle, 101, 256), "LATE; SEND 1, bytes 256..511 of 513"},
		{0, 'A', rdma(wire.UCWriteOnly, 103, 1, 1), "WRITE 1, all 1 B"},
	}},
	{"a READ with more responses than a loss can skip", []step{
		{0, 'A', req(wire.RCSendFirst, 100, 256), "SEND 1, bytes 0..255"},
		{0, 'A', req(wire.RCSendLast, 101, 1), "SEND 1, bytes 256..256 of 257"},
		{0, 'A', rdma(wire.RCReadRequest, 102, 1<<28, 0), "READ 1, all 268435456 B"},
		{0, 'A', req(wire.RCSendOnly, 102+(1<<20), 1), "SEND 2, all 1 B"},
		{1, 'B', resp(wire.RCReadRespFirst, 102, 256),
			"READ 1 (#3), bytes 0..255 of 268435456; acknowledges #1..#2, completes SEND 1"},
		{1, 'B', resp(wire.RCReadRespLast, 101+(1<<20), 256),
			"GAP: psn 103..1048676 missing; READ 1 (#3), bytes 268435200..268435455 of 268435456"},
		{1, 'B', ack(102 + (1 << 20)), "acknowledges #4, completes SEND 2"},
	}},
	{"congestion", []step{
		{0, 'A', req(wire.RCSendOnly, 100, 1), "SEND 1, all 1 B"},
		{0, 'B', req(wire.CNP, 0, 16), "congestion on the way to this queue pair's peer: send slower"},
	}},
}

func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			var tr Tracker
			for i, st := range s.steps {
				o := wire.Outer{Src: hostA, Dst: hostB, SrcPort: 50000}
				st.p.DestQP = qpB
				if st.from == 'B' {
					o.Src, o.Dst, st.p.DestQP = hostB, hostA, qpA
				}
				e := tr.Add(i+1, ib.Instant(st.ms*1e6), &o, &st.p)
				if got := e.String(); got != st.want {
					t.Errorf("#%d %v psn %d:\n got %q\nwant %q", i+1, st.p.Opcode, st.p.PSN, got, st.want)
				}
			}
		})
	}
}

// TestNote: the notes of a ladder, which has message and number in the packet's label.
func TestNote(t *testing.T) {
	var tr Tracker
	for i, c := range []struct {
		from byte
		p    wire.Packet
		want string
	}{
		{'A', req(wire.RCSendOnly, 100, 1), ""},
		{'A', req(wire.RCSendOnly, 101, 1), ""},
		{'A', req(wire.RCSendOnly, 102, 1), ""},
		{'B', nak(101, wire.NAKSequence), ""},
		{'A', req(wire.RCSendOnly, 101, 1), "again: after NAK #4"},
		{'A', req(wire.RCSendOnly, 102, 1), "again"},
		{'B', ack(102), "completes SEND 2..3"},
		{'B', ack(101), "acknowledges nothing new"},
		{'A', rdma(wire.RCReadRequest, 103, 4, 0), ""},
		{'B', resp(wire.RCReadRespOnly, 103, 4), ""},
		{'B', resp(wire.RCReadRespOnly, 103, 4), "again"},
		{'A', req(wire.RCSendOnly, 105, 1), "GAP: psn 104 missing; SEND 4, all 1 B"},
		{'B', nak(105, wire.RNRNak(12)), "RNR: no receive posted for #12, wait 640 us"},
		{'A', req(wire.RCSendOnly, 5000000, 1), "a new connection: its PSNs start anew; SEND 5, all 1 B"},
		{'B', req(wire.CNP, 0, 16), "congestion on the way to this queue pair's peer: send slower"},
	} {
		src, dst, qp := hostA, hostB, qpB
		if c.from == 'B' {
			src, dst, qp = hostB, hostA, qpA
		}
		if e := send(&tr, i+1, src, dst, qp, 1, c.p); e.Note() != c.want {
			t.Errorf("#%d %v psn %d: note %q, want %q", i+1, c.p.Opcode, c.p.PSN, e.Note(), c.want)
		}
	}
}

// send feeds one packet from an address to a queue pair.
func send(tr *Tracker, num int, src, dst ib.GID, qp ib.QPN, port uint16, p wire.Packet) Effect {
	p.DestQP = qp
	return tr.Add(num, ib.Instant(num)*1000, &wire.Outer{Src: src, Dst: dst, SrcPort: port}, &p)
}

// TestPairing: responses find the flow that they answer among several.
func TestPairing(t *testing.T) {
	var tr Tracker
	// Three connections A -> B: to 0x20, 0x21, 0x22. The first two use the same
	// PSNs; only the source port tells them apart.
	send(&tr, 1, hostA, hostB, 0x20, 50020, req(wire.RCSendOnly, 100, 1))
	send(&tr, 2, hostA, hostB, 0x21, 50021, req(wire.RCSendOnly, 100, 1))
	send(&tr, 3, hostA, hostB, 0x22, 50022, req(wire.RCSendOnly, 7000, 1))
	for _, c := range []struct {
		qp, want ib.QPN
		port     uint16
		psn      ib.PSN
	}{{0x12, 0x22, 1, 7000}, {0x11, 0x21, 50021, 100}, {0x10, 0x20, 50020, 100}} {
		e := send(&tr, 10, hostB, hostA, c.qp, c.port, ack(c.psn))
		if e.Kind != Ack || e.Flow.Peer == nil || e.Flow.Peer.Dst.QPN != c.want {
			t.Errorf("ACK to %#x: %v, paired with %+v; want %#x", c.qp, e.Kind, e.Flow.Peer, c.want)
		}
	}
	if n := len(tr.Conns()); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
	for _, c := range tr.Conns() {
		if src, ok := c.Flows[0].Source(); !ok || src.QPN != c.Flows[0].Dst.QPN-0x10 {
			t.Errorf("flow to %#x comes from %#x, %v; want %#x", c.Flows[0].Dst.QPN, src.QPN, ok,
				c.Flows[0].Dst.QPN-0x10)
		}
	}
}

// TestPairingByCM: REQ and REP name the queue pairs before any data flows.
func TestPairingByCM(t *testing.T) {
	mad := func(class uint8, attr wire.CMAttr, m interface{ Put(*[wire.MADLen]byte) }) wire.Packet {
		p := req(wire.UDSendOnly, 0, wire.MADLen)
		p.DETH.SrcQP = ib.QPNGSI
		b := (*[wire.MADLen]byte)(p.Payload)
		(&wire.MADHeader{Class: class, Attr: attr}).Put(b)
		m.Put(b)
		return p
	}
	for _, first := range []byte{'A', 'B'} {
		var tr Tracker
		send(&tr, 1, hostA, hostB, 1, 55410, mad(wire.MADClassCM, wire.AttrREQ, &wire.REQ{LocalID: 7, QPN: qpA}))
		send(&tr, 2, hostB, hostA, 1, 55410, mad(wire.MADClassCM, wire.AttrREP,
			&wire.REP{LocalID: 8, RemoteID: 7, QPN: qpB}))
		// No reply: another management class.
		send(&tr, 2, hostB, hostA, 1, 55410, mad(wire.MADClassCM+1, wire.AttrREP,
			&wire.REP{LocalID: 9, RemoteID: 7, QPN: qpB + 1}))
		for i, from := range []byte{first, 'A' + 'B' - first} {
			if from == 'A' {
				send(&tr, 3+i, hostA, hostB, qpB, 1, req(wire.RCSendOnly, 100, 1))
			} else {
				send(&tr, 3+i, hostB, hostA, qpA, 2, req(wire.RCSendOnly, 9000, 1))
			}
		}
		// The datagrams are a pair of their own.
		c := tr.Conns()
		if len(c) != 2 || len(c[0].Flows) != 2 || len(c[1].Flows) != 2 || !c[1].Has(qpA) || !c[1].Has(qpB) ||
			c[1].Has(1) {
			t.Errorf("data from %c first: connections %+v, want 2 of 2 flows", first, c)
		}
	}
}

// TestStats: what the summary is made of.
func TestStats(t *testing.T) {
	var tr Tracker
	send(&tr, 1, hostA, hostB, qpB, 1, req(wire.RCSendFirst, 100, 256))
	send(&tr, 2, hostA, hostB, qpB, 1, req(wire.RCSendLast, 101, 4))
	send(&tr, 3, hostA, hostB, qpB, 1, req(wire.RCSendLast, 101, 4))
	send(&tr, 4, hostA, hostB, qpB, 1, rdma(wire.RCReadRequest, 102, 10, 0))
	send(&tr, 5, hostB, hostA, qpA, 1, ack(101))
	f := tr.Conns()[0].Flows[0]
	if n := f.Outstanding(); n != 1 {
		t.Errorf("%d outstanding, want the READ", n)
	}
	send(&tr, 6, hostB, hostA, qpA, 1, resp(wire.RCReadRespOnly, 102, 10))
	s := f.Stats
	want := Stats{Packets: 4, Bytes: 264, First: 1000, Last: 4000, Requests: 3, Completed: 2, Payload: 270}
	want.Messages[Send], want.Messages[Read], want.Again[WhyProbe] = 1, 1, 1
	if s != want {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if s.Retransmissions() != 1 || f.Outstanding() != 0 || f.Conn.MTU() != 256 {
		t.Errorf("%d again, %d outstanding, MTU %d; want 1, 0 and 256", s.Retransmissions(), f.Outstanding(),
			f.Conn.MTU())
	}
}

// TestBounds: a long capture costs no more memory than a short one, and neither do
// many flows.
func TestBounds(t *testing.T) {
	var tr Tracker
	for i := range 10 * historyKeep {
		send(&tr, i, hostA, hostB, qpB, 1, req(wire.RCSendOnly, ib.PSN(i), 1))
	}
	f := tr.Conns()[0].Flows[0]
	if n := len(f.req.sent.entries); n > 2*historyKeep {
		t.Errorf("history has %d entries, want at most %d", n, 2*historyKeep)
	}
	if e := send(&tr, 1, hostA, hostB, qpB, 1, req(wire.RCSendOnly, 9*historyKeep, 1)); e.Kind != Retransmission {
		t.Errorf("a packet of the history: %v, want a retransmission", e.Kind)
	}
	for i := range 2 * maxFlows {
		send(&tr, i, hostA, hostB, ib.QPN(i+100), 1, req(wire.RCSendOnly, 1, 1))
	}
	if len(tr.flows) != maxFlows || tr.Untracked != maxFlows+1 {
		t.Errorf("%d flows, %d packets untracked; want %d, %d", len(tr.flows), tr.Untracked, maxFlows, maxFlows+1)
	}
}

// TestLongWindow: the order of PSNs holds although READs move them on by more than
// half the number space.
func TestLongWindow(t *testing.T) {
	var tr Tracker
	send(&tr, 1, hostA, hostB, qpB, 1, req(wire.RCSendFirst, 0, 256))
	psn := ib.PSN(1)
	for i := range 40 {
		if e := send(&tr, 2+i, hostA, hostB, qpB, 1, rdma(wire.RCReadRequest, psn, 1<<28, 0)); e.Kind != New {
			t.Fatalf("READ %d at psn %d: %v, want it new", i+1, psn, e.Kind)
		}
		psn = psn.Add(1 << 20)
	}
	sorted(t, &tr.Conns()[0].Flows[0].req.sent)
	if e := send(&tr, 99, hostB, hostA, qpA, 1, resp(wire.RCReadRespFirst, psn.Add(-1<<20),
		256)); e.Kind != ResponseGap || e.Msg.N != 40 {
		t.Errorf("response to the last READ: %v, want %v of message 40", &e, ResponseGap)
	}
}

// FuzzTracker: whatever the packets, no panic, and windows stay sorted.
func FuzzTracker(f *testing.F) {
	f.Add([]byte{0x0C, 0, 1, 0x8D, 0, 0, 0x8F, 1, 0})
	f.Add([]byte{0x00, 0, 0, 0x01, 1, 0, 0x91, 0, 3, 0x02, 2, 0})
	// READs of more responses than there are PSNs.
	f.Add([]byte("\fyyyyyy\xd7\xf2\x03\xe8\x01!\x01\x01\x01\x01\xc2" + strings.Repeat("\x01", 20) + "\x188"))
	f.Fuzz(func(t *testing.T, script []byte) {
		var tr Tracker
		for i := 0; i+2 < len(script); i += 3 {
			op := wire.Opcode(script[i] & 0x7F)
			if !op.Valid() {
				continue
			}
			p := req(op, 16777210, int(script[i+2])&0x3)
			p.PSN = p.PSN.Add(int(int8(script[i+1])))
			if script[i+2]&4 != 0 {
				p.PSN = p.PSN.Add(int(script[i+1]) << 15)
			}
			if script[i+2]&8 != 0 && op.HasPayload() {
				p.Payload = make([]byte, 256<<(script[i+2]>>6))
			}
			p.RETH.Len = uint32(script[i+2]) << (script[i+1] & 31)
			p.AETH.Syndrome = wire.Syndrome(script[i+2])
			src, dst, qp := hostA, hostB, qpB
			if script[i]&0x80 != 0 {
				src, dst, qp = hostB, hostA, qpA
			}
			e := send(&tr, i/3+1, src, dst, qp, 1, p)
			_ = e.String()
		}
		for _, c := range tr.Conns() {
			for _, fl := range c.Flows {
				fl.Outstanding()
				sorted(t, &fl.req.sent)
				sorted(t, &fl.req.resp)
			}
		}
	})
}

func sorted(t *testing.T, w *history) {
	for i := 1; i < len(w.entries); i++ {
		if a, b := w.entries[i-1].psn, w.entries[i].psn; !a.Before(b) {
			t.Fatalf("history out of order: psn %d before %d", a, b)
		}
	}
}
