package qp

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Limits are the device's bounds on QP attributes. The owner changes them when
// the port changes, between calls to the QPs.
type Limits struct {
	GIDs        int    // rows of the GID table
	MTU         ib.MTU // the port's active MTU
	Frame       int    // the most payload that fits a frame of the port; 0 for as much as MTU
	MaxRdAtomic int    // both ways

	// Unreachable, if not nil, returns what ICMP has said lately about a peer that does not answer, as a Linux error
	// number, 0 for nothing. Any shard may call it.
	Unreachable func(peer ib.GID) (errno uint32)

	// Stage is asked once for each QP, when it first uses memory that is not direct: whether it may take
	// LateBytes(Config.MaxLate) for that. Else it takes LeastLateBytes, and is slower. nil: all may.
	Stage func(*QP) bool

	// Recorders are the recorders that the QPs may have, all of one owner; nil: they have none.
	Recorders *Recorders

	// Reorder is the memory for requests beyond a gap, of the shard that owns the QPs; nil: such requests are dropped.
	Reorder *Reorder
}

// transition lists the required and optional attributes of a change of state
// (IBTA 11.2.5.2 table 91, as in libibverbs and Linux's qp_state_table).
type transition struct {
	legal    bool
	required ib.QPAttrMask
	optional ib.QPAttrMask
}

// transitionTable is indexed by the states before and after.
type transitionTable [ib.NumQPStates][ib.NumQPStates]transition

const (
	attrInit  = ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess
	attrPeer  = ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	attrReply = ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	attrRetry = ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxRdAtomic
	attrLive  = ib.AttrCurState | ib.AttrAccess | ib.AttrRateLimit
)

// Changes to RESET and to ERR are legal from every state and have no attributes. Only
// UC and UD have SQE.

// transitionsRC is the table of the RC service.
var transitionsRC = transitionTable{
	ib.StateReset: {ib.StateInit: {true, attrInit, 0}},
	ib.StateInit: {
		ib.StateInit: {true, 0, attrInit},
		ib.StateRTR:  {true, attrPeer | attrReply, ib.AttrPKeyIndex | ib.AttrAccess},
	},
	ib.StateRTR: {ib.StateRTS: {true, attrRetry | ib.AttrSQPSN, attrLive | ib.AttrMinRNRTimer}},
	ib.StateRTS: {
		ib.StateRTS: {true, 0, attrLive | ib.AttrMinRNRTimer},
		ib.StateSQD: {true, 0, ib.AttrSQDNotify},
	},
	ib.StateSQD: {
		ib.StateRTS: {true, 0, attrLive | ib.AttrMinRNRTimer},
		ib.StateSQD: {true, 0, attrInit | ib.AttrAV | attrReply | attrRetry | ib.AttrRateLimit},
	},
}

// transitionsUC is the table of the UC service: no retries, no responses.
var transitionsUC = transitionTable{
	ib.StateReset: {ib.StateInit: {true, attrInit, 0}},
	ib.StateInit: {
		ib.StateInit: {true, 0, attrInit},
		ib.StateRTR:  {true, attrPeer, ib.AttrPKeyIndex | ib.AttrAccess},
	},
	ib.StateRTR: {ib.StateRTS: {true, ib.AttrSQPSN, attrLive}},
	ib.StateRTS: {
		ib.StateRTS: {true, 0, attrLive},
		ib.StateSQD: {true, 0, ib.AttrSQDNotify},
	},
	ib.StateSQD: {
		ib.StateRTS: {true, 0, attrLive},
		ib.StateSQD: {true, 0, ib.AttrAV | ib.AttrPKeyIndex | ib.AttrAccess | ib.AttrRateLimit},
	},
	ib.StateSQE: {ib.StateRTS: {true, 0, attrLive}},
}

// transitionsUD is the table of the UD service: no peer, a Q_Key.
var transitionsUD = transitionTable{
	ib.StateReset: {ib.StateInit: {true, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey, 0}},
	ib.StateInit: {
		ib.StateInit: {true, 0, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey},
		ib.StateRTR:  {true, 0, ib.AttrPKeyIndex | ib.AttrQKey},
	},
	ib.StateRTR: {ib.StateRTS: {true, ib.AttrSQPSN, ib.AttrCurState | ib.AttrQKey}},
	ib.StateRTS: {
		ib.StateRTS: {true, 0, ib.AttrCurState | ib.AttrQKey | ib.AttrRateLimit},
		ib.StateSQD: {true, 0, ib.AttrSQDNotify},
	},
	ib.StateSQD: {
		ib.StateRTS: {true, 0, ib.AttrCurState | ib.AttrQKey},
		ib.StateSQD: {true, 0, ib.AttrPKeyIndex | ib.AttrQKey},
	},
	ib.StateSQE: {ib.StateRTS: {true, 0, ib.AttrCurState | ib.AttrQKey}},
}

