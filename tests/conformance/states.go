package conformance

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// into takes a new queue pair without a peer to a state.
func (e *End) into(state ib.QPState, change ...func(*setup)) *conn {
	c := e.newConn(change...)
	c.peer, c.ah = station{QPN: c.qp.Num(), PSN: c.s.psn}, e.toSelf()
	switch state {
	case ib.StateReset:
		c.reset()
	case ib.StateErr:
		c.err()
	case ib.StateInit:
	default:
		c.rtr()
		if state != ib.StateRTR {
			c.rts()
		}
		if state == ib.StateSQD {
			c.to(ib.StateSQD, ib.AttrState)
		}
	}
	c.wantState(state)
	return c
}

// liveStates are the states that a case can reach by itself.
var liveStates = []ib.QPState{ib.StateReset, ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateSQD, ib.StateErr}

func stateCases() []Case {
	var list []Case
	for _, state := range liveStates {
		list = append(list,
			Case{Name: fmt.Sprintf("states/post-send/%v", state), Alone: func(e *End) {
				c := e.into(state)
				_, err := c.qp.PostSend([]ib.SendWR{{ID: 1, Opcode: ib.WRWrite}})
				if takes := state == ib.StateRTS || state == ib.StateSQD || state == ib.StateErr; takes {
					e.must(err, "post send in %v", state)
				} else {
					e.names(err, fmt.Sprintf("post send in %v", state), "state", ib.ErrState)
				}
			}},
			Case{Name: fmt.Sprintf("states/post-receive/%v", state), Alone: func(e *End) {
				c := e.into(state)
				_, err := c.qp.PostRecv([]ib.RecvWR{{ID: 1}})
				if state != ib.StateReset {
					e.must(err, "post receive in %v", state)
				} else {
					e.names(err, "post receive in RESET", "state", ib.ErrState)
				}
			}})
		for _, to := range liveStates {
			if legal(state, to) {
				continue
			}
			list = append(list, Case{Name: fmt.Sprintf("states/no-way/%v-to-%v", state, to), Alone: func(e *End) {
				c := e.into(state)
				a := c.attrs()
				a.State = to
				err := c.qp.Modify(a, ib.Required(ib.RC, to))
				e.names(err, fmt.Sprintf("modify %v to %v", state, to), "State", ib.ErrState, ib.ErrInvalid)
				c.wantState(state)
			}})
		}
	}
	for _, state := range []ib.QPState{ib.StateReset, ib.StateInit, ib.StateRTR} {
		list = append(list, Case{Name: fmt.Sprintf("states/attributes-required/%v", state+1),
			Alone: func(e *End) { attributesRequired(e, state) }})
	}
	for _, b := range badAttrs {
		list = append(list, Case{Name: "states/refused/" + b.name, Alone: func(e *End) { refusedAttr(e, b) }})
	}
	return append(list,
		Case{Name: "states/current-state-must-agree", Alone: currentState},
		Case{Name: "states/attributes-in-the-wrong-transition", Alone: wrongTransition},
		Case{Name: "states/query-returns-what-modify-set", Alone: queryAfterModify},
		Case{Name: "states/query-returns-the-current-state", Alone: func(e *End) {
			if a := e.into(ib.StateRTS).query(); a.CurState != ib.StateRTS {
				e.fatalf("query says current state %v in RTS", a.CurState)
			}
		}},
		Case{Name: "states/query-returns-capacities", Alone: queryCaps},
		Case{Name: "states/init-again", Alone: initAgain},
	)
}

// legal reports whether a transition is allowed (IBTA 10.3.1, figure 124).
func legal(from, to ib.QPState) bool {
	if to == ib.StateReset || to == ib.StateErr {
		return true
	}
	switch from {
	case ib.StateReset:
		return to == ib.StateInit
	case ib.StateInit:
		return to == ib.StateInit || to == ib.StateRTR
	case ib.StateRTR:
		return to == ib.StateRTS
	case ib.StateRTS, ib.StateSQD:
		return to == ib.StateRTS || to == ib.StateSQD
	}
	return false
}

