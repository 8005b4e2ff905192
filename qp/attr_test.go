package qp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
)

// attrRow is a row of the table of IBTA 11.2.5: the required and optional attributes
// of a change of state, as in Linux (ib_core, qp_state_table), and further optional
// ones of this package.
type attrRow struct {
	from, to ib.QPState
	must     string
	may      string
	ours     string
}

// mask returns the required attributes.
func (r attrRow) mask() ib.QPAttrMask { return attrBits(r.must) }

// attrRows has the changes of each service, except those to RESET and ERR. It
// differs from Linux on purpose:
//   - RoCE has no alternate path: AltPath and PathMigState are never accepted.
//   - Linux limits the rate of raw packet QPs only.
//   - Linux's table allows SQE to RTS for every service; only UC and UD reach SQE.
//   - In Linux a GSI QP is created for its port, and accepts none in Modify.
var attrRows = map[ib.QPType][]attrRow{
	ib.RC: {
		{ib.StateReset, ib.StateInit, "PKeyIndex Port Access", "", ""},
		{ib.StateInit, ib.StateInit, "", "PKeyIndex Port Access", ""},
		{ib.StateInit, ib.StateRTR, "AH PathMTU DestQPN RQPSN MaxDestRdAtomic MinRNRTimer", "PKeyIndex Access", ""},
		{ib.StateRTR, ib.StateRTS, "Timeout RetryCnt RNRRetry MaxRdAtomic SQPSN", "CurState Access MinRNRTimer",
			"RateLimit"},
		{ib.StateRTS, ib.StateRTS, "", "CurState Access MinRNRTimer", "RateLimit"},
		{ib.StateRTS, ib.StateSQD, "", "SQDNotify", ""},
		{ib.StateSQD, ib.StateRTS, "", "CurState Access MinRNRTimer", "RateLimit"},
		{ib.StateSQD, ib.StateSQD, "",
			"AH PKeyIndex Port MaxDestRdAtomic Timeout RetryCnt RNRRetry MaxRdAtomic Access " +
				"MinRNRTimer", "RateLimit"},
	},
	ib.UC: {
		{ib.StateReset, ib.StateInit, "PKeyIndex Port Access", "", ""},
		{ib.StateInit, ib.StateInit, "", "PKeyIndex Port Access", ""},
		{ib.StateInit, ib.StateRTR, "AH PathMTU DestQPN RQPSN", "PKeyIndex Access", ""},
		{ib.StateRTR, ib.StateRTS, "SQPSN", "CurState Access", "RateLimit"},
		{ib.StateRTS, ib.StateRTS, "", "CurState Access", "RateLimit"},
		{ib.StateRTS, ib.StateSQD, "", "SQDNotify", ""},
		{ib.StateSQD, ib.StateRTS, "", "CurState Access", "RateLimit"},
		{ib.StateSQD, ib.StateSQD, "", "AH PKeyIndex Access", "RateLimit"},
		{ib.StateSQE, ib.StateRTS, "", "CurState Access", "RateLimit"},
	},
	ib.UD: {
		{ib.StateReset, ib.StateInit, "PKeyIndex Port QKey", "", ""},
		{ib.StateInit, ib.StateInit, "", "PKeyIndex Port QKey", ""},
		{ib.StateInit, ib.StateRTR, "", "PKeyIndex QKey", ""},
		{ib.StateRTR, ib.StateRTS, "SQPSN", "CurState QKey", ""},
		{ib.StateRTS, ib.StateRTS, "", "CurState QKey", "RateLimit"},
		{ib.StateRTS, ib.StateSQD, "", "SQDNotify", ""},
		{ib.StateSQD, ib.StateRTS, "", "CurState QKey", ""},
		{ib.StateSQD, ib.StateSQD, "", "PKeyIndex QKey", ""},
		{ib.StateSQE, ib.StateRTS, "", "CurState QKey", ""},
	},
	ib.GSI: {
		{ib.StateReset, ib.StateInit, "PKeyIndex QKey", "", "Port"},
		{ib.StateInit, ib.StateInit, "", "PKeyIndex QKey", "Port"},
		{ib.StateInit, ib.StateRTR, "", "PKeyIndex QKey", ""},
		{ib.StateRTR, ib.StateRTS, "SQPSN", "CurState QKey", ""},
		{ib.StateRTS, ib.StateRTS, "", "CurState QKey", "RateLimit"},
		{ib.StateRTS, ib.StateSQD, "", "SQDNotify", ""},
		{ib.StateSQD, ib.StateRTS, "", "CurState QKey", ""},
		{ib.StateSQD, ib.StateSQD, "", "PKeyIndex QKey", ""},
		{ib.StateSQE, ib.StateRTS, "", "CurState QKey", ""},
	},
	ib.XRCINI: {
		{ib.StateReset, ib.StateInit, "PKeyIndex Port Access", "", ""},
		{ib.StateInit, ib.StateInit, "", "PKeyIndex Port Access", ""},
		{ib.StateInit, ib.StateRTR, "AH PathMTU DestQPN RQPSN", "PKeyIndex Access", ""},
		{ib.StateRTR, ib.StateRTS, "Timeout RetryCnt RNRRetry MaxRdAtomic SQPSN", "CurState Access", "RateLimit"},
		{ib.StateRTS, ib.StateRTS, "", "CurState Access", "RateLimit"},
		{ib.StateRTS, ib.StateSQD, "", "SQDNotify", ""},
		{ib.StateSQD, ib.StateRTS, "", "CurState Access", "RateLimit"},
		{ib.StateSQD, ib.StateSQD, "", "AH PKeyIndex Port Timeout RetryCnt RNRRetry MaxRdAtomic Access", "RateLimit"},
	},
	ib.XRCTGT: {
		{ib.StateReset, ib.StateInit, "PKeyIndex Port Access", "", ""},
		{ib.StateInit, ib.StateInit, "", "PKeyIndex Port Access", ""},
		{ib.StateInit, ib.StateRTR, "AH PathMTU DestQPN RQPSN MaxDestRdAtomic MinRNRTimer", "PKeyIndex Access", ""},
		{ib.StateRTR, ib.StateRTS, "Timeout SQPSN", "CurState Access MinRNRTimer", "RateLimit"},
		{ib.StateRTS, ib.StateRTS, "", "CurState Access MinRNRTimer", "RateLimit"},
		{ib.StateRTS, ib.StateSQD, "", "SQDNotify", ""},
		{ib.StateSQD, ib.StateRTS, "", "CurState Access MinRNRTimer", "RateLimit"},
		{ib.StateSQD, ib.StateSQD, "", "AH PKeyIndex Port MaxDestRdAtomic Timeout Access MinRNRTimer", "RateLimit"},
	},
}

