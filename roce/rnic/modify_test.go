//go:build rnic && cgo

package rnic

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestQuery checks that Query returns the attributes that Modify has set.
func TestQuery(t *testing.T) {
	r := openRig(t)
	q := r.newQP(ib.RC)
	if attr := try(q.Query())(r); attr.State != ib.StateReset || attr.Cap.MaxSendWR < defaultCap.MaxSendWR ||
		attr.Cap.MaxInline < defaultCap.MaxInline {
		t.Errorf("a new QP is %+v, want %v with at least the defaults, %+v", attr, ib.StateReset, defaultCap)
	}
	r.ready(q, 0x123)
	attr := try(q.Query())(r)
	want := r.here()
	want.HopLimit = 64
	if attr.State != ib.StateRTS || attr.AH != want || attr.PathMTU != ib.MTU1024 || attr.DestQPN != 0x123 ||
		attr.SQPSN != firstPSN ||
		attr.Timeout != 14 || attr.RetryCnt != 7 || attr.RNRRetry != 7 || attr.MaxRdAtomic < 4 ||
		attr.MaxDestRdAtomic < 4 ||
		attr.MinRNRTimer != 1 || attr.Port != 1 || attr.Access != ib.RemoteWrite|ib.RemoteRead|ib.RemoteAtomic {
		t.Errorf("a QP in RTS is %+v;\nwant %v, to QP 0x123 by %+v, PSN %#x", attr, ib.StateRTS, want, firstPSN)
	}
	r.must(q.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState))
	if attr := try(q.Query())(r); attr.State != ib.StateReset {
		t.Errorf("after RESET the QP is in %v, want %v", attr.State, ib.StateReset)
	}
}

