package qp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
)

// checkModify calls Modify and expects an *ib.AttrError for attr that contains text, or
// success if text is empty.
func checkModify(t *testing.T, h *host, row attrRow, a ib.QPAttr, mask ib.QPAttrMask, attr, text string) {
	t.Helper()
	before := h.q.Query()
	a.CurState = row.from
	err := h.modify(row.to, a, mask)
	name := fmt.Sprintf("%v to %v with %v", row.from, row.to, mask)
	if text == "" {
		if err != nil {
			t.Errorf("%s: got error %v, want none", name, err)
		}
		return
	}
	var ae *ib.AttrError
	if !errors.As(err, &ae) || !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("%s: %v; want an *ib.AttrError that wraps ib.ErrInvalid", name, err)
		return
	}
	if ae.Attr != attr || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %s: %s", name, err, attr, text)
	}
	if !strings.Contains(ae.Op, fmt.Sprintf("QP 0x11 %v to %v", row.from, row.to)) {
		t.Errorf("%s: the error names the change as %q, want QP 0x11 %v to %v", name, ae.Op, row.from, row.to)
	}
	if after := h.q.Query(); after != before {
		t.Errorf("%s: refused, but changed %+v to %+v", name, before, after)
	}
}

// TestModifyValues tries values of each attribute at and beyond its limits. The
// device has 1 GID, an MTU of 4096 and a MaxRdAtomic of 16 in both directions.
func TestModifyValues(t *testing.T) {
	ok := ""
	up := map[string]attrRow{
		"INIT": rowOf(ib.RC, ib.StateReset, ib.StateInit), "RTR": rowOf(ib.RC, ib.StateInit, ib.StateRTR),
		"RTS": rowOf(ib.RC, ib.StateRTR, ib.StateRTS),
	}
	for _, c := range []struct {
		to   string
		attr string
		set  func(a *ib.QPAttr)
		want string // value and allowed values in the error; empty for no error
	}{
		{"INIT", "Port", func(a *ib.QPAttr) { a.Port = 0 }, "is 0: invalid argument; allowed: 1"},
		{"INIT", "Port", func(a *ib.QPAttr) { a.Port = 2 }, "is 2: invalid argument; allowed: 1"},
		{"INIT", "PKeyIndex", func(a *ib.QPAttr) { a.PKeyIndex = 1 }, "is 1: invalid argument; allowed: 0"},
		{"INIT", "Access", func(a *ib.QPAttr) { a.Access = 0 }, ok},
		{"INIT", "Access", func(a *ib.QPAttr) { a.Access = ib.BindWindows },
			"is 0x10: invalid argument; allowed: any of RemoteWrite"},
		{"RTR", "PathMTU", func(a *ib.QPAttr) { a.PathMTU = 4096 }, ok},
		{"RTR", "PathMTU", func(a *ib.QPAttr) { a.PathMTU = 0 },
			"is 0: invalid argument; allowed: 256, 512, 1024, 2048 or 4096"},
		{"RTR", "PathMTU", func(a *ib.QPAttr) { a.PathMTU = 1500 }, "is 1500: invalid argument; allowed: 256"},
		{"RTR", "PathMTU", func(a *ib.QPAttr) { a.PathMTU = 8192 },
			"above the port's active MTU of 4096 for short messages only"},
		{"RTR", "DestQPN", func(a *ib.QPAttr) { a.DestQPN = 2 }, ok},
		{"RTR", "DestQPN", func(a *ib.QPAttr) { a.DestQPN = 0xFFFFFE }, ok},
		{"RTR", "DestQPN", func(a *ib.QPAttr) { a.DestQPN = 1 }, "is 0x1: invalid argument; allowed: 2 to 0xfffffe"},
		{"RTR", "DestQPN", func(a *ib.QPAttr) { a.DestQPN = 0xFFFFFF }, "is 0xffffff: invalid argument"},
		{"RTR", "RQPSN", func(a *ib.QPAttr) { a.RQPSN = 0xFFFFFF }, ok},
		{"RTR", "RQPSN", func(a *ib.QPAttr) { a.RQPSN = 0x1000000 },
			"is 0x1000000: invalid argument; allowed: 24 bits"},
		{"RTR", "MaxDestRdAtomic", func(a *ib.QPAttr) { a.MaxDestRdAtomic = 0 }, ok},
		{"RTR", "MaxDestRdAtomic", func(a *ib.QPAttr) { a.MaxDestRdAtomic = 16 }, ok},
		{"RTR", "MaxDestRdAtomic", func(a *ib.QPAttr) { a.MaxDestRdAtomic = 17 },
			"is 17: invalid argument; allowed: 0 to 16"},
		{"RTR", "MaxDestRdAtomic", func(a *ib.QPAttr) { a.MaxDestRdAtomic = -1 },
			"is -1: invalid argument; allowed: 0 to 16"},
		{"RTR", "MinRNRTimer", func(a *ib.QPAttr) { a.MinRNRTimer = 31 }, ok},
		{"RTR", "MinRNRTimer", func(a *ib.QPAttr) { a.MinRNRTimer = 32 }, "is 32: invalid argument; allowed: 0 to 31"},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.SGIDIndex = 1 }, "is SGID index 1: invalid argument; allowed: 0 to 0"},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.SGIDIndex = -1 }, "is SGID index -1: invalid argument"},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.DGID = ib.GID{} },
			"is DGID 0000:0000:0000:0000:0000:0000:0000:0000: invalid argument; allowed: an IP address"},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.DGID = ib.GID{0: 0xFF, 1: 0x0E, 15: 1} }, "is DGID ff0e:"},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.DGID = ib.GID{10: 0xFF, 11: 0xFF, 12: 224, 15: 1} }, "is DGID 0000:"},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.Port = 0 }, ok},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.Port = 2 }, "is AH port 2: invalid argument; allowed: 1"},
		{"RTR", "AH", func(a *ib.QPAttr) { a.AH.FlowLabel = 1 << 20 },
			"is flow label 0x100000: invalid argument; allowed: 20 bits"},
		{"RTS", "SQPSN", func(a *ib.QPAttr) { a.SQPSN = 1 << 24 }, "is 0x1000000: invalid argument; allowed: 24 bits"},
		{"RTS", "MaxRdAtomic", func(a *ib.QPAttr) { a.MaxRdAtomic = 17 }, "is 17: invalid argument; allowed: 0 to 16"},
		{"RTS", "MaxRdAtomic", func(a *ib.QPAttr) { a.MaxRdAtomic = -1 }, "is -1: invalid argument; allowed: 0 to 16"},
		{"RTS", "Timeout", func(a *ib.QPAttr) { a.Timeout = 31 }, ok},
		{"RTS", "Timeout", func(a *ib.QPAttr) { a.Timeout = 32 }, "is 32: invalid argument; allowed: 0 to 31"},
		{"RTS", "RetryCnt", func(a *ib.QPAttr) { a.RetryCnt = 8 }, "is 8: invalid argument; allowed: 0 to 7"},
		{"RTS", "RNRRetry", func(a *ib.QPAttr) { a.RNRRetry = 8 }, "is 8: invalid argument; allowed: 0 to 7"},
	} {
		row := up[c.to]
		h := hostIn(t, row.from)
		a := goodAttr(peerNum, ourPSN, peerPSN)
		c.set(&a)
		checkModify(t, h, row, a, row.mask(), c.attr, c.want)
	}
}

