package cm

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

func TestNoListener(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService+1, false)
	B.listen(testService, true) // takes no REQ
	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	if e := A.event(Rejected); e.ID != a || e.Reason != ib.RejectInvalidServiceID {
		t.Fatalf("A got %+v, want REJ with reason %v", e, ib.RejectInvalidServiceID)
	}
	_, err = A.Resolve(w.now, Resolve{Path: A.pathTo(B), ServiceID: testService + 1, GiveUp: driver.Never})
	w.check(err)
	if e := A.event(Rejected); !e.Datagram || e.Status != ib.SIDRUnsupported {
		t.Fatalf("A got %+v, want SIDR_REP with status %v", e, ib.SIDRUnsupported)
	}
	w.want("A REQ", "B REJ", "A SIDR_REQ", "B SIDR_REP")
	if B.Stats().NoListener != 2 {
		t.Fatal("not counted:", B.stats)
	}
	w.empty()
}

// A consumer rejects with a reason: the acceptor of a request, the connector of a reply, and a datagram service.
func TestReject(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	B.listen(testService, true)
	info, private := []byte("info"), []byte("why not")
	want := Event{Kind: Rejected, Reason: ib.RejectConsumer, Info: info, PrivateData: padded("why not", 148)}

	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	w.check(B.Reject(w.now, B.event(Request).ID, ib.RejectConsumer, info, private))
	want.ID = a
	if d := cmp.Diff(want, A.event(Rejected)); d != "" {
		t.Fatal(d)
	}

	a, err = A.Connect(w.now, A.wish(B))
	w.check(err)
	b := B.event(Request).ID
	_, err = B.Accept(w.now, b, consent())
	w.check(err)
	A.event(Replied)
	w.check(A.Reject(w.now, a, ib.RejectConsumer, info, private))
	want.ID = b
	if d := cmp.Diff(want, B.event(Rejected)); d != "" {
		t.Fatal(d)
	}

	a, err = A.Resolve(w.now, Resolve{Path: A.pathTo(B), ServiceID: testService, GiveUp: driver.Never})
	w.check(err)
	w.check(B.Reject(w.now, B.event(Request).ID, ib.RejectConsumer, info, private))
	want = Event{Kind: Rejected, ID: a, Datagram: true, Status: ib.SIDRReject, Info: info,
		PrivateData: padded("why not", 136)}
	if d := cmp.Diff(want, A.event(Rejected)); d != "" {
		t.Fatal(d)
	}
	w.want("A REQ", "B REJ", "A REQ", "B REP", "A REJ", "A SIDR_REQ", "B SIDR_REP")
	w.empty()
}

// Release tells the peer, in every state; the released end gets no event.
func TestRelease(t *testing.T) {
	for _, test := range []struct {
		name string
		to   int // steps of a connection's life: REQ, REP, RTU, DREQ
		who  string
		want []EventKind // of the other side
	}{
		{"REQ SENT", 1, "A", []EventKind{Dropped}},
		{"REQ RCVD", 1, "B", []EventKind{Rejected}},
		{"REP RCVD", 2, "A", []EventKind{Rejected}},
		{"REP SENT", 2, "B", []EventKind{Rejected}},
		{"ESTABLISHED active", 3, "A", []EventKind{Disconnected, TimewaitExit}},
		{"ESTABLISHED passive", 3, "B", []EventKind{Disconnected, TimewaitExit}},
		{"DREQ SENT", 4, "A", []EventKind{Disconnected, TimewaitExit}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, 2, Options{})
			A, B := w.hosts[0], w.hosts[1]
			B.listen(testService, false)
			a, b := w.request()
			if test.to >= 2 {
				_, err := B.Accept(w.now, b, consent())
				w.check(err)
				A.event(Replied)
			}
			if test.to >= 3 {
				w.check(A.Confirm(w.now, a, nil))
				B.event(Established)
			}
			if test.to >= 4 {
				w.check(A.Disconnect(w.now, a, nil)) // the DREQ is not on the wire yet
			}
			me, other, id := A, B, a
			if test.who == "B" {
				me, other, id = B, A, b
			}
			lingers := me.Release(w.now, id)
			if want := test.to >= 3; lingers != want {
				t.Errorf("Release says that the connection lingers: %t, want %t", lingers, want)
			}
			if err := me.Disconnect(w.now, id, nil); !errors.Is(err, ErrUnknownID) {
				t.Errorf("Disconnect after Release: %v, want %v", err, ErrUnknownID)
			}
			for _, kind := range test.want {
				other.wait(kind)
			}
			w.pass(10 * second)
			if lingers {
				me.event(Forgotten)
			}
			w.empty()
		})
	}
}