// TestRefusedModify checks that the error of a refused Modify names the attribute and has the
// right kind.
func TestRefusedModify(t *testing.T) {
	r := openRig(t)
	const rtr = ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic |
		ib.AttrMinRNRTimer
	good := func(change func(*ib.QPAttr)) ib.QPAttr {
		a := ib.QPAttr{State: ib.StateRTR, AH: r.here(), PathMTU: ib.MTU1024, DestQPN: 5, MaxDestRdAtomic: 1}
		change(&a)
		return a
	}
	for _, c := range []struct {
		name string
		attr ib.QPAttr
		mask ib.QPAttrMask
		want string
		err  error
	}{
		{"state that does not follow", ib.QPAttr{State: ib.StateRTS}, ib.AttrState, "State", ib.ErrState},
		{"no such state", ib.QPAttr{State: 9}, ib.AttrState, "State", ib.ErrInvalid},
		{"state it is not in", good(func(a *ib.QPAttr) { a.CurState = ib.StateRTS }), rtr | ib.AttrCurState, "CurState",
			ib.ErrState},
		{"attribute missing", good(func(a *ib.QPAttr) {}), rtr &^ ib.AttrRQPSN, "attribute mask", ib.ErrInvalid},
		{"attribute too many", good(func(a *ib.QPAttr) {}), rtr | ib.AttrQKey, "attribute mask", ib.ErrInvalid},
		{"path migration", good(func(a *ib.QPAttr) {}), rtr | ib.AttrAltPath, "attribute mask", ib.ErrNotSupported},
		{"path MTU of no code", good(func(a *ib.QPAttr) { a.PathMTU = 1000 }), rtr, "PathMTU", ib.ErrInvalid},
		{"path MTU too large", good(func(a *ib.QPAttr) { a.PathMTU = ib.MTU4096 }), rtr, "PathMTU", ib.ErrInvalid},
		{"GID that is not there", good(func(a *ib.QPAttr) { a.AH.SGIDIndex = 200 }), rtr, "AH", ib.ErrInvalid},
		{"GID beyond the C form", good(func(a *ib.QPAttr) { a.AH.SGIDIndex = 256 + r.gid.Index }), rtr, "AH",
			ib.ErrInvalid},
		{"GID of the other family", good(func(a *ib.QPAttr) { a.AH.DGID = ib.GID{0: 0xFD, 1: 0x77, 15: 9} }), rtr, "AH",
			ib.ErrInvalid},
		{"no way to it", good(func(a *ib.QPAttr) { a.AH.DGID = ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1")) }),
			rtr, "AH", ib.ErrInvalid},
		{"no peer", good(func(a *ib.QPAttr) { a.AH.DGID = ib.GID{} }), rtr, "AH", ib.ErrInvalid},
		{"PSN of 25 bits", good(func(a *ib.QPAttr) { a.RQPSN = 1 << 24 }), rtr, "RQPSN", ib.ErrInvalid},
		{"QPN of 25 bits", good(func(a *ib.QPAttr) { a.DestQPN = 1 << 24 }), rtr, "DestQPN", ib.ErrInvalid},
		{"RNR timer of 6 bits", good(func(a *ib.QPAttr) { a.MinRNRTimer = 32 }), rtr, "MinRNRTimer", ib.ErrInvalid},
		{"too many responder resources", good(func(a *ib.QPAttr) { a.MaxDestRdAtomic = 1000 }), rtr, "MaxDestRdAtomic",
			ib.ErrInvalid},
		{"port", ib.QPAttr{State: ib.StateInit, Port: 9}, ib.AttrState | ib.AttrPort | ib.AttrPKeyIndex | ib.AttrAccess,
			"Port", ib.ErrInvalid},
		{"rights", ib.QPAttr{Access: ib.BindWindows}, ib.AttrAccess, "Access", ib.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.in(t)
			q := r.newQP(ib.RC)
			r.toInit(q)
			err := q.Modify(c.attr, c.mask)
			if e := new(ib.AttrError); !errors.As(err, &e) || e.Attr != c.want || !errors.Is(err, c.err) {
				t.Errorf("%v: want %s, %v", err, c.want, c.err)
			}
			if attr := try(q.Query())(r); attr.State != ib.StateInit {
				t.Errorf("the refused call left %v, want %v", attr.State, ib.StateInit)
			}
			r.ready(q, 5) // the QP is still usable
			r.must(q.Close())
		})
	}
}

// TestRefusedPosts checks that posts are refused by state and by content, with typed errors.
func TestRefusedPosts(t *testing.T) {
	r := openRig(t)
	q := r.newQP(ib.RC)
	if _, err := q.PostRecv([]ib.RecvWR{{}}); !errors.Is(err, ib.ErrState) {
		t.Errorf("receive in RESET: %v, want %v", err, ib.ErrState)
	}
	r.toInit(q)
	if n, err := q.PostSend([]ib.SendWR{{Opcode: ib.WRSend}}); n != 0 || !errors.Is(err, ib.ErrState) {
		t.Errorf("send in INIT: %d accepted, %v; want 0 and %v", n, err, ib.ErrState)
	}
	r.recv(q, ib.RecvWR{})
	r.ready(q, q.Num())
	var long [100]byte
	for _, c := range []struct {
		attr string
		wr   ib.SendWR
		err  error
	}{
		{"Opcode", ib.SendWR{Opcode: 99}, ib.ErrInvalid},
		{"Opcode", ib.SendWR{Opcode: 10}, ib.ErrInvalid}, // libibverbs' TSO
		{"Flags", ib.SendWR{Opcode: ib.WRSend, Flags: 1 << 4}, ib.ErrInvalid},
		{"Flags", ib.SendWR{Opcode: ib.WRRead, Flags: ib.SendInline}, ib.ErrInvalid},
		{"SGL", ib.SendWR{Opcode: ib.WRSend, SGL: make([]ib.SGE, 99)}, ib.ErrInvalid},
		{"SGL", ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, SGL: make([]ib.SGE, 1)}, ib.ErrInvalid},
		{"length", ib.SendWR{Opcode: ib.WRFetchAdd, SGL: []ib.SGE{{Length: 7}}}, ib.ErrInvalid},
		{"RemoteAddr", ib.SendWR{Opcode: ib.WRFetchAdd, RemoteAddr: 4, SGL: []ib.SGE{{Length: 8}}}, ib.ErrInvalid},
		{"RemoteQPN", ib.SendWR{Opcode: ib.WRSend, RemoteQPN: 1 << 24}, ib.ErrInvalid},
	} {
		n, err := q.PostSend([]ib.SendWR{c.wr})
		if e := new(ib.AttrError); n != 0 || !errors.As(err, &e) || e.Attr != c.attr || !errors.Is(err, c.err) {
			t.Errorf("%+v: %d accepted, %v; want %s, %v", c.wr, n, err, c.attr, c.err)
		}
	}
	if _, err := q.PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline,
		Inline: append(long[:], make([]byte, 1000)...)}}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("too much inline: %v, want %v", err, ib.ErrInvalid)
	}
	if _, err := q.PostRecv([]ib.RecvWR{{SGL: make([]ib.SGE, 99)}}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("receive with too many pieces: %v, want %v", err, ib.ErrInvalid)
	}
	for attr, change := range map[string]func(*ib.QPInit){
		"Cap.MaxSendWR":  func(i *ib.QPInit) { i.Cap.MaxSendWR = 1 << 30 },
		"Cap.MaxRecvSGE": func(i *ib.QPInit) { i.Cap.MaxRecvSGE = -1 },
		"Cap.MaxInline":  func(i *ib.QPInit) { i.Cap.MaxInline = 1 << 20 },
		"Type":           func(i *ib.QPInit) { i.Type = ib.GSI },
	} {
		init := ib.QPInit{Type: ib.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: defaultCap}
		change(&init)
		_, err := r.pd.CreateQP(init)
		if e := new(ib.AttrError); !errors.As(err, &e) || e.Attr != attr {
			t.Errorf("%v: want %s named", err, attr)
		}
	}
}