// transitionsGSI is the table of the general services QP, QP 1: UD, but the port is
// optional, as QP 1 is created for one.
var transitionsGSI = func() transitionTable {
	t := transitionsUD
	t[ib.StateReset][ib.StateInit] = transition{true, ib.AttrPKeyIndex | ib.AttrQKey, ib.AttrPort}
	return t
}()

// transitionsXRCINI is the table of XRC initiators, which only send.
var transitionsXRCINI = transitionTable{
	ib.StateReset: transitionsRC[ib.StateReset],
	ib.StateInit: {
		ib.StateInit: {true, 0, attrInit},
		ib.StateRTR:  {true, attrPeer, ib.AttrPKeyIndex | ib.AttrAccess},
	},
	ib.StateRTR: {ib.StateRTS: {true, attrRetry | ib.AttrSQPSN, attrLive}},
	ib.StateRTS: {
		ib.StateRTS: {true, 0, attrLive},
		ib.StateSQD: {true, 0, ib.AttrSQDNotify},
	},
	ib.StateSQD: {
		ib.StateRTS: {true, 0, attrLive},
		ib.StateSQD: {true, 0, attrInit | ib.AttrAV | attrRetry | ib.AttrRateLimit},
	},
}

// transitionsXRCTGT is the table of XRC targets, which only receive.
var transitionsXRCTGT = transitionTable{
	ib.StateReset: transitionsRC[ib.StateReset],
	ib.StateInit:  transitionsRC[ib.StateInit],
	ib.StateRTR:   {ib.StateRTS: {true, ib.AttrTimeout | ib.AttrSQPSN, attrLive | ib.AttrMinRNRTimer}},
	ib.StateRTS: {
		ib.StateRTS: {true, 0, attrLive | ib.AttrMinRNRTimer},
		ib.StateSQD: {true, 0, ib.AttrSQDNotify},
	},
	ib.StateSQD: {
		ib.StateRTS: {true, 0, attrLive | ib.AttrMinRNRTimer},
		ib.StateSQD: {true, 0, attrInit | ib.AttrAV | attrReply | ib.AttrTimeout | ib.AttrRateLimit},
	},
}

// lookup returns the row for a change of state.
func (t *transitionTable) lookup(from, to ib.QPState) transition {
	if to == ib.StateReset || to == ib.StateErr {
		return transition{legal: true, optional: ib.AttrCurState}
	}
	return t[from][to]
}

// attrCheck is the rule for one attribute's values: a test, and a description for errors.
type attrCheck struct {
	bit     ib.QPAttrMask
	value   func(a *ib.QPAttr) any
	ok      func(a *ib.QPAttr, l *Limits) bool
	allowed func(l *Limits) string
}

func fixed(s string) func(*Limits) string { return func(*Limits) string { return s } }