// attributesRequired leaves out each attribute in turn.
func attributesRequired(e *End, from ib.QPState) {
	c := e.into(from)
	a := c.attrs()
	a.State = from + 1
	full := ib.Required(ib.RC, from+1)
	for rest := full &^ ib.AttrState; rest != 0; rest &= rest - 1 {
		left := rest & -rest
		err := c.qp.Modify(a, full&^left)
		e.names(err, fmt.Sprintf("modify to %v without %v", a.State, left), "mask", ib.ErrInvalid)
		c.wantState(from)
	}
	c.modify(a, full)
}

// badAttr is an attribute with a value that all devices must refuse.
type badAttr struct {
	name string
	from ib.QPState
	bit  ib.QPAttrMask
	set  func(e *End, a *ib.QPAttr)
}

var badAttrs = []badAttr{
	{"port", ib.StateReset, ib.AttrPort, func(e *End, a *ib.QPAttr) { a.Port = e.attr.Ports + 1 }},
	{"pkey-index", ib.StateReset, ib.AttrPKeyIndex, func(_ *End, a *ib.QPAttr) { a.PKeyIndex = 0xFFFF }},
	{"access", ib.StateReset, ib.AttrAccess, func(_ *End, a *ib.QPAttr) { a.Access = 1 << 19 }},
	{"destination-gid", ib.StateInit, ib.AttrAV, func(_ *End, a *ib.QPAttr) { a.AH.DGID = ib.GID{} }},
	{"sgid-index", ib.StateInit, ib.AttrAV, func(e *End, a *ib.QPAttr) { a.AH.SGIDIndex = e.port.GIDTableLen }},
	{"negative-sgid-index", ib.StateInit, ib.AttrAV, func(_ *End, a *ib.QPAttr) { a.AH.SGIDIndex = -1 }},
	{"path-mtu-of-no-size", ib.StateInit, ib.AttrPathMTU, func(_ *End, a *ib.QPAttr) { a.PathMTU = 1000 }},
	{"path-mtu-of-0", ib.StateInit, ib.AttrPathMTU, func(_ *End, a *ib.QPAttr) { a.PathMTU = 0 }},
	{"path-mtu-above-the-largest", ib.StateInit, ib.AttrPathMTU, func(_ *End, a *ib.QPAttr) {
		a.PathMTU = 2 * ib.MTU4096
	}},
	{"destination-qpn", ib.StateInit, ib.AttrDestQPN, func(_ *End, a *ib.QPAttr) { a.DestQPN = 1 << 24 }},
	{"receive-psn", ib.StateInit, ib.AttrRQPSN, func(_ *End, a *ib.QPAttr) { a.RQPSN = 1 << 24 }},
	{"responder-resources", ib.StateInit, ib.AttrMaxDestRdAtomic,
		func(e *End, a *ib.QPAttr) { a.MaxDestRdAtomic = e.attr.MaxQPRdAtomic + 1 }},
	{"min-rnr-timer", ib.StateInit, ib.AttrMinRNRTimer, func(_ *End, a *ib.QPAttr) { a.MinRNRTimer = 32 }},
	{"send-psn", ib.StateRTR, ib.AttrSQPSN, func(_ *End, a *ib.QPAttr) { a.SQPSN = 1 << 24 }},
	{"initiator-depth", ib.StateRTR, ib.AttrMaxRdAtomic, func(e *End,
		a *ib.QPAttr) {
		a.MaxRdAtomic = e.attr.MaxQPInitRdAtom + 1
	}},
	{"timeout", ib.StateRTR, ib.AttrTimeout, func(_ *End, a *ib.QPAttr) { a.Timeout = 32 }},
	{"retry-count", ib.StateRTR, ib.AttrRetryCnt, func(_ *End, a *ib.QPAttr) { a.RetryCnt = 8 }},
	{"rnr-retry-count", ib.StateRTR, ib.AttrRNRRetry, func(_ *End, a *ib.QPAttr) { a.RNRRetry = 8 }},
}

// refusedAttr sets an invalid value: the error names the attribute, the queue pair keeps its state, and accepts a valid
// value afterwards.
func refusedAttr(e *End, b badAttr) {
	c := e.into(b.from)
	good := c.attrs()
	good.State = b.from + 1
	mask := ib.Required(ib.RC, good.State)
	bad := good
	b.set(e, &bad)
	err := c.qp.Modify(bad, mask)
	e.names(err, "modify with a bad "+b.name, b.bit.String(), ib.ErrInvalid)
	c.wantState(b.from)
	c.modify(good, mask)
}