func TestUnlisten(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	l := B.listen(testService, false)
	B.listen(testService+1, false)
	accepted, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	_, err = B.Accept(w.now, B.event(Request).ID, consent())
	w.check(err)
	A.event(Replied)
	waiting := A.wish(B)
	waiting.QPN++
	_, err = A.Connect(w.now, waiting)
	w.check(err)
	other := A.wish(B)
	other.QPN, other.ServiceID = 0x105, testService+1
	_, err = A.Connect(w.now, other)
	w.check(err)
	B.event(Request)
	B.event(Request)

	B.Unlisten(l)
	B.event(Dropped)
	if e := A.event(Rejected); e.Reason != ib.RejectConsumer {
		t.Fatalf("A got %+v, want REJ with reason %v", e, ib.RejectConsumer)
	}
	w.check(A.Confirm(w.now, accepted, nil)) // what was accepted goes on
	B.event(Established)
	w.quiet()
	again := B.listen(testService, false)
	if again == l {
		t.Fatal("a listener's ID came again")
	}
}

// A listener for one GID has precedence over one for all, and accepts nothing else.
func TestListenGID(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	own, err := B.Listen(testService, B.gid.Addr(), false)
	w.check(err)
	_, err = B.Listen(testService, gidOf(77).Addr(), false)
	w.check(err)
	if _, err := B.Listen(testService, B.gid.Addr(), false); !errors.Is(err, ErrInUse) {
		t.Fatal("the second listener:", err)
	}
	all := B.listen(testService, false)
	ask := func() Event {
		c := A.wish(B)
		c.QPN = ib.QPN(0x1000 + len(w.sent))
		_, err := A.Connect(w.now, c)
		w.check(err)
		return B.event(Request)
	}
	if e := ask(); e.Listener != own {
		t.Fatalf("listener %d took it, want %d", e.Listener, own)
	}
	B.Unlisten(own)
	B.event(Dropped)
	A.event(Rejected)
	if e := ask(); e.Listener != all {
		t.Fatalf("listener %d took it, want %d", e.Listener, all)
	}
}

// Invalid contents of a REQ, and the reason of the REJ.
func TestObjections(t *testing.T) {
	for _, test := range []struct {
		name   string
		spoil  func(*wire.REQ)
		reason ib.RejectReason
	}{
		{"XRC", func(r *wire.REQ) { r.Transport, r.ExtTransport = wire.CMTransportExt, 1 },
			ib.RejectInvalidTransport},
		{"RD", func(r *wire.REQ) { r.Transport = 2 }, ib.RejectInvalidTransport},
		{"QP 0", func(r *wire.REQ) { r.QPN = 0 }, ib.RejectUnsupported},
		{"QP 1", func(r *wire.REQ) { r.QPN = 1 }, ib.RejectUnsupported},
		{"multicast QP", func(r *wire.REQ) { r.QPN = ib.QPNMulticast }, ib.RejectUnsupported},
		{"no MTU", func(r *wire.REQ) { r.PathMTU = 0 }, ib.RejectInvalidMTU},
		{"another GID", func(r *wire.REQ) { r.Primary.RemoteGID = gidOf(9) }, ib.RejectInvalidGID},
		{"another address", func(r *wire.REQ) { r.PrivateData[35]++ }, ib.RejectInvalidGID},
		{"header version", func(r *wire.REQ) { r.PrivateData[0] = 1 }, ib.RejectConsumer},
		{"IP version", func(r *wire.REQ) { r.PrivateData[1] = 0x50 }, ib.RejectConsumer},
	} {
		w := newWorld(t, 2, Options{})
		A, B := w.hosts[0], w.hosts[1]
		B.listen(testService, false)
		_, err := A.Connect(w.now, A.wish(B))
		w.check(err)
		var m Message
		A.NextMessage(&m)
		var req wire.REQ
		req.Decode(&m.MAD)
		test.spoil(&req)
		req.Put(&m.MAD)
		w.carry(A, m)
		e := A.event(Rejected)
		if e.Reason != test.reason {
			t.Errorf("%s: reason %d, want %d", test.name, e.Reason, test.reason)
		}
		if test.reason == ib.RejectInvalidGID && string(e.Info) != string(B.gid[:]) {
			t.Errorf("%s: the REJ names GID %x, want %x", test.name, e.Info, B.gid)
		}
		if B.stats.Refused != 1 {
			t.Errorf("%s: %d refused, want 1", test.name, B.stats.Refused)
		}
		w.empty()
	}
}

