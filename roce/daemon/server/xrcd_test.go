package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/tests/require"
)

// share has a session open the XRC domain of a file.
func (c *bareSession) share(file *os.File, flags uint32) (abi.Handle, error) {
	c.t.Helper()
	r, err := c.answer(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{Flags: flags}), []int{int(file.Fd())})
	if err != nil {
		return 0, err
	}
	o, err := abi.Get[abi.Object](r.body)
	must(c.t, err)
	return o.Handle, nil
}

// closing returns the body of a request to close an object.
func (c *session) closing(h abi.Handle) []byte {
	r := abi.Close{Handle: h}
	if o := c.objects[h]; o != nil {
		r.Kind = o.kind
	}
	return abi.Put(nil, &r)
}

func (c *bareSession) close(h abi.Handle) error {
	_, err := c.answer(abi.OpClose, c.closing(h), nil)
	return err
}

func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestSharedDomain checks which sessions share an XRC domain: those of a user that name the same file, by
// the flags of ibv_open_xrcd.
func TestSharedDomain(t *testing.T) {
	s, _ := newServer(t)
	a, b, stranger := newBareSession(t, s), newBareSession(t, s), newBareSession(t, s)
	stranger.who.Uid++
	defer func() { stranger.who.Uid-- }() // whose account the connection is in
	file, other := newFile(t), newFile(t)
	again, err := os.Open(file.Name())
	must(t, err)
	defer again.Close()
	for _, step := range []struct {
		what  string
		c     *bareSession
		file  *os.File
		flags uint32
		want  error
	}{
		{"the file has none", a, file, 0, ib.ErrState},
		{"exclusive alone creates none", a, file, abi.XRCDExclusive, ib.ErrState},
		{"the first", a, file, abi.XRCDCreate | abi.XRCDExclusive, nil},
		{"the second, by another descriptor", b, again, 0, nil},
		{"create what is there", b, file, abi.XRCDCreate, nil},
		{"exclusive, what is there", b, file, abi.XRCDCreate | abi.XRCDExclusive, ib.ErrInvalid},
		{"another file", b, other, 0, ib.ErrState},
		{"another user", stranger, file, 0, ib.ErrState},
		{"another user creates its own", stranger, file, abi.XRCDCreate | abi.XRCDExclusive, nil},
	} {
		_, err := step.c.share(step.file, step.flags)
		if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
			t.Errorf("%s: %v, want %v", step.what, err, step.want)
		}
	}
	if n := len(s.units[0].domains.all); n != 2 {
		t.Errorf("%d domains, want 2", n)
	}
	a.leave()
	if _, err := b.share(file, 0); err != nil {
		t.Errorf("after the end of the session that has made it: %v", err)
	}
	b.leave()
	stranger.leave()
	if n := len(s.units[0].domains.all); n != 0 {
		t.Errorf("%d domains are left, want none", n)
	}
	_, err = a.answer(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{}), []int{0, 1})
	if !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("two descriptors: %v, want %v", err, ib.ErrInvalid)
	}
}

