package cm

import (
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// The hosts of testdata/rping.txt.
const (
	rpingService = 0x0106_1C06 // TCP port 7174
	clientGUID   = 0x5054_00FF_FE00_0002
	serverGUID   = 0x5054_00FF_FE00_0001
)

var (
	clientGID = ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 13: 168, 14: 77, 15: 2}
	serverGID = ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 13: 168, 14: 77, 15: 1}
)

// readMADs reads the messages that two Linux hosts exchanged.
func readMADs(t *testing.T) map[string]*[wire.MADLen]byte {
	file, err := os.ReadFile("testdata/rping.txt")
	if err != nil {
		t.Fatal(err)
	}
	mads := map[string]*[wire.MADLen]byte{}
	for _, part := range strings.Split(string(file), "\n\n")[1:] {
		name, digits, _ := strings.Cut(part, "\n")
		b, err := hex.DecodeString(strings.ReplaceAll(digits, "\n", ""))
		if err != nil || len(b) != wire.MADLen {
			t.Fatalf("testdata/rping.txt, %s: %d bytes, %v; want %d", name, len(b), err, wire.MADLen)
		}
		mads[name] = (*[wire.MADLen]byte)(b)
	}
	return mads
}

// same compares a message of this package with Linux's, byte by byte, after patch has copied the values that may
// differ.
func same(t *testing.T, name string, ours, linux [wire.MADLen]byte, patch func(h, linux *wire.MADHeader)) {
	t.Helper()
	var h, lh wire.MADHeader
	h.Decode(&ours)
	lh.Decode(&linux)
	patch(&h, &lh)
	h.Put(&ours)
	if d := cmp.Diff(hex.Dump(linux[:]), hex.Dump(ours[:])); d != "" {
		t.Errorf("%s differs from Linux's (-) in more than it may:\n%s", name, d)
	}
}

// differ copies Linux's value of a field, which must differ.
func differ[T comparable](t *testing.T, name string, ours *T, linux T) {
	t.Helper()
	if *ours == linux {
		t.Errorf("%s is Linux's %v by chance, or on purpose: then take it off the list", name, linux)
	}
	*ours = linux
}

func message(t *testing.T, m *Manager) [wire.MADLen]byte {
	t.Helper()
	var out Message
	if !m.NextMessage(&out) {
		t.Fatal("no message")
	}
	return out.MAD
}

// The messages of our active end equal Linux's, except for IDs and numbers of our own and a shorter response timeout
// (see localResponse).
func TestActiveLikeLinux(t *testing.T) {
	mads := readMADs(t)
	m := New(Options{GUID: clientGUID, Seed: seedOf(1)})
	id, err := m.Connect(0, Connect{
		Params: Params{QPN: 0x29, Service: ib.RC, ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetry: 7},
		Path:   Path{Local: clientGID, Remote: serverGID, FlowLabel: 0xCD1B0}, ServiceID: rpingService, SrcPort: 0xED16,
		PathMTU: ib.MTU1024, AckTimeout: 19, GiveUp: driver.Never,
	})
	if err != nil {
		t.Fatal(err)
	}
	ours := message(t, m)
	var req, linux wire.REQ
	req.Decode(&ours)
	linux.Decode(mads["REQ"])
	differ(t, "REQ.LocalID", &req.LocalID, linux.LocalID)
	differ(t, "REQ.StartingPSN", &req.StartingPSN, linux.StartingPSN)
	differ(t, "REQ.LocalResponseTimeout", &req.LocalResponseTimeout, linux.LocalResponseTimeout)
	psn := m.conns[id].params.RQPSN
	req.Put(&ours)
	var reqTID uint64
	same(t, "REQ", ours, *mads["REQ"], func(h, lh *wire.MADHeader) {
		reqTID = h.TID
		differ(t, "REQ's TID", &h.TID, lh.TID)
	})

	// Linux's REP, to our ID.
	var rep wire.REP
	rep.Decode(mads["REP"])
	rep.RemoteID = uint32(id)
	rep.Put(mads["REP"])
	m.Handle(0, Path{Local: clientGID, Remote: serverGID}, mads["REP"][:])
	var e Event
	m.NextEvent(&e)
	want := Event{Kind: Replied, ID: id, PrivateData: make([]byte, 196),
		Conn: ConnParams{RemoteQPN: 0x29, RQPSN: psn, SQPSN: 0x2D5803,
			Service: ib.RC, PathMTU: ib.MTU1024, ResponderResources: 1, InitiatorDepth: 1, AckTimeout: 19,
			RetryCount: 7,
			RNRRetry:   7}}
	if d := cmp.Diff(want, e); d != "" {
		t.Fatal("Linux's REP:", d)
	}

	// RTU and DREQ have the IDs of both; the RTU has the REQ's TID.
	if err := m.Confirm(0, id, nil); err != nil {
		t.Fatal(err)
	}
	ours = message(t, m)
	var rtu wire.RTU
	rtu.Decode(&ours)
	differ(t, "RTU.LocalID", &rtu.LocalID, linux.LocalID)
	rtu.Put(&ours)
	same(t, "RTU", ours, *mads["RTU"], func(h, lh *wire.MADHeader) {
		if h.TID != reqTID {
			t.Error("the RTU does not have the REQ's TID")
		}
		h.TID = lh.TID
	})
	if err := m.Disconnect(0, id, nil); err != nil {
		t.Fatal(err)
	}
	ours = message(t, m)
	var dreq wire.DREQ
	dreq.Decode(&ours)
	differ(t, "DREQ.LocalID", &dreq.LocalID, linux.LocalID)
	dreq.Put(&ours)
	same(t, "DREQ", ours, *mads["DREQ"], func(h, lh *wire.MADHeader) { h.TID = lh.TID })
}