// The same of a SIDR_REQ.
func TestSIDRObjections(t *testing.T) {
	for name, spoil := range map[string]func(*wire.SIDRREQ){
		"another address": func(r *wire.SIDRREQ) { r.PrivateData[35]++ },
		"header version":  func(r *wire.SIDRREQ) { r.PrivateData[0] = 1 },
	} {
		w := newWorld(t, 2, Options{})
		A, B := w.hosts[0], w.hosts[1]
		B.listen(testService, true)
		_, err := A.Resolve(w.now, Resolve{Path: A.pathTo(B), ServiceID: testService})
		w.check(err)
		var m Message
		A.NextMessage(&m)
		var req wire.SIDRREQ
		req.Decode(&m.MAD)
		spoil(&req)
		req.Put(&m.MAD)
		w.carry(A, m)
		if e := A.event(Rejected); e.Status != ib.SIDRReject || B.stats.Refused != 1 {
			t.Errorf("%s: status %v; %+v; want %v, 1 refused", name, e.Status, B.stats, ib.SIDRReject)
		}
		w.empty()
	}
}

// A path within the subnet is marked as such, as in Linux; it has no LIDs.
func TestSubnetLocal(t *testing.T) {
	w := newWorld(t, 1, Options{})
	A := w.hosts[0]
	c := A.wish(A)
	c.Path.HopLimit = 1
	_, err := A.Connect(w.now, c)
	w.check(err)
	var m Message
	A.NextMessage(&m)
	var req wire.REQ
	req.Decode(&m.MAD)
	if p := req.Primary; !p.SubnetLocal || p.HopLimit != 1 || p.LocalLID != 0 || p.RemoteLID != 0 {
		t.Fatalf("%+v, want the local subnet, hop limit 1, no LIDs", p)
	}
}

