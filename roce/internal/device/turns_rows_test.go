package device_test

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// attack is a row.
type attack struct {
	name        string
	begin       func(x *turns)
	most, least work
	late        int // how many turns later than others this process's own neighbour may send
}

// attacks are packets, requests and doorbells that make much work, one a row. most replaces bounds of turnMost, least
// is what 200 turns do together at least, so that the row shows something.
var attacks = []attack{
	{name: "duplicate READs of 64 MiB on one QP", begin: func(x *turns) { x.repeatReads(1) },
		least: work{bytes: 40 << 20}},
	{name: "duplicate READs of 64 MiB on twenty QPs of one peer", begin: func(x *turns) { x.repeatReads(20) },
		least: work{bytes: 40 << 20}},
	{name: "duplicate atomics", begin: func(x *turns) {
		q := x.attacked(1, ib.RC, 1)[0].Num()
		add := func(i int) wire.Packet {
			return wire.Packet{BTH: wire.BTH{Opcode: wire.RCFetchAdd, PSN: firstPSN.Add(i)},
				Atomic: wire.AtomicETH{VA: x.a.mr.Addr(), RKey: x.a.mr.RKey(), Swap: 1}}
		}
		x.each = func() {
			for i := range 16 {
				x.hit(q, 16, add(i))
			}
		}
	}, most: work{frames: 16 + 2}, least: work{received: 10_000, frames: 1000}},
	{name: "NAKs of old PSNs, each behind an ACK of one packet", begin: func(x *turns) {
		q := x.attacked(1, ib.RC, 4)[0]
		x.post(q, 4, ib.SendWR{Opcode: ib.WRWrite, SGL: x.a.sge(0, attackedSize)})
		psn := firstPSN
		x.each = func() {
			for range 32 {
				x.hit(q.Num(), 1, response(wire.AckNoCredits, psn))
				psn = psn.Add(1)
				x.hit(q.Num(), 1, response(wire.NAKSequence, psn))
			}
		}
	}, least: work{bytes: 4 << 20}},
	{name: "RNR NAKs without end", begin: func(x *turns) {
		q := x.attacked(1, ib.RC, 64)[0]
		x.post(q, 64, ib.SendWR{Opcode: ib.WRSend, SGL: x.a.sge(0, 1<<20)})
		x.each = func() {
			x.now += 10_000 // the shortest RNR delay
			x.hit(q.Num(), 64, response(wire.RNRNak(1), firstPSN))
		}
	}, least: work{bytes: 4 << 20}},
	{name: "a WRITE of 64 MiB without flow control", begin: func(x *turns) {
		x.post(x.attacked(1, ib.UC, 1)[0], 1, ib.SendWR{Opcode: ib.WRWrite, SGL: x.a.sge(0, attackedSize)})
	}, least: work{bytes: 40 << 20}},
	{name: "a full queue of empty requests", begin: func(x *turns) {
		x.post(x.attacked(1, ib.UC, longest)[0], longest, ib.SendWR{Opcode: ib.WRWrite})
	}, least: work{frames: longest, completions: longest}},
	{name: "a full queue of requests without packets", begin: func(x *turns) {
		w, err := x.a.pd.AllocMW(ib.MWType1)
		must(x.t, err)
		q := x.attacked(1, ib.RC, longest)[0]
		for range longest {
			must(x.t, w.Bind(q, 0, ib.SendSignaled, ib.MWBind{}))
		}
	}, least: work{completions: longest}},
	{name: "full queues of requests without packets, behind a request without an answer", begin: func(x *turns) {
		w, err := x.a.pd.AllocMW(ib.MWType1)
		must(x.t, err)
		q := x.attacked(1, ib.RC, longest)[0]
		x.post(q, 1, ib.SendWR{Opcode: ib.WRWrite})
		for range longest - 1 {
			must(x.t, w.Bind(q, 0, ib.SendSignaled, ib.MWBind{}))
		}
		turn := 0
		x.each = func() {
			if turn++; turn == 50 {
				x.hit(q.Num(), 1, response(wire.AckNoCredits, firstPSN))
			}
		}
	}, least: work{completions: longest}},
	{name: "full queues of a QP in ERR", begin: func(x *turns) {
		q := x.full(1, longest)[0]
		must(x.t, q.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
		if n := x.polled(); n > device.FlushMost {
			x.t.Errorf("Modify has flushed %d requests, want %d at most", n, device.FlushMost)
		}
	}, most: work{completions: 2 * device.FlushMost}, least: work{completions: 200 * device.FlushMost}},
	{name: "packets that fail QPs with full queues", begin: func(x *turns) {
		x.hitEach(x.full(200, 128), wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteOnly, PSN: firstPSN},
			RETH: wire.RETH{RKey: 1, Len: 8}, Payload: make([]byte, 8)})
	}, most: work{completions: (device.TurnFramesMost + device.TurnDoorbells) * device.FlushMost},
		least: work{completions: 200 * 2 * 128}, late: 7},
	{name: "a thousand QPs in ERR", begin: func(x *turns) {
		for _, q := range x.full(1000, 64) {
			must(x.t, q.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
		}
		x.polled()
	}, most: work{completions: device.TurnDoorbells * device.FlushMost}, least: work{completions: 1000 * 64}, late: 16},
	{name: "a thousand doorbells", begin: func(x *turns) {
		for _, q := range x.attacked(1000, ib.UC, 64) {
			x.post(q, 1, ib.SendWR{Opcode: ib.WRWrite})
		}
	}, most: work{frames: device.TurnQPs + 2}, least: work{frames: 1000}, late: 16},
	{name: "a thousand timers", begin: func(x *turns) {
		for _, q := range x.attacked(1000, ib.RC, 64) {
			x.post(q, 1, ib.SendWR{Opcode: ib.WRWrite})
		}
		turn := 0
		x.each = func() {
			if turn++; turn == 5 {
				x.now += 1e9
			}
		}
	}, least: work{timers: 100}, late: 16},
	{name: "more frames than a turn takes", begin: func(x *turns) {
		q := x.attacked(1, ib.RC, 1)[0]
		x.each = func() { x.hit(q.Num(), 1024, response(wire.AckNoCredits, firstPSN)) }
	}, most: work{received: device.TurnFramesMost}, least: work{received: 200 * device.TurnFrames}},
	{name: "frames without effect for many QPs", begin: func(x *turns) {
		list := x.attacked(256, ib.RC, 1)
		x.each = func() { x.hitEach(list, response(wire.AckNoCredits, firstPSN)) }
	}, least: work{received: 200 * device.TurnFrames}, late: 2},
	{name: "duplicates for many QPs, which each sends an ACK for", begin: func(x *turns) {
		list := x.attacked(256, ib.RC, 1)
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteOnly, PSN: firstPSN.Add(-1), AckReq: true}}
		x.each = func() { x.hitEach(list, p) }
	}, most: work{frames: device.TurnQPs + 2}, least: work{frames: 100 * device.TurnQPs}, late: 2},
	{name: "datagrams to a group with many members", begin: func(x *turns) {
		group := ib.GIDFromAddr(gidX.Addr().Next())
		group[12] = 239
		for _, q := range x.attacked(device.MaxMcastQPs, ib.UD, 1) {
			must(x.t, q.AttachMulticast(group))
		}
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly}, DETH: wire.DETH{QKey: qkey}}
		x.each = func() { x.hitAt(group, slices.Repeat([]ib.QPN{ib.QPNMulticast}, 64), p, false) }
	}, least: work{received: 200 * device.MaxMcastQPs}},
	{name: "messages of the connection manager", begin: func(x *turns) {
		var mad [wire.MADLen]byte
		h := wire.MADHeader{BaseVersion: wire.MADBaseVersion, Class: wire.MADClassCM,
			ClassVersion: wire.MADClassVersionCM, Method: wire.MADMethodSend, Attr: wire.AttrDREQ}
		h.Put(&mad)
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly}, DETH: wire.DETH{QKey: 0x80010000, SrcQP: ib.QPNGSI},
			Payload: mad[:]}
		x.each = func() { x.hit(ib.QPNGSI, 256, p) }
	}, most: work{frames: device.TurnDatagrams + 2}, least: work{frames: 200 * device.TurnDatagrams / 2}},
	{name: "results of a worker", begin: func(x *turns) {
		x.a.slow(x.t)
		list := x.attacked(16, ib.RC, 128)
		for _, q := range list {
			for i := range 128 {
				_, err := q.PostRecv([]ib.RecvWR{{SGL: x.a.sge(8*i, 8)}})
				must(x.t, err)
			}
		}
		// The worker cannot merge packets of several QPs by turns. While it is busy with them, others gather
		// that it writes all at once.
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PSN: firstPSN}, Payload: make([]byte, 8)}
		for range 64 {
			x.hitEach(list, p)
			p.PSN = p.PSN.Add(1)
		}
		for _, q := range list {
			x.hitAt(gidA, slices.Repeat([]ib.QPN{q.Num()}, 64), p, true)
		}
	}, most: work{completions: device.TurnAnswers}, least: work{completions: 16 * 128}},
	{name: "a READ of the device's own memory", begin: func(x *turns) {
		q := x.attacked(1, ib.RC, 1)[0]
		x.modify(q, ib.QPAttr{State: ib.StateReset}, ib.AttrState)
		x.bringUp(&host{qp: q}, gidA, q.Num(), ib.MTU4096, nil)
		_, err := q.PostSend([]ib.SendWR{{Opcode: ib.WRRead, SGL: x.a.sge(0, attackedSize/2), RKey: x.a.mr.RKey(),
			RemoteAddr: x.a.mr.Addr() + attackedSize/2}})
		must(x.t, err)
	}, least: work{bytes: 4 << 20}},
}

