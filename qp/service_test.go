package qp

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestServices checks which work requests and which packets each service supports.
func TestServices(t *testing.T) {
	all := []ib.WROpcode{
		ib.WRSend, ib.WRSendImm, ib.WRSendInv, ib.WRWrite, ib.WRWriteImm, ib.WRRead, ib.WRCompareSwap, ib.WRFetchAdd,
		ib.WRLocalInv, ib.WRBindMW, ib.WRFlush, ib.WRAtomicWrite,
	}
	for _, c := range []struct {
		typ                       ib.QPType
		wire                      wire.Service
		takes                     []ib.WROpcode
		reliable, datagram, sends bool
	}{
		{ib.RC, wire.RC, all, true, false, true},
		{ib.UC, wire.UC, []ib.WROpcode{ib.WRSend, ib.WRSendImm, ib.WRWrite, ib.WRWriteImm, ib.WRLocalInv, ib.WRBindMW},
			false, false, true},
		{ib.UD, wire.UD, []ib.WROpcode{ib.WRSend, ib.WRSendImm}, false, true, true},
		{ib.GSI, wire.UD, []ib.WROpcode{ib.WRSend, ib.WRSendImm}, false, true, true},
		{ib.XRCINI, wire.XRC, all, true, false, true},
		{ib.XRCTGT, wire.XRC, nil, true, false, false},
	} {
		if !Known(c.typ) || WireService(c.typ) != c.wire || Reliable(c.typ) != c.reliable ||
			Datagram(c.typ) != c.datagram || Sends(c.typ) != c.sends {
			t.Errorf("%v: known %v, %v, reliable %v, datagrams %v, sends %v;\nwant %+v", c.typ, Known(c.typ),
				WireService(c.typ), Reliable(c.typ), Datagram(c.typ), Sends(c.typ), c)
		}
		for op := range ib.WROpcode(255) {
			if got := SupportsSend(c.typ, op); got != slices.Contains(c.takes, op) {
				t.Errorf("%v takes %v: got %v, want %v", c.typ, op, got, !got)
			}
		}
		if SendOps(c.typ) == "" {
			t.Errorf("%v: nothing for people", c.typ)
		}
	}
	for typ := range ib.QPType(255) {
		known := slices.Contains([]ib.QPType{ib.GSI, ib.RC, ib.UC, ib.UD, ib.XRCINI, ib.XRCTGT}, typ)
		if Known(typ) != known {
			t.Errorf("type %d is known: got %v, want %v", typ, !known, known)
		}
	}
}