// TestModifyState checks errors about the state itself.
func TestModifyState(t *testing.T) {
	for _, c := range []struct {
		from, to, cur ib.QPState
		err           error
		want          string
	}{
		{ib.StateRTS, ib.StateRTR, ib.StateRTS, ib.ErrState,
			"State is RTR: wrong state; allowed: from RTS: RESET, ERR, RTS, SQD"},
		{ib.StateReset, ib.StateRTS, ib.StateReset, ib.ErrState,
			"State is RTS: wrong state; allowed: from RESET: RESET, ERR, INIT"},
		{ib.StateRTS, ib.NumQPStates, ib.StateRTS, ib.ErrInvalid,
			"State is 7: invalid argument; allowed: RESET, INIT, RTR, " +
				"RTS, SQD or ERR"},
		{ib.StateRTS, 255, ib.StateRTS, ib.ErrInvalid, "State is 255"},
		{ib.StateRTS, ib.StateRTS, ib.StateRTR, ib.ErrState,
			"CurState is RTR: wrong state; allowed: RTS, " +
				"the state that the QP is in"},
	} {
		h := hostIn(t, c.from)
		a := goodAttr(peerNum, ourPSN, peerPSN)
		a.CurState = c.cur
		err := h.modify(c.to, a, ib.AttrCurState)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v to %v: %v; want %s", c.from, c.to, err, c.want)
		}
		if h.q.State() != c.from {
			t.Errorf("%v to %v: refused, and got a QP in %v, want %v", c.from, c.to, h.q.State(), c.from)
		}
	}
}

// TestModifyKeepsState checks that without AttrState the state stays the same, and
// the attributes are those of the transition to the same state.
func TestModifyKeepsState(t *testing.T) {
	h := hostIn(t, ib.StateRTS)
	a := ib.QPAttr{State: ib.StateErr, MinRNRTimer: 3, RateLimit: 1000}
	h.must(h.q.Modify(0, &a, ib.AttrMinRNRTimer|ib.AttrRateLimit))
	got := h.q.Query()
	if got.State != ib.StateRTS || got.CurState != ib.StateRTS || got.MinRNRTimer != 3 || got.RateLimit != 1000 ||
		got.Timeout != 14 {
		t.Errorf("got %+v, want RTS, MinRNRTimer 3, RateLimit 1000 and Timeout 14", got)
	}
}

// TestResetAfterOverrun: RESET ends the error state of a QP whose CQ overran.
func TestResetAfterOverrun(t *testing.T) {
	h, _ := connectedBy(t, ib.UC, false)
	for range 4 * hostEntries {
		if h.q.State() == ib.StateRTS {
			h.post(&ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled})
			h.emit(0, 1)
		}
	}
	if h.q.State() != ib.StateErr {
		t.Fatalf("after an overrun: got a QP in %v, want ERR", h.q.State())
	}
	h.events()
	h.must(h.modify(ib.StateReset, ib.QPAttr{}, 0))
	if events := h.events(); h.q.State() != ib.StateReset || len(events) > 0 {
		t.Errorf("got a QP in %v with events %v, want RESET without", h.q.State(), events)
	}
}