// repeatReads makes the stranger repeat a READ of all of the memory on n QPs, before each turn.
func (x *turns) repeatReads(n int) {
	list := x.attacked(n, ib.RC, 1)
	x.each = func() { x.hitEach(list, x.readOf(attackedSize)) }
}

// full makes QPs both of whose queues are full.
func (x *turns) full(n, wrs int) []ib.QP {
	list := x.attacked(n, ib.RC, wrs)
	for _, q := range list {
		x.post(q, wrs, ib.SendWR{Opcode: ib.WRWrite})
		for range wrs {
			_, err := q.PostRecv([]ib.RecvWR{{}})
			must(x.t, err)
		}
	}
	return list
}

// TestTurns: whatever one peer, one user or one QP sends, posts or leaves unanswered, no turn of a shard does more
// than a bounded amount of work. The rest waits for later turns, and the neighbours have their turns in between.
func TestTurns(t *testing.T) {
	const count, at = 200, 5 // turns, and the one before which the neighbours post
	for _, a := range append(attacks, ringAttacks...) {
		t.Run(a.name, func(t *testing.T) {
			x := newTurns(t)
			a.begin(x)
			for range at {
				x.turn(turnMost.or(a.most))
			}
			x.neighbours()
			for range count - at {
				x.turn(turnMost.or(a.most))
			}
			x.promptly("another user's request", x.peer.qp.Num(), 0)
			x.promptly("a request of the same user to another peer", x.b.qp.Num(), a.late)
			for i, f := range x.sum.fields() {
				if least := *a.least.fields()[i].n; *f.n < least {
					t.Errorf("%d %s in all, want at least %d, or the attack shows nothing", *f.n, f.name, least)
				}
			}
		})
	}
}