// What is not a message of the communication manager is dropped and counted; only
// a REQ of another class version is answered.
func TestBadMAD(t *testing.T) {
	var good [wire.MADLen]byte
	format(&good, wire.AttrREQ, 1, &wire.REQ{LocalID: 5})
	path := Path{Local: gidOf(0), Remote: gidOf(1)}
	for _, test := range []struct {
		name  string
		mad   func(b []byte) []byte
		path  Path
		count func(*Stats) uint64
		want  string
	}{
		{"short", func(b []byte) []byte { return b[:255] }, path, func(s *Stats) uint64 { return s.BadLength }, ""},
		{"empty", func(b []byte) []byte { return nil }, path, func(s *Stats) uint64 { return s.BadLength }, ""},
		{"long", func(b []byte) []byte { return append(b, 0) }, path, func(s *Stats) uint64 { return s.BadLength }, ""},
		{"base version", func(b []byte) []byte { b[0] = 2; return b }, path,
			func(s *Stats) uint64 { return s.BadHeader }, ""},
		{"class", func(b []byte) []byte { b[1] = 3; return b }, path, func(s *Stats) uint64 { return s.BadHeader }, ""},
		{"method", func(b []byte) []byte { b[3] = 1; return b }, path, func(s *Stats) uint64 { return s.BadHeader },
			""},
		{"class version of a REQ", func(b []byte) []byte { b[2] = 1; return b }, path,
			func(s *Stats) uint64 { return s.BadHeader }, "REJ(REQ:31)"},
		{"class version of a REJ", func(b []byte) []byte { b[2], b[17] = 1, 0x12; return b }, path,
			func(s *Stats) uint64 { return s.BadHeader }, ""},
		{"LAP", func(b []byte) []byte { b[17] = 0x19; return b }, path, func(s *Stats) uint64 { return s.Unsupported },
			""},
		{"APR", func(b []byte) []byte { b[17] = 0x1A; return b }, path, func(s *Stats) uint64 { return s.Unsupported },
			""},
		{"ClassPortInfo", func(b []byte) []byte { b[17] = 1; return b }, path,
			func(s *Stats) uint64 { return s.Unsupported }, ""},
		{"high attribute", func(b []byte) []byte { b[16] = 0xFF; return b }, path,
			func(s *Stats) uint64 { return s.Unsupported }, ""},
		{"multicast source", func(b []byte) []byte { return b }, Path{Local: gidOf(0), Remote: ib.GID{0: 0xFF, 1: 2}},
			func(s *Stats) uint64 { return s.BadSource }, ""},
		{"no source", func(b []byte) []byte { return b }, Path{Local: gidOf(0)},
			func(s *Stats) uint64 { return s.BadSource }, ""},
	} {
		m := New(Options{})
		b := good
		m.Handle(0, test.path, test.mad(b[:]))
		got := ""
		var out Message
		for m.NextMessage(&out) {
			got += describe(&out.MAD)
		}
		if got != test.want || test.count(&m.stats) != 1 {
			t.Errorf("%s: answers %q, want %q; counted %+v", test.name, got, test.want, m.stats)
		}
	}
}

// A message with a connection's IDs that comes from another address, or names another QP, has no effect.
func TestForged(t *testing.T) {
	w := newWorld(t, 3, Options{})
	a, b := w.connect()
	A, B, C := w.hosts[0], w.hosts[1], w.hosts[2]
	forge := func(attr wire.CMAttr, x body) {
		var m Message
		m.Path = C.pathTo(A)
		format(&m.MAD, attr, 1, x)
		w.carry(C, m)
	}
	forge(wire.AttrDREQ, &wire.DREQ{LocalID: uint32(b), RemoteID: uint32(a), RemoteQPN: 0x100})
	forge(wire.AttrREJ, &wire.REJ{LocalID: uint32(b), RemoteID: uint32(a), Message: wire.MessageOther,
		Reason: ib.RejectConsumer})
	forge(wire.AttrREQ, &wire.REQ{LocalID: 77, CAGUID: B.opts.GUID, QPN: 0x200, ServiceID: 1})
	w.want("C DREQ", "C REJ", "C REQ", "A DREP", "A REJ")
	wrong := Message{Path: B.pathTo(A)}
	format(&wrong.MAD, wire.AttrDREQ, 1, &wire.DREQ{LocalID: uint32(b), RemoteID: uint32(a), RemoteQPN: 0x101})
	w.carry(B, wrong)
	w.want("B DREQ")
	for attr, x := range map[wire.CMAttr]body{ // another ID of B
		wire.AttrDREQ: &wire.DREQ{LocalID: uint32(b) + 1, RemoteID: uint32(a), RemoteQPN: 0x100},
		wire.AttrREP:  &wire.REP{LocalID: uint32(b) + 1, RemoteID: uint32(a), QPN: 0x300},
		wire.AttrREJ:  &wire.REJ{LocalID: uint32(b) + 1, RemoteID: uint32(a), Message: wire.MessageOther},
	} {
		m := Message{Path: B.pathTo(A)}
		format(&m.MAD, attr, 1, x)
		w.carry(B, m)
	}
	if A.stats.UnknownID != 5 {
		t.Errorf("%+v, want 5 unknown IDs", A.stats)
	}
	if A.conns[a].state != established || A.stats.WrongQPN != 1 {
		t.Fatalf("A is %v; %+v; want %v, 1 wrong QPN", A.conns[a].state, A.stats, established)
	}
	w.quiet()
}

