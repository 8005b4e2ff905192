package server

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// oneOfEach makes an object of each kind, and returns their handles.
func oneOfEach(t *testing.T, c *bareSession) map[abi.Kind]abi.Handle {
	t.Helper()
	gids, err := c.unit.dev.GIDs(1)
	must(t, err)
	h := map[abi.Kind]abi.Handle{}
	h[abi.KindPD] = c.make(abi.OpAllocPD, nil)
	h[abi.KindXRCD] = c.make(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{}))
	h[abi.KindChannel] = c.make(abi.OpCreateChannel, nil)
	h[abi.KindCQ] = c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 4}))
	h[abi.KindSharedMemory] = c.make(abi.OpShareMemory, nil)
	h[abi.KindMR] = c.make(abi.OpRegMR, abi.Put(nil, &abi.RegMR{PD: h[abi.KindPD], Kind: abi.MemFD,
		File: h[abi.KindSharedMemory], Length: 4096}))
	h[abi.KindMW] = c.make(abi.OpAllocMW, abi.Put(nil, &abi.AllocMW{PD: h[abi.KindPD], Type: 1}))
	h[abi.KindAH] = c.make(abi.OpCreateAH, abi.Put(nil, &abi.CreateAH{PD: h[abi.KindPD],
		AH: abi.AH{DGID: gids[0].GID, Port: 1}}))
	h[abi.KindSRQ] = c.make(abi.OpCreateSRQ, abi.Put(nil, &abi.CreateSRQ{PD: h[abi.KindPD], MaxWR: 1, MaxSGE: 1}))
	h[abi.KindQP] = c.make(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{PD: h[abi.KindPD], SendCQ: h[abi.KindCQ],
		RecvCQ: h[abi.KindCQ], Type: uint32(ib.UD), MaxSendWR: 1, MaxSendSGE: 1}))
	h[abi.KindCMChannel] = c.makeChannel(abi.OpOpenCM)
	h[abi.KindCMID] = c.make(abi.OpCreateCMID, abi.Put(nil, &abi.CreateCMID{Channel: h[abi.KindCMChannel],
		Space: uint32(ib.PortSpaceUDP), Type: uint32(ib.UD)}))
	c.ask(abi.OpCMBind, abi.Put(nil, &abi.CMBind{ID: h[abi.KindCMID],
		Addr: abi.CMAddrOf(netip.AddrPortFrom(gids[0].GID.Addr(), 0))}))
	h[abi.KindMembership] = c.make(abi.OpCMJoin, abi.Put(nil, &abi.CMBind{ID: h[abi.KindCMID],
		Addr: abi.CMAddrOf(netip.MustParseAddrPort("239.1.2.3:0"))}))
	return h
}

// naming is a request in which a field is the handle of an object of a kind.
type naming struct {
	op    abi.Op
	field string
	kind  abi.Kind
	body  any // otherwise right
}

// with returns the body with another handle.
func (n *naming) with(h abi.Handle) []byte {
	v := reflect.New(reflect.TypeOf(n.body)).Elem()
	v.Set(reflect.ValueOf(n.body))
	v.FieldByName(n.field).Set(reflect.ValueOf(h))
	return slices.Clone(unsafe.Slice((*byte)(v.Addr().UnsafePointer()), v.Type().Size()))
}