func currentState(e *End) {
	c := e.into(ib.StateRTS)
	err := c.qp.Modify(ib.QPAttr{State: ib.StateRTS, CurState: ib.StateSQD}, ib.AttrState|ib.AttrCurState)
	e.names(err, "modify with a wrong current state", "CurState", ib.ErrState, ib.ErrInvalid)
	c.modify(ib.QPAttr{State: ib.StateRTS, CurState: ib.StateRTS}, ib.AttrState|ib.AttrCurState)
}

func wrongTransition(e *End) {
	for _, x := range []struct {
		state ib.QPState
		mask  ib.QPAttrMask
	}{
		{ib.StateInit, ib.AttrTimeout}, {ib.StateRTR, ib.AttrPathMTU}, {ib.StateRTS, ib.AttrDestQPN}, {ib.StateRTS,
			ib.AttrTimeout},
		{ib.StateRTS, ib.AttrQKey},
	} {
		c := e.into(x.state)
		a := c.attrs()
		a.State = x.state
		err := c.qp.Modify(a, ib.AttrState|x.mask)
		e.is(err, fmt.Sprintf("modify of %v in %v", x.mask, x.state), ib.ErrInvalid, ib.ErrState)
		c.wantState(x.state)
	}
}

func queryAfterModify(e *End) {
	c := e.into(ib.StateRTS, func(s *setup) { s.minRNR, s.timeout, s.retry, s.rnrRetry, s.psn = 13, 15, 5, 3, 0xABCDE })
	got, want := c.query(), c.attrs()
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"State", got.State, ib.StateRTS},
		{"Port", got.Port, want.Port}, {"PKeyIndex", got.PKeyIndex, 0}, {"Access", got.Access, want.Access},
		{"AH.DGID", got.AH.DGID, want.AH.DGID}, {"AH.SGIDIndex", got.AH.SGIDIndex, want.AH.SGIDIndex},
		{"PathMTU", got.PathMTU, want.PathMTU}, {"DestQPN", got.DestQPN, want.DestQPN},
		{"RQPSN", got.RQPSN, want.RQPSN}, {"SQPSN", got.SQPSN, want.SQPSN},
		{"MaxRdAtomic", got.MaxRdAtomic, want.MaxRdAtomic},
		{"MaxDestRdAtomic", got.MaxDestRdAtomic, want.MaxDestRdAtomic},
		{"MinRNRTimer", got.MinRNRTimer, want.MinRNRTimer}, {"Timeout", got.Timeout, want.Timeout},
		{"RetryCnt", got.RetryCnt, want.RetryCnt}, {"RNRRetry", got.RNRRetry, want.RNRRetry},
	} {
		if f.got != f.want {
			e.fatalf("query says %s %v, set was %v", f.name, f.got, f.want)
		}
	}
}

func queryCaps(e *End) {
	c := e.newConn()
	got, asked := c.query().Cap, c.s.init.Cap
	if got.MaxSendWR < asked.MaxSendWR || got.MaxRecvWR < asked.MaxRecvWR || got.MaxSendSGE < asked.MaxSendSGE ||
		got.MaxRecvSGE < asked.MaxRecvSGE || got.MaxInline < asked.MaxInline {
		e.fatalf("query says capacities %+v, less than what was asked for, %+v", got, asked)
	}
	if c.qp.Type() != ib.RC || c.qp.Num() <= ib.QPNGSI || c.qp.Num() >= ib.QPNMulticast {
		e.fatalf("the QP is of type %v and has number %#x", c.qp.Type(), uint32(c.qp.Num()))
	}
}

// initAgain: the attributes of INIT may be changed in INIT.
func initAgain(e *End) {
	c := e.into(ib.StateInit)
	c.modify(ib.QPAttr{State: ib.StateInit, Access: ib.RemoteRead}, ib.AttrState|ib.AttrAccess)
	if a := c.query(); a.Access != ib.RemoteRead {
		e.fatalf("access %#x after setting %#x", a.Access, ib.RemoteRead)
	}
}