// TestOpenQP checks that a target QP without a PD belongs to all sessions that have it open: they modify and
// query it, get its events, and it ends with the last of them.
func TestOpenQP(t *testing.T) {
	s, _ := newServer(t)
	a, b := newBareSession(t, s), newBareSession(t, s)
	file := newFile(t)
	dom, err := a.share(file, abi.XRCDCreate)
	must(t, err)
	theirs, err := b.share(file, 0)
	must(t, err)
	made, err := abi.Get[abi.Ring](a.ask(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{XRCD: dom,
		Type: uint32(ib.XRCTGT)})))
	must(t, err)
	open := abi.OpenQP{XRCD: theirs, QPN: made.Num, Type: uint32(ib.XRCTGT)}
	for _, bad := range []abi.OpenQP{{XRCD: theirs, QPN: made.Num + 1, Type: uint32(ib.XRCTGT)},
		{XRCD: theirs, QPN: made.Num, Type: uint32(ib.RC)}} {
		if _, err := openQP(b.session, &bad); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("%+v: %v, want %v", bad, err, ib.ErrInvalid)
		}
	}
	first := b.make(abi.OpOpenQP, abi.Put(nil, &open))
	second := b.make(abi.OpOpenQP, abi.Put(nil, &open))
	for _, c := range []struct {
		*bareSession
		h abi.Handle
	}{{a, dom}, {b, theirs}} {
		if err := c.close(c.h); !errors.Is(err, ib.ErrBusy) {
			t.Errorf("a domain with a QP is closed: %v, want %v", err, ib.ErrBusy)
		}
	}
	modify := func(c *bareSession, h abi.Handle, state ib.QPState) {
		attr := ib.QPAttr{State: state, Port: 1}
		c.ask(abi.OpModifyQP, abi.Put(nil, new(abi.QPAttrOf(h, &attr, ib.AttrState|
			map[ib.QPState]ib.QPAttrMask{ib.StateInit: ib.AttrPort | ib.AttrPKeyIndex | ib.AttrAccess}[state]))))
	}
	stateOf := func(c *bareSession, h abi.Handle) ib.QPState {
		a, err := abi.Get[abi.QPAttr](c.ask(abi.OpQueryQP, abi.Put(nil, &abi.Object{Handle: h})))
		must(t, err)
		return ib.QPState(a.State)
	}
	modify(b, first, ib.StateInit)
	if got := stateOf(a, made.Handle); got != ib.StateInit {
		t.Errorf("the QP is in %v, want %v", got, ib.StateInit)
	}
	modify(a, made.Handle, ib.StateErr) // raises EventLastWQE
	for _, h := range []struct {
		c *bareSession
		h abi.Handle
	}{{a, made.Handle}, {b, first}, {b, second}} {
		if n := h.c.objects[h.h].events.Load(); n != 1 {
			t.Errorf("%d events of handle %d, want 1", n, h.h)
		}
	}
	must(t, b.close(second))
	a.leave()
	if got := stateOf(b, first); got != ib.StateErr {
		t.Errorf("after the end of the session that has made it the QP is in %v, want %v", got, ib.StateErr)
	}
	q := b.objects[first].value.(*device.QP)
	must(t, b.close(first))
	if _, err := q.Query(); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("the QP without handles: %v, want %v", err, ib.ErrClosed)
	}
	must(t, b.close(theirs))
	if n := len(s.units[0].domains.all); n != 0 {
		t.Errorf("%d domains are left, want none", n)
	}
}

// receiver is a session with an SRQ in a domain, and memory of its process.
type receiver struct {
	*bareSession
	srq    abi.Ring
	posted *ring.Recv
	done   *ring.CQ
	buf    []byte
	key    abi.Handle
}

func newReceiver(t *testing.T, s *Server, file *os.File) *receiver {
	t.Helper()
	r := &receiver{bareSession: newBareSession(t, s), buf: make([]byte, 4096)}
	dom, err := r.bareSession.share(file, abi.XRCDCreate)
	must(t, err)
	pd := r.make(abi.OpAllocPD, nil)
	cq := r.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 16}))
	r.srq, err = abi.Get[abi.Ring](r.ask(abi.OpCreateSRQ, abi.Put(nil, &abi.CreateSRQ{PD: pd, XRCD: dom, CQ: cq,
		Type: uint32(ib.SRQXRC), MaxWR: 8, MaxSGE: 1})))
	must(t, err)
	r.done, err = ring.OpenCQ(r.objects[cq].rings.buf)
	must(t, err)
	r.posted, err = ring.OpenRecv(r.objects[r.srq.Handle].rings.buf)
	must(t, err)
	mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(mem)
	at := uint64(uintptr(unsafe.Pointer(&r.buf[0])))
	mr, err := abi.Get[abi.RegReply](r.ask(abi.OpRegMR, abi.Put(nil, &abi.RegMR{PD: pd, Kind: abi.MemProcess, Access: 7,
		Addr: at, Length: uint64(len(r.buf)), IOVA: 0x10000}), mem))
	must(t, err)
	r.key = mr.Key
	return r
}

func (r *receiver) post() {
	must(r.t, r.posted.Push(&ib.RecvWR{ID: 7, SGL: []ib.SGE{{Addr: 0x10000, Length: 4096, LKey: ib.Key(r.key)}}}))
	r.posted.Publish()
}