// promptly checks that a neighbour's first packet has left within two turns, and behind two turns at sending of others;
// or so many turns later.
func (x *turns) promptly(what string, to ib.QPN, late int) {
	x.t.Helper()
	switch at, ok := x.left[to]; {
	case !ok:
		x.t.Errorf("%s has not left at all", what)
	case at.turns > 2+late || late == 0 && at.frames > 2*device.AppTurn:
		x.t.Errorf("%s has left after %d turns and %d frames, want %d and %d at most", what, at.turns, at.frames,
			2+late, 2*device.AppTurn)
	}
}

// TestTurnsOfMail: frames that arrive by the link of another shard do not make a turn longer either.
func TestTurnsOfMail(t *testing.T) {
	network := mem.NewNetwork()
	links := network.OpenShards([]ib.GID{gidA}, mem.Options{Steer: func(*link.Run, int) int { return 0 }}, 2)
	for i := range links {
		links[i] = wrap.Seal(links[i])
	}
	x := &turns{world: &world{t: t}, stranger: wrap.Seal(network.Open([]ib.GID{gidX}, mem.Options{}))}
	x.a = openHostShards(t, links, 1, device.Options{Manual: true, Seed: 1}, 64)
	x.makeQP(x.a)
	x.bringUp(x.a, gidX, strangeQP, ib.MTU4096, nil)
	total := 0
	for turn := range 100 {
		x.hit(x.a.qp.Num(), 1024, response(wire.AckNoCredits, firstPSN))
		before := x.a.dev.Stats().RcvdPkts
		x.a.dev.Step(x.now)
		n := int(x.a.dev.Stats().RcvdPkts - before)
		if total += n; n > device.TurnFramesMost {
			t.Fatalf("turn %d: %d packets received, want %d at most", turn, n, device.TurnFramesMost)
		}
	}
	if total < 90*device.TurnFrames {
		t.Errorf("%d packets received in all, want %d at least", total, 90*device.TurnFrames)
	}
}
