package device_test

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/wire"
)

// ringAttacks are rows of TestTurns in which an application works its own rings: it posts as much as they hold, rings
// doorbells for nothing, lets CQs overrun, arms SRQs, and changes queues while they are in use, all before every turn.
var ringAttacks = []attack{
	{name: "a thousand full queues of empty requests", begin: func(x *turns) {
		for _, q := range x.attacked(1000, ib.UC, 128) {
			x.post(q, 128, ib.SendWR{Opcode: ib.WRWrite})
		}
	}, most: work{frames: device.TurnQPs*device.AppTurn + 2}, least: work{frames: 10_000}, late: 16},
	{name: "queues that are filled before each turn", begin: func(x *turns) {
		list := x.attacked(64, ib.UC, 1024)
		wrs := make([]ib.SendWR, 1024)
		for i := range wrs {
			wrs[i] = ib.SendWR{Opcode: ib.WRWrite, RKey: 1, Flags: ib.SendSignaled}
		}
		x.each = func() {
			for _, q := range list {
				_, _ = q.PostSend(wrs) // as many as there is room for
			}
		}
	}, least: work{frames: 10_000}},
	{name: "doorbells of QPs that have nothing to send", begin: func(x *turns) {
		list := x.attacked(1000, ib.RC, 4)
		for _, q := range list {
			must(x.t, q.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
		}
		x.each = func() {
			for _, q := range list {
				_, _ = q.PostRecv([]ib.RecvWR{{}}) // in ERR it rings
			}
		}
	}, most: work{completions: device.TurnDoorbells * 4}, least: work{completions: 200 * device.TurnDoorbells / 2},
		late: 16},
	{name: "a CQ that overruns, with the queues of a thousand QPs behind it", begin: func(x *turns) {
		all := x.cq
		small, err := x.a.dev.CreateCQ(ib.CQInit{Entries: 1})
		must(x.t, err)
		x.cq = small
		list := x.attacked(1000, ib.UC, 64)
		x.cq = all
		for _, q := range list {
			x.post(q, 64, ib.SendWR{Opcode: ib.WRWrite})
		}
	}, least: work{frames: 1000}, late: 16},
	{name: "an SRQ whose limit is armed before each turn", begin: func(x *turns) {
		s := x.fullSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: longest, MaxSGE: 1}})
		var nums []ib.QPN
		for range 64 {
			q, err := x.a.pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: x.cq, RecvCQ: x.cq, SRQ: s,
				Cap: ib.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
			must(x.t, err)
			x.datagramUp(q)
			nums = append(nums, q.Num())
		}
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly}, DETH: wire.DETH{QKey: qkey}}
		x.each = func() {
			must(x.t, s.Modify(ib.SRQAttr{Limit: longest}, ib.SRQLimit))
			_, _ = s.PostRecv(make([]ib.RecvWR, 256))
			x.hitAt(gidA, nums, p, false)
			x.hitAt(gidA, nums, p, false)
		}
	}, least: work{received: 200 * 64}},
	{name: "queues that are resized before each turn", begin: func(x *turns) {
		q := x.attacked(1, ib.UC, longest)[0]
		s := x.fullSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: longest / 2, MaxSGE: 1}})
		x.post(q, longest, ib.SendWR{Opcode: ib.WRWrite})
		n := 0
		x.each = func() {
			n++
			must(x.t, x.cq.Resize(4*longest+n%2))
			must(x.t, s.Modify(ib.SRQAttr{MaxWR: longest/2 + n%2}, ib.SRQMaxWR))
			if most := x.a.dev.LongestHold(); most > device.MoveMost {
				x.t.Fatalf("got %d objects in one hold of the lock, want %d at most", most, device.MoveMost)
			}
		}
	}, least: work{frames: longest, completions: longest}},
	{name: "QPs that are reset and connected again before each turn, with full queues", begin: func(x *turns) {
		list := x.attacked(32, ib.UC, 256)
		x.each = func() {
			for _, q := range list {
				x.modify(q, ib.QPAttr{State: ib.StateReset}, ib.AttrState)
				x.bringUp(&host{qp: q}, gidX, strangeQP, ib.MTU4096, nil)
				x.post(q, 256, ib.SendWR{Opcode: ib.WRWrite})
			}
		}
	}, least: work{frames: 10_000}},
}