// initiator returns an XRC initiator of the test's own process that is connected to a target of a session.
func initiator(t *testing.T, maker *bareSession, target *abi.Ring) (ib.PD, ib.QP, ib.CQ) {
	t.Helper()
	dev := maker.unit.dev
	pd, err := dev.AllocPD()
	must(t, err)
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 64})
	must(t, err)
	ini, err := pd.CreateQP(ib.QPInit{Type: ib.XRCINI, SendCQ: cq, Cap: ib.QPCap{MaxSendWR: 16, MaxSendSGE: 1}})
	must(t, err)
	gids, err := dev.GIDs(1)
	must(t, err)
	attr := ib.QPAttr{Port: 1, PathMTU: ib.MTU1024, DestQPN: ib.QPN(target.Num), MaxRdAtomic: 1, Timeout: 14,
		RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, Access: ib.RemoteWrite, AH: ib.AHAttr{DGID: gids[0].GID, Port: 1}}
	must(t, ib.ModifyTo(ini, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
	attr.DestQPN, attr.MaxDestRdAtomic = ini.Num(), 1
	for _, attr.State = range []ib.QPState{ib.StateInit, ib.StateRTR} {
		maker.ask(abi.OpModifyQP, abi.Put(nil, new(abi.QPAttrOf(target.Handle, &attr,
			ib.Required(ib.XRCTGT, attr.State)))))
	}
	return pd, ini, cq
}

// TestDomainTraffic checks that messages through one target QP reach SRQs of several sessions, in memory of
// their processes, also after the session that has made the target has ended, and while one ends.
func TestDomainTraffic(t *testing.T) {
	s, _ := newServer(t)
	s.SetProcesses(true, true)
	file := newFile(t)
	maker, b, c := newBareSession(t, s), newReceiver(t, s, file), newReceiver(t, s, file)
	dom, err := maker.share(file, 0)
	must(t, err)
	made, err := abi.Get[abi.Ring](maker.ask(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{XRCD: dom,
		Type: uint32(ib.XRCTGT)})))
	must(t, err)
	theirs, err := b.bareSession.share(file, 0)
	must(t, err)
	target := b.make(abi.OpOpenQP, abi.Put(nil, &abi.OpenQP{XRCD: theirs, QPN: made.Num, Type: uint32(ib.XRCTGT)}))

	pd, ini, cq := initiator(t, maker, &made)
	buf := bytes.Repeat([]byte{1}, 3000)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite})
	must(t, err)
	send := func(to *receiver) {
		_, err := ini.PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendSignaled, RemoteSRQ: to.srq.Num,
			SGL: []ib.SGE{{Addr: mr.Addr(), Length: 3000, LKey: mr.LKey()}}}})
		must(t, err)
	}
	sent := func() (wc ib.WC) {
		var wcs [1]ib.WC
		require.Until(t, "the send completes", func() bool { n, _ := cq.Poll(wcs[:]); return n == 1 })
		return wcs[0]
	}
	arrives := func(at *receiver) {
		t.Helper()
		for i := range buf {
			buf[i]++
		}
		at.post()
		send(at)
		if wc := sent(); wc.Status != ib.WCSuccess {
			t.Fatalf("sent: %v, want %v", wc.Status, ib.WCSuccess)
		}
		var wcs [2]ib.WC
		if n := at.done.Poll(wcs[:]); n != 1 || wcs[0].ByteLen != 3000 || !bytes.Equal(at.buf[:3000], buf) {
			t.Fatalf("%d completions, %+v; the data is right: %v; want 1 of 3000 bytes, true", n, wcs[0],
				bytes.Equal(at.buf[:3000], buf))
		}
	}
	for range 3 {
		arrives(b)
		arrives(c)
	}
	maker.leave()
	arrives(c)
	arrives(b)
	c.post()
	for range 3 { // the session ends while messages come
		send(c)
	}
	c.leave()
	if wc := sent(); wc.Status != ib.WCSuccess && wc.Status != ib.WCRemInvReqErr && wc.Status != ib.WCRemAccessErr &&
		wc.Status != ib.WCRetryExcErr && wc.Status != ib.WCRemOpErr {
		t.Errorf("to a session that ends: %v, want success, or what says that it is gone", wc.Status)
	}
	must(t, b.close(target))
	b.leave()
	if n := len(s.units[0].domains.all); n != 0 {
		t.Errorf("%d domains are left, want none", n)
	}
	must(t, ini.Close())
}

// TestMostOpeners: a target QP has no more handles than a shard can tell of an event. One that is closed makes room.
func TestMostOpeners(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	x := c.make(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{}))
	made, err := abi.Get[abi.Ring](c.ask(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{XRCD: x, Type: uint32(ib.XRCTGT)})))
	must(t, err)
	open := abi.Put(nil, &abi.OpenQP{XRCD: x, QPN: made.Num, Type: uint32(ib.XRCTGT)})
	for range mostOpeners - 1 {
		c.make(abi.OpOpenQP, open)
	}
	if _, err := c.answer(abi.OpOpenQP, open, nil); !errors.Is(err, ib.ErrLimit) {
		t.Errorf("handle %d: got %v, want ErrLimit", mostOpeners+1, err)
	}
	must(t, c.close(made.Handle))
	c.make(abi.OpOpenQP, open)
}