// IDs and TID of a REJ, in each state, are those of Linux (cm_format_rej): an end that has not told its ID yet does not
// tell it in the REJ.
func TestREJFields(t *testing.T) {
	for _, test := range []struct {
		state string
		local bool
		want  wire.REJ
	}{
		{"REQ SENT", true, wire.REJ{Message: wire.MessageOther, Reason: ib.RejectTimeout,
			Info: []byte{0, 0, 0, 0, 0, 0, 0, 5}}},
		{"REQ RCVD", false, wire.REJ{RemoteID: peerID, Message: wire.MessageREQ, Reason: ib.RejectConsumer}},
		{"MRA(REQ) SENT", true, wire.REJ{RemoteID: peerID, Message: wire.MessageREQ, Reason: ib.RejectConsumer}},
		{"REP SENT", true, wire.REJ{RemoteID: peerID, Message: wire.MessageOther, Reason: ib.RejectConsumer}},
		{"REP RCVD", true, wire.REJ{RemoteID: peerID, Message: wire.MessageREP, Reason: ib.RejectConsumer}},
	} {
		i := slices.IndexFunc(labs, func(l labState) bool { return l.name == test.state })
		l := newLab(t, labs[i].reach)
		tid := l.m.conns[l.id].tid
		l.m.Release(l.now, l.id)
		var m Message
		l.m.NextMessage(&m)
		var h wire.MADHeader
		var got wire.REJ
		h.Decode(&m.MAD)
		got.Decode(&m.MAD)
		if test.local {
			test.want.LocalID = uint32(l.id)
		}
		test.want.PrivateData = make([]byte, wire.REJPrivateLen)
		if d := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); d != "" || h.TID != tid {
			t.Errorf("%s: TID %#x, want %#x; %s", test.state, h.TID, tid, d)
		}
	}
}

// TestRejectedByOneID: a REJ of reason timeout whose sender knows only its own ID ends what that sender cannot know the
// other ID of. A connection ends by both IDs: whoever knows only the ID of the peer cannot end it.
func TestRejectedByOneID(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	a, b := w.connect()
	var mad [wire.MADLen]byte
	format(&mad, wire.AttrREJ, 1, &wire.REJ{LocalID: uint32(a), Message: wire.MessageOther, Reason: ib.RejectTimeout,
		Info: binary.BigEndian.AppendUint64(nil, A.opts.GUID)})
	B.Handle(w.now, Path{Local: B.gid, Remote: A.gid}, mad[:])
	if s := B.conns[b].state; s != established {
		t.Errorf("the connection is %v after a REJ with one ID, want %v", s, established)
	}
	format(&mad, wire.AttrREJ, 1, &wire.REJ{LocalID: uint32(a), RemoteID: uint32(b), Message: wire.MessageOther,
		Reason: ib.RejectTimeout})
	B.Handle(w.now, Path{Local: B.gid, Remote: A.gid}, mad[:])
	if s := B.conns[b].state; s != timewait {
		t.Errorf("the connection is %v after a REJ with both IDs, want %v", s, timewait)
	}
}

// An answer without a connection takes the path by which the message came, with its own hop limit.
func TestReplyPath(t *testing.T) {
	m := New(Options{})
	var mad [wire.MADLen]byte
	format(&mad, wire.AttrDREQ, 77, &wire.DREQ{LocalID: 1, RemoteID: 2})
	p := Path{Local: gidOf(0), Remote: gidOf(1), FlowLabel: 7, TrafficClass: 8, HopLimit: 3}
	m.Handle(0, p, mad[:])
	var out Message
	m.NextMessage(&out)
	p.HopLimit = 0
	if d := cmp.Diff(p, out.Path); d != "" {
		t.Error(d)
	}
}