// namings returns all requests with handles, once for each handle in them.
func namings(h map[abi.Kind]abi.Handle) []naming {
	region := abi.RegMR{PD: h[abi.KindPD], Kind: abi.MemFD, File: h[abi.KindSharedMemory], Length: 4096}
	srq := abi.CreateSRQ{PD: h[abi.KindPD], XRCD: h[abi.KindXRCD], CQ: h[abi.KindCQ], Type: uint32(ib.SRQXRC), MaxWR: 1,
		MaxSGE: 1}
	qp := abi.CreateQP{PD: h[abi.KindPD], SendCQ: h[abi.KindCQ], RecvCQ: h[abi.KindCQ], SRQ: h[abi.KindSRQ],
		Type: uint32(ib.RC), MaxSendWR: 1, MaxSendSGE: 1}
	group := abi.Group{GID: ib.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))}
	to := abi.CMAddrOf(netip.MustParseAddrPort("239.1.2.3:0"))
	all := []naming{
		{abi.OpCreateCQ, "Channel", abi.KindChannel, abi.CreateCQ{Entries: 1}},
		{abi.OpResizeCQ, "CQ", abi.KindCQ, abi.ResizeCQ{Entries: 8}},
		{abi.OpRegMR, "PD", abi.KindPD, region},
		{abi.OpRegMR, "File", abi.KindSharedMemory, region},
		{abi.OpReregMR, "MR", abi.KindMR, abi.ReregMR{Mask: 1, RegMR: region}},
		{abi.OpReregMR, "File", abi.KindSharedMemory, abi.ReregMR{MR: h[abi.KindMR], Mask: 1, RegMR: region}},
		{abi.OpReregMR, "PD", abi.KindPD, abi.ReregMR{MR: h[abi.KindMR], Mask: 2, RegMR: region}},
		{abi.OpAllocMW, "PD", abi.KindPD, abi.AllocMW{Type: 1}},
		{abi.OpCreateAH, "PD", abi.KindPD, abi.CreateAH{AH: abi.AH{DGID: group.GID, Port: 1}}},
		{abi.OpModifyAH, "Handle", abi.KindAH, abi.ModifyAH{AH: abi.AH{DGID: group.GID, Port: 1}}},
		{abi.OpCreateSRQ, "PD", abi.KindPD, srq},
		{abi.OpCreateSRQ, "XRCD", abi.KindXRCD, srq},
		{abi.OpCreateSRQ, "CQ", abi.KindCQ, srq},
		{abi.OpModifySRQ, "SRQ", abi.KindSRQ, abi.SRQAttr{Mask: 1, MaxWR: 16}},
		{abi.OpQuerySRQ, "SRQ", abi.KindSRQ, abi.SRQAttr{}},
		{abi.OpCreateQP, "PD", abi.KindPD, qp},
		{abi.OpCreateQP, "SendCQ", abi.KindCQ, qp},
		{abi.OpCreateQP, "RecvCQ", abi.KindCQ, qp},
		{abi.OpCreateQP, "SRQ", abi.KindSRQ, qp},
		{abi.OpCreateQP, "XRCD", abi.KindXRCD, abi.CreateQP{Type: uint32(ib.XRCTGT)}},
		{abi.OpOpenQP, "XRCD", abi.KindXRCD, abi.OpenQP{QPN: 1, Type: uint32(ib.XRCTGT)}},
		{abi.OpModifyQP, "QP", abi.KindQP, abi.QPAttr{Mask: uint32(ib.AttrState)}},
		{abi.OpQueryQP, "Handle", abi.KindQP, abi.Object{}},
		{abi.OpQPFailure, "Handle", abi.KindQP, abi.Object{}},
		{abi.OpAttach, "QP", abi.KindQP, group},
		{abi.OpDetach, "QP", abi.KindQP, group},
		{abi.OpCreateCMID, "Channel", abi.KindCMChannel, abi.CreateCMID{Type: uint32(ib.RC)}},
		{abi.OpCMEvent, "Handle", abi.KindCMChannel, abi.Object{}},
		{abi.OpCMBind, "ID", abi.KindCMID, abi.CMBind{Addr: to}},
		{abi.OpCMListen, "ID", abi.KindCMID, abi.CMListen{}},
		{abi.OpCMResolveAddr, "ID", abi.KindCMID, abi.CMResolve{Remote: to}},
		{abi.OpCMResolveRoute, "ID", abi.KindCMID, abi.CMResolve{}},
		{abi.OpCMConnect, "ID", abi.KindCMID, abi.CMConnect{}},
		{abi.OpCMAccept, "ID", abi.KindCMID, abi.CMConnect{}},
		{abi.OpCMEstablish, "Handle", abi.KindCMID, abi.Object{}},
		{abi.OpCMReject, "ID", abi.KindCMID, abi.CMReject{}},
		{abi.OpCMDelay, "ID", abi.KindCMID, abi.CMDelay{}},
		{abi.OpCMDisconnect, "Handle", abi.KindCMID, abi.Object{}},
		{abi.OpCMNotify, "ID", abi.KindCMID, abi.CMValue{}},
		{abi.OpCMJoin, "ID", abi.KindCMID, abi.CMBind{Addr: to}},
		{abi.OpCMLeave, "ID", abi.KindCMID, abi.CMBind{Addr: to}},
		{abi.OpCMInitQPAttr, "ID", abi.KindCMID, abi.CMValue{}},
		{abi.OpCMSetOption, "ID", abi.KindCMID, abi.CMValue{}},
		{abi.OpCMQuery, "Handle", abi.KindCMID, abi.Object{}},
		{abi.OpCMMigrate, "ID", abi.KindCMID, abi.CMValue{Value: int64(h[abi.KindCMChannel])}},
	}
	for k := range h {
		all = append(all, naming{abi.OpClose, "Handle", k, abi.Close{Kind: k}})
	}
	return all
}

// nameless are the requests without a handle.
var nameless = []abi.Op{abi.OpHello, abi.OpOpen, abi.OpQueryPort, abi.OpGIDs, abi.OpPKey, abi.OpClock, abi.OpAllocPD,
	abi.OpAllocXRCD, abi.OpCreateChannel, abi.OpOpenCM, abi.OpQueryDevice, abi.OpCounters, abi.OpHold,
	abi.OpShareDoorbells, abi.OpShareMemory}

// TestHandleOfAnotherKind: a request with the handle of an object of another kind is invalid, one with a handle of
// nothing is told that, and neither changes anything.
func TestHandleOfAnotherKind(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	objects := oneOfEach(t, c)
	rows := namings(objects)
	for _, op := range abi.Ops() {
		if !slices.Contains(nameless, op) && !slices.ContainsFunc(rows, func(n naming) bool { return n.op == op }) {
			t.Errorf("%v is in no row", op)
		}
	}
	before, usage := maps.Clone(c.objects), fmt.Sprint(s.Usage())
	for _, n := range rows {
		refused := func(what string, h abi.Handle, want error) {
			t.Helper()
			if _, err := c.try(n.op, n.with(h)); !errors.Is(err, want) {
				t.Errorf("%v, %s %s: %v, want %v", n.op, n.field, what, err, want)
			}
		}
		refused("of nothing", 1<<20, ib.ErrClosed)
		for k, h := range objects {
			if k != n.kind {
				refused(fmt.Sprintf("of the kind %v", k), h, ib.ErrInvalid)
			}
		}
	}
	if after := fmt.Sprint(s.Usage()); !maps.Equal(c.objects, before) || after != usage {
		t.Errorf("objects %v, and the user holds %s; want those before: %v, %s", c.objects, after, before, usage)
	}
	for _, k := range slices.Sorted(maps.Keys(objects)) { // users before what they use
		if _, err := c.try(abi.OpClose, c.closing(objects[k])); err != nil {
			t.Errorf("close the %v: %v", k, err)
		}
	}
}