// attrChecks holds the attributes that can have a wrong value, in the order in
// which they are reported.
var attrChecks = []attrCheck{
	{ib.AttrPort, func(a *ib.QPAttr) any { return a.Port },
		func(a *ib.QPAttr, _ *Limits) bool { return a.Port == 1 }, fixed("1, the only port")},
	{ib.AttrPKeyIndex, func(a *ib.QPAttr) any { return a.PKeyIndex },
		func(a *ib.QPAttr, _ *Limits) bool { return a.PKeyIndex == 0 }, fixed("0, the default partition")},
	{ib.AttrAccess, func(a *ib.QPAttr) any { return fmt.Sprintf("%#x", uint32(a.Access)) },
		func(a *ib.QPAttr, _ *Limits) bool { return a.Access&^(ib.QPAccessMask|ib.LocalWrite) == 0 },
		fixed("any of RemoteWrite, RemoteRead, RemoteAtomic, FlushGlobal, FlushPersistent")},
	{ib.AttrPathMTU, func(a *ib.QPAttr) any { return int(a.PathMTU) },
		func(a *ib.QPAttr, _ *Limits) bool { return a.PathMTU.Valid() }, // as rdma_rxe: up to the port's max_mtu
		func(l *Limits) string {
			return fmt.Sprintf("256, 512, 1024, 2048 or 4096; above the port's active MTU of %d for short messages "+
				"only; both ends need the same", l.MTU)
		}},
	{ib.AttrDestQPN, func(a *ib.QPAttr) any { return fmt.Sprintf("%#x", uint32(a.DestQPN)) },
		func(a *ib.QPAttr, _ *Limits) bool { return a.DestQPN > ib.QPNGSI && a.DestQPN < ib.QPNMulticast },
		fixed("2 to 0xfffffe, the peer's QP number")},
	{ib.AttrRQPSN, func(a *ib.QPAttr) any { return fmt.Sprintf("%#x", uint32(a.RQPSN)) },
		func(a *ib.QPAttr, _ *Limits) bool { return a.RQPSN <= ib.PSNMask }, fixed("24 bits")},
	{ib.AttrSQPSN, func(a *ib.QPAttr) any { return fmt.Sprintf("%#x", uint32(a.SQPSN)) },
		func(a *ib.QPAttr, _ *Limits) bool { return a.SQPSN <= ib.PSNMask }, fixed("24 bits")},
	{ib.AttrMaxDestRdAtomic, func(a *ib.QPAttr) any { return a.MaxDestRdAtomic },
		func(a *ib.QPAttr, l *Limits) bool {
			return a.MaxDestRdAtomic >= 0 && a.MaxDestRdAtomic <= l.MaxRdAtomic
		},
		func(l *Limits) string { return fmt.Sprintf("0 to %d", l.MaxRdAtomic) }},
	{ib.AttrMaxRdAtomic, func(a *ib.QPAttr) any { return a.MaxRdAtomic },
		func(a *ib.QPAttr, l *Limits) bool { return a.MaxRdAtomic >= 0 && a.MaxRdAtomic <= l.MaxRdAtomic },
		func(l *Limits) string {
			return fmt.Sprintf("0 to %d, at most the peer's MaxDestRdAtomic", l.MaxRdAtomic)
		}},
	{ib.AttrMinRNRTimer, func(a *ib.QPAttr) any { return a.MinRNRTimer },
		func(a *ib.QPAttr, _ *Limits) bool { return a.MinRNRTimer < 32 }, fixed("0 to 31")},
	{ib.AttrTimeout, func(a *ib.QPAttr) any { return a.Timeout },
		func(a *ib.QPAttr, _ *Limits) bool { return a.Timeout < 32 }, fixed("0 to 31; 14 is 67 ms, 0 waits for ever")},
	{ib.AttrRetryCnt, func(a *ib.QPAttr) any { return a.RetryCnt },
		func(a *ib.QPAttr, _ *Limits) bool { return a.RetryCnt < 8 }, fixed("0 to 7")},
	{ib.AttrRNRRetry, func(a *ib.QPAttr) any { return a.RNRRetry },
		func(a *ib.QPAttr, _ *Limits) bool { return a.RNRRetry < 8 }, fixed("0 to 7; 7 retries for ever")},
}

// checkModify decides whether a Modify is legal. The error names the attribute,
// its value and what is allowed.
func (q *QP) checkModify(a *ib.QPAttr, mask ib.QPAttrMask) (to ib.QPState, err error) {
	from := q.state
	to = from
	if mask&ib.AttrState != 0 {
		to = a.State
	}
	op := func() string { return fmt.Sprintf("modify QP %#x %v to %v", uint32(q.cfg.Num), from, to) }
	refuse := func(attr string, value any, allowed string, why error) (ib.QPState, error) {
		return from, driver.Refuse(op(), attr, value, allowed, why)
	}

	if to >= ib.NumQPStates {
		return refuse("State", uint8(to), "RESET, INIT, RTR, RTS, SQD or ERR", ib.ErrInvalid)
	}
	if mask&ib.AttrCurState != 0 && a.CurState != from {
		return refuse("CurState", a.CurState, fmt.Sprintf("%v, the state that the QP is in", from), ib.ErrState)
	}
	row := q.svc.transitions.lookup(from, to)
	if !row.legal {
		return refuse("State", to, q.svc.transitions.nextStates(from), ib.ErrState)
	}
	given := mask &^ ib.AttrState
	if missing := row.required &^ given; missing != 0 {
		return refuse("attribute mask", given, fmt.Sprintf("must also have %v", missing), ib.ErrInvalid)
	}
	if extra := given &^ (row.required | row.optional); extra != 0 {
		return refuse("attribute mask", given, fmt.Sprintf("must not have %v in this transition", extra), ib.ErrInvalid)
	}
	if given&ib.AttrAV != 0 {
		if err := CheckAH(op(), &a.AH, q.cfg.Limits); err != nil {
			return from, err
		}
		if !validUnicast(a.AH.DGID) {
			return refuse("AH", fmt.Sprintf("DGID %v", a.AH.DGID), "the peer's address, not a multicast group",
				ib.ErrInvalid)
		}
	}
	for i := range attrChecks {
		c := &attrChecks[i]
		if given&c.bit != 0 && !c.ok(a, q.cfg.Limits) {
			return refuse(c.bit.String(), c.value(a), c.allowed(q.cfg.Limits), ib.ErrInvalid)
		}
	}
	return to, nil
}

// nextStates lists the states that may follow state from.
func (t *transitionTable) nextStates(from ib.QPState) string {
	s := fmt.Sprintf("from %v: RESET, ERR", from)
	for to := range ib.NumQPStates {
		if t[from][to].legal {
			s += fmt.Sprintf(", %v", ib.QPState(to))
		}
	}
	return s
}