// rowOf returns the row of a change of state, or one without a name if there is
// none. RESET and ERR are legal from every state; Linux has no transition from RESET
// to ERR, and accepts no CurState with either.
func rowOf(t ib.QPType, from, to ib.QPState) attrRow {
	if to == ib.StateReset || to == ib.StateErr {
		return attrRow{from, to, "", "", "CurState"}
	}
	for _, r := range attrRows[t] {
		if r.from == from && r.to == to {
			return r
		}
	}
	return attrRow{}
}

// attrBits returns the mask of attributes by their names.
func attrBits(names string) (mask ib.QPAttrMask) {
	for name := range strings.FieldsSeq(names) {
		bit := ib.QPAttrMask(1)
		for bit.String() != name {
			if bit <<= 1; bit == 0 {
				panic("no attribute " + name)
			}
		}
		mask |= bit
	}
	return mask
}

// everyBit lists the attributes one by one.
func everyBit() (list []ib.QPAttrMask) {
	for bit := ib.QPAttrMask(1); bit <= ib.AttrRateLimit; bit <<= 1 {
		if bit != ib.AttrState && !strings.HasPrefix(bit.String(), "attr(") {
			list = append(list, bit)
		}
	}
	return list
}

// statesOf lists the states that QPs of a service can be in.
func statesOf(t ib.QPType) []ib.QPState {
	list := []ib.QPState{ib.StateReset, ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateSQD, ib.StateErr}
	if !Reliable(t) {
		list = append(list, ib.StateSQE)
	}
	return list
}

// forEachService runs a test for each service.
func forEachService(t *testing.T, test func(t *testing.T, typ ib.QPType)) {
	for typ := range ib.QPType(len(services)) {
		if Known(typ) {
			t.Run(typ.String(), func(t *testing.T) { test(t, typ) })
		}
	}
}