// Our passive end accepts Linux's messages and answers as Linux does, except for numbers of its own.
func TestPassiveLikeLinux(t *testing.T) {
	mads := readMADs(t)
	m := New(Options{GUID: serverGUID, Seed: seedOf(1)})
	l, err := m.Listen(rpingService, netip.Addr{}, false)
	if err != nil {
		t.Fatal(err)
	}
	path := Path{Local: serverGID, Remote: clientGID}
	m.Handle(0, path, mads["REQ"][:])
	var e Event
	m.NextEvent(&e)
	want := Event{Kind: Request, ID: e.ID, Listener: l, HasHeader: true, PrivateData: make([]byte, 56),
		Path:   Path{Local: serverGID, Remote: clientGID, FlowLabel: 0xCD1B0, HopLimit: 64},
		Header: wire.CMHeader{Src: clientGID, Dst: serverGID, SrcPort: 0xED16},
		Conn: ConnParams{RemoteQPN: 0x29, RQPSN: e.Conn.RQPSN, SQPSN: 0x8797E9, Service: ib.RC, PathMTU: ib.MTU1024,
			ResponderResources: 1, InitiatorDepth: 1, AckTimeout: 19, RetryCount: 7, RNRRetry: 7},
	}
	if d := cmp.Diff(want, e); d != "" {
		t.Fatal("Linux's REQ:", d)
	}
	_, err = m.Accept(0, e.ID, Params{QPN: 0x29, ResponderResources: 1, InitiatorDepth: 1, RNRRetry: 7})
	if err != nil {
		t.Fatal(err)
	}
	ours := message(t, m)
	var rep, linux wire.REP
	rep.Decode(&ours)
	linux.Decode(mads["REP"])
	differ(t, "REP.LocalID", &rep.LocalID, linux.LocalID)
	differ(t, "REP.StartingPSN", &rep.StartingPSN, linux.StartingPSN)
	rep.Put(&ours)
	same(t, "REP", ours, *mads["REP"], func(h, lh *wire.MADHeader) {})

	var rtu wire.RTU
	rtu.Decode(mads["RTU"])
	rtu.RemoteID = uint32(e.ID)
	rtu.Put(mads["RTU"])
	m.Handle(0, path, mads["RTU"][:])
	var dreq wire.DREQ
	dreq.Decode(mads["DREQ"])
	dreq.RemoteID = uint32(e.ID)
	dreq.Put(mads["DREQ"])
	m.Handle(0, path, mads["DREQ"][:])
	for _, kind := range []EventKind{Established, Disconnected} {
		if m.NextEvent(&e); e.Kind != kind {
			t.Fatalf("event %v, want %v", e.Kind, kind)
		}
	}
	ours = message(t, m)
	var drep wire.DREP
	drep.Decode(&ours)
	differ(t, "DREP.LocalID", &drep.LocalID, linux.LocalID)
	drep.Put(&ours)
	same(t, "DREP", ours, *mads["DREP"], func(h, lh *wire.MADHeader) {})
}
