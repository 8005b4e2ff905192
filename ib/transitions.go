package ib

// Attributes of transitions, beside AttrState.
const (
	initConnected = AttrPKeyIndex | AttrPort | AttrAccess
	rtrConnected  = AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	rtrResponder  = rtrConnected | AttrMaxDestRdAtomic | AttrMinRNRTimer
	rtsRequester  = AttrSQPSN | AttrMaxRdAtomic | AttrTimeout | AttrRetryCnt | AttrRNRRetry
)

// required lists the attributes that each transition on the way from RESET over INIT and RTR to RTS requires (IBTA
// 11.2.5.2 table 91; Linux, qp_state_table).
var required = map[QPType]map[QPState]QPAttrMask{
	RC:     {StateInit: initConnected, StateRTR: rtrResponder, StateRTS: rtsRequester},
	UC:     {StateInit: initConnected, StateRTR: rtrConnected, StateRTS: AttrSQPSN},
	UD:     {StateInit: AttrPKeyIndex | AttrPort | AttrQKey, StateRTS: AttrSQPSN},
	GSI:    {StateInit: AttrPKeyIndex | AttrQKey, StateRTS: AttrSQPSN},
	XRCINI: {StateInit: initConnected, StateRTR: rtrConnected, StateRTS: rtsRequester},
	XRCTGT: {StateInit: initConnected, StateRTR: rtrResponder, StateRTS: AttrSQPSN | AttrTimeout},
}

// Required returns the attributes, AttrState included, that Modify must be given to take a QP of that type to INIT, RTR
// or RTS from the state before it.
func Required(t QPType, to QPState) QPAttrMask { return AttrState | required[t][to] }

// ModifyTo takes a QP through states, in that order, with the attributes that each transition requires ([Required]):
// from RESET to INIT, RTR and RTS, or only a part of this way. attr has the attributes of all of them; its State does
// not matter. If Modify returns an error ModifyTo returns that, and the QP stays in the state that it has reached.
func ModifyTo(q QP, attr QPAttr, states ...QPState) error {
	for _, state := range states {
		attr.State = state
		if err := q.Modify(attr, Required(q.Type(), state)); err != nil {
			return err
		}
	}
	return nil
}