// TestModifyMask checks that the error names a missing required attribute or one that
// is not allowed, and that nothing changes.
func TestModifyMask(t *testing.T) {
	forEachService(t, func(t *testing.T, typ ib.QPType) {
		for _, from := range statesOf(typ) {
			for to := range ib.QPState(ib.NumQPStates) {
				if row := rowOf(typ, from, to); row != (attrRow{}) {
					checkMasks(t, typ, row)
				}
			}
		}
	})
}

// checkMasks tries a change of state with each required attribute missing, with each
// attribute that is not allowed, and with all that are allowed.
func checkMasks(t *testing.T, typ ib.QPType, row attrRow) {
	must, may := row.mask(), attrBits(row.may+" "+row.ours)
	h := serviceIn(t, typ, row.from)
	for _, bit := range everyBit() {
		want := ""
		switch {
		case bit&must != 0:
			want = "must also have " + bit.String()
		case bit&may == 0:
			want = "must not have " + bit.String()
		}
		checkModify(t, h, row, goodAttr(peerNum, ourPSN, peerPSN), must^bit, "attribute mask", want)
		if want == "" {
			h = serviceIn(t, typ, row.from)
		}
	}
	checkModify(t, h, row, goodAttr(peerNum, ourPSN, peerPSN), must|may, "", "")
}

// TestTransitions tries every change of state, with the attributes that it requires.
func TestTransitions(t *testing.T) {
	forEachService(t, func(t *testing.T, typ ib.QPType) {
		for _, from := range statesOf(typ) {
			for to := range ib.QPState(ib.NumQPStates + 1) {
				h := serviceIn(t, typ, from)
				row := rowOf(typ, from, to)
				err := h.modify(to, goodAttr(peerNum, ourPSN, peerPSN), row.mask())
				legal := row != (attrRow{})
				if (err == nil) != legal {
					t.Errorf("%v to %v: %v; want it legal: %v", from, to, err, legal)
				}
				after := from
				if legal {
					after = to
				}
				if h.q.State() != after {
					t.Errorf("%v to %v: got a QP in %v, want %v", from, to, h.q.State(), after)
				}
			}
		}
	})
}

// hostIn returns an RC QP in a state, without work requests.
func hostIn(t *testing.T, state ib.QPState) *host { return serviceIn(t, ib.RC, state) }

// serviceIn returns a QP of any service in a state, without work requests.
func serviceIn(t *testing.T, typ ib.QPType, state ib.QPState) *host {
	t.Helper()
	h := newServiceHost(t, typ, ourNum, false)
	h.into(state)
	return h
}

// into takes the QP from RESET to a state: to SQE by a request that fails.
func (h *host) into(state ib.QPState) {
	h.t.Helper()
	attr := goodAttr(peerNum, ourPSN, peerPSN)
	switch state {
	case ib.StateSQD, ib.StateErr:
		h.up(ib.StateRTS, attr)
		h.must(h.modify(state, attr, 0))
	case ib.StateSQE:
		h.up(ib.StateRTS, attr)
		h.failSend()
	default:
		h.up(state, attr)
	}
	if h.q.State() != state {
		h.t.Fatalf("the QP is in %v, want %v", h.q.State(), state)
	}
}

// failSend posts a request with an invalid L_Key, and takes its completion.
func (h *host) failSend() {
	h.t.Helper()
	h.post(&ib.SendWR{ID: 99, Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: memAddr, Length: 8, LKey: 0xBAD}}, AH: ahNum})
	if got, want := h.outcome(nil), fmt.Sprintf("send 99 %v", ib.WCLocProtErr); !strings.HasPrefix(got, want) {
		h.t.Fatalf("%q, want %q", got, want)
	}
}

// TestRequired compares the attributes that ib.Required names with the table.
func TestRequired(t *testing.T) {
	for service := range attrRows {
		for to := ib.StateInit; to <= ib.StateRTS; to++ {
			if got, want := ib.Required(service, to), ib.AttrState|rowOf(service, to-1, to).mask(); got != want {
				t.Errorf("%v to %v: ib.Required returns %v, want %v", service, to, got, want)
			}
		}
	}
}