func TestPrivateDataLimits(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	B.listen(testService, true)
	B.listen(1, false)
	B.listen(1, true)
	tooLong := func(what string, err error, most string) {
		t.Helper()
		if !errors.Is(err, ErrPrivate) || !strings.Contains(err.Error(), "at most "+most) {
			t.Errorf("%s: %v, want %v with at most %s", what, err, ErrPrivate, most)
		}
	}
	full := func(n int) []byte { return []byte(strings.Repeat("x", n)) }
	ask := func(service uint64, most int, limit string) ID {
		c := A.wish(B)
		c.QPN, c.ServiceID, c.PrivateData = ib.QPN(0x1000+len(w.sent)), service, full(most+1)
		_, err := A.Connect(w.now, c)
		tooLong("Connect", err, limit)
		c.PrivateData = full(most)
		_, err = A.Connect(w.now, c)
		w.check(err)
		e := B.event(Request)
		if string(e.PrivateData) != string(c.PrivateData) {
			t.Errorf("private data arrived as %q, want %q", e.PrivateData, c.PrivateData)
		}
		return e.ID
	}
	ask(1, 92, "92")
	b := ask(testService, 56, "56")
	resolve := func(service uint64, most int, limit string) ID {
		r := Resolve{Path: A.pathTo(B), ServiceID: service, PrivateData: full(most + 1), GiveUp: driver.Never}
		_, err := A.Resolve(w.now, r)
		tooLong("Resolve", err, limit)
		r.PrivateData = full(most)
		_, err = A.Resolve(w.now, r)
		w.check(err)
		return B.event(Request).ID
	}
	d := resolve(testService, 180, "180")
	resolve(1, 216, "216")

	_, err := B.Accept(w.now, b, Params{PrivateData: full(197)})
	tooLong("Accept", err, "196")
	tooLong("Reject", B.Reject(w.now, b, 28, nil, full(149)), "148")
	tooLong("Reject", B.Reject(w.now, b, 28, full(73), nil), "72")
	tooLong("Reject", B.Reject(w.now, d, 28, nil, full(137)), "136")
	tooLong("Answer", B.Answer(w.now, d, Answer{PrivateData: full(137)}), "136")
	tooLong("Answer", B.Answer(w.now, d, Answer{Info: full(73)}), "72")
	_, err = B.Accept(w.now, b, Params{QPN: 8, PrivateData: full(196)})
	w.check(err)
	a := A.event(Replied).ID
	tooLong("Confirm", A.Confirm(w.now, a, full(225)), "224")
	w.check(A.Confirm(w.now, a, full(224)))
	tooLong("Disconnect", A.Disconnect(w.now, a, full(221)), "220")
	w.check(A.Disconnect(w.now, a, full(220)))
	w.check(B.Answer(w.now, d, Answer{PrivateData: full(136), Info: full(72)}))
}

func TestConnectService(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	c := A.wish(B)
	c.Service = ib.UD
	if _, err := A.Connect(w.now, c); !errors.Is(err, ib.ErrInvalid) {
		t.Fatal("UD:", err)
	}
	c.Service = ib.UC
	_, err := A.Connect(w.now, c)
	w.check(err)
	if e := B.event(Request); e.Conn.Service != ib.UC {
		t.Fatal("the request is for", e.Conn.Service)
	}
}

// The error of a call in the wrong state names the state.
func TestErrorText(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A := w.hosts[0]
	a, err := A.Connect(w.now, A.wish(w.hosts[1]))
	w.check(err)
	err = A.Confirm(w.now, a, nil)
	for _, word := range []string{"confirm", "REQ SENT", "REP RCVD, MRA(REP) SENT"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want %q in it", err, word)
		}
	}
}
