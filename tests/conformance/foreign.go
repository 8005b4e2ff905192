package conformance

import "github.com/goroce/goroce/ib"

// Objects of another device. They belong to no device at all.
type (
	alienCQ      struct{ ib.CQ }
	alienChannel struct{ ib.Channel }
	alienSRQ     struct{ ib.SRQ }
	alienXRCD    struct{ ib.XRCD }
	alienPD      struct{ ib.PD }
	alienQP      struct{ ib.QP }
)

func foreignCases() []Case {
	refused := func(name, attr string, needs ib.DeviceCaps, verb func(e *End) error) Case {
		return Case{Name: "foreign/" + name, Needs: both(needs), Alone: func(e *End) {
			e.is(verb(e), "using another device's "+attr, ib.ErrForeign, ib.ErrInvalid)
		}}
	}
	rc := func(e *End, change func(*ib.QPInit)) error {
		cq := e.newQueue(1).cq
		init := ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq}
		change(&init)
		return second(e.pd().CreateQP(init))
	}
	return []Case{
		refused("channel", "channel", 0, func(e *End) error {
			return second(e.dev.CreateCQ(ib.CQInit{Entries: 1, Channel: alienChannel{}}))
		}),
		refused("send-cq", "CQ", 0, func(e *End) error { return rc(e, func(i *ib.QPInit) { i.SendCQ = alienCQ{} }) }),
		refused("receive-cq", "CQ", 0, func(e *End) error {
			return rc(e, func(i *ib.QPInit) {
				i.RecvCQ = alienCQ{}
			})
		}),
		refused("no-send-cq", "nil CQ", 0, func(e *End) error { return rc(e, func(i *ib.QPInit) { i.SendCQ = nil }) }),
		refused("no-receive-cq", "nil CQ", 0, func(e *End) error {
			return rc(e, func(i *ib.QPInit) {
				i.RecvCQ = nil
			})
		}),
		refused("srq", "SRQ", 0, func(e *End) error { return rc(e, func(i *ib.QPInit) { i.SRQ = alienSRQ{} }) }),
		refused("xrc-domain-of-a-qp", "XRC domain", ib.CapXRC, func(e *End) error {
			return second(e.pd().CreateQP(ib.QPInit{Type: ib.XRCTGT, XRCD: alienXRCD{}}))
		}),
		refused("xrc-domain-of-an-srq", "XRC domain", ib.CapXRC, func(e *End) error {
			return second(e.pd().CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, SRQAttr: ib.SRQAttr{MaxWR: 1, MaxSGE: 1},
				XRCD: alienXRCD{}, CQ: e.newQueue(1).cq}))
		}),
		refused("pd-of-a-reregistration", "PD", 0, func(e *End) error {
			return e.mem(64, 0).mr.Rereg(ib.ReregPD, alienPD{}, ib.MRInit{})
		}),
		refused("no-pd-of-a-reregistration", "nil PD", 0, func(e *End) error {
			return e.mem(64, 0).mr.Rereg(ib.ReregPD, nil, ib.MRInit{})
		}),
		refused("queue-pair-of-a-bind", "QP", ib.CapMemWindow, func(e *End) error {
			return e.newMW(e.pd(), ib.MWType1).Bind(alienQP{}, 1, 0, piece(e.mem(winMem, winAccess), ib.RemoteRead))
		}),
	}
}
