package cm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// padded returns private data as it arrives: padded to the whole field.
func padded(s string, n int) []byte { return append([]byte(s), make([]byte, n-len(s))...) }

func TestConnect(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	l := B.listen(testService, false)
	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)

	req := B.event(Request)
	psnA, psnB := req.Conn.SQPSN, req.Conn.RQPSN // B's is chosen already: it is needed for the QP, before Accept
	want := Event{Kind: Request, ID: req.ID, Listener: l, HasHeader: true,
		Path:        Path{Local: B.gid, Remote: A.gid, FlowLabel: 0x12345, HopLimit: 64},
		Header:      wire.CMHeader{Src: A.gid, Dst: B.gid, SrcPort: 40000},
		PrivateData: padded("hello", 56),
		Conn: ConnParams{RemoteQPN: 0x100, RQPSN: psnB, SQPSN: psnA, Service: ib.RC, PathMTU: ib.MTU1024,
			ResponderResources: 3, InitiatorDepth: 5, AckTimeout: 14, RetryCount: 6, RNRRetry: 4},
	}
	if d := cmp.Diff(want, req); d != "" {
		t.Fatal("event Request:", d)
	}

	// B accepts fewer READs than A wants to have outstanding, and wants more outstanding itself than A has offered to
	// accept. Both QPs get what B says, as with Linux.
	got, err := B.Accept(w.now, req.ID, consent())
	w.check(err)
	if psnA == psnB {
		t.Fatalf("both ends begin at PSN %#x, want two", psnA)
	}
	wantB := want.Conn
	wantB.ResponderResources, wantB.InitiatorDepth = 2, 16
	if d := cmp.Diff(wantB, got); d != "" {
		t.Fatal("Accept:", d)
	}

	rep := A.event(Replied)
	wantA := ConnParams{RemoteQPN: 0x200, RQPSN: psnA, SQPSN: psnB, Service: ib.RC, PathMTU: ib.MTU1024,
		ResponderResources: 16, InitiatorDepth: 2, AckTimeout: 14, RetryCount: 6, RNRRetry: 7}
	if d := cmp.Diff(Event{Kind: Replied, ID: a, Conn: wantA, PrivateData: padded("welcome", 196)}, rep); d != "" {
		t.Fatal("event Replied:", d)
	}

	w.check(A.Confirm(w.now, a, []byte("go")))
	est := B.event(Established)
	if d := cmp.Diff(Event{Kind: Established, ID: req.ID, Conn: wantB, PrivateData: padded("go", 224)}, est); d != "" {
		t.Fatal("event Established:", d)
	}
	w.want("A REQ", "B REP", "A RTU")
	w.pass(100 * second)
	w.want()

	w.check(A.Disconnect(w.now, a, []byte("bye")))
	if e := B.event(Disconnected); e.ID != req.ID || string(e.PrivateData[:4]) != "bye\x00" {
		t.Fatal("event Disconnected of B:", e)
	}
	if e := A.event(Disconnected); e.ID != a {
		t.Fatal("event Disconnected of A:", e)
	}
	w.want("A DREQ", "B DREP")
	w.pass(10 * second)
	A.event(TimewaitExit)
	B.event(TimewaitExit)
	w.want()
	w.empty()
}

func TestSIDR(t *testing.T) {
	const service = 0x0000000001111234 // UDP port 0x1234
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	l := B.listen(service, true)
	a, err := A.Resolve(w.now, Resolve{Path: A.pathTo(B), ServiceID: service, SrcPort: 9, PrivateData: []byte("who"),
		GiveUp: driver.Never})
	w.check(err)
	req := B.event(Request)
	want := Event{Kind: Request, ID: req.ID, Listener: l, Datagram: true, HasHeader: true,
		Path:        Path{Local: B.gid, Remote: A.gid, FlowLabel: 0x12345},
		Header:      wire.CMHeader{Src: A.gid, Dst: B.gid, SrcPort: 9},
		PrivateData: padded("who", 180),
	}
	if d := cmp.Diff(want, req); d != "" {
		t.Fatal("event Request:", d)
	}
	w.check(B.Answer(w.now, req.ID, Answer{QPN: 0x33, QKey: 0x01234567, PrivateData: []byte("me")}))
	got := A.event(Resolved)
	if d := cmp.Diff(Event{Kind: Resolved, ID: a, Datagram: true, Conn: ConnParams{RemoteQPN: 0x33}, QKey: 0x01234567,
		PrivateData: padded("me", 136)}, got); d != "" {
		t.Fatal("event Resolved:", d)
	}
	w.want("A SIDR_REQ", "B SIDR_REP")
	w.empty()
}
