package client

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// hostile is a daemon that spoils its replies, its events and the memory that it shares, as a
// script says. Without a script its replies are those of a good one.
type hostile struct {
	t      testing.TB
	script *script
	conn   *abi.Conn
	mem    []int // memfds that the client has, too
	socks  []int // its ends of the sockets of events
	last   abi.Handle
	adjust func(*answerTo) // changes replies of a test without a script; nil for none
}

// script is the input of the fuzz target. The client and the daemon take from it by turns.
type script struct {
	mu sync.Mutex
	b  []byte
}

// next returns the next step; three zeros if there is none, which ask for nothing special.
func (s *script) next() (step [3]byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(step[:], s.b)
	s.b = s.b[n:]
	return step, n > 0
}

// answerTo is a reply in the making.
type answerTo struct {
	header abi.Header
	body   []byte
	fds    []int // closed after they were sent
}

// Memory of rings and doorbells as a good daemon makes it.
var goodCQ, goodSend, goodRecv, goodDoorbells = ring.Alloc(ring.CQSize(4)), ring.Alloc(ring.SendSize(4, 2, 64)),
	ring.Alloc(ring.RecvSize(4, 2)), ring.Alloc(ring.DoorbellsSize(1))

func init() {
	_, err1 := ring.NewCQ(goodCQ, 4)
	send, err2 := ring.NewSend(goodSend, 4, 2, 64)
	recv, err3 := ring.NewRecv(goodRecv, 4, 2)
	doorbells, err4 := ring.NewDoorbells(goodDoorbells, 1)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		panic(err)
	}
	send.Sleep() // so that posting rings, and wakes the shard
	recv.Sleep()
	doorbells.Sleep()
}

// memfd returns a memfd with that content, of which the daemon keeps a descriptor to write to it later.
func (d *hostile) memfd(content []byte, seals int) int {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	d.must(err)
	_, err = unix.Pwrite(fd, content, 0)
	d.must(err)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	d.must(err)
	d.mem = append(d.mem, fd)
	return d.dup(fd)
}

func (d *hostile) dup(fd int) int {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	d.must(err)
	return dup
}

// socket returns the client's end of a socket of events.
func (d *hostile) socket() int {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	d.must(err)
	d.socks = append(d.socks, ends[0])
	return ends[1]
}

func (d *hostile) must(err error) {
	if err != nil {
		d.t.Error(err)
	}
}

const shared = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// reply returns a good reply.
func (d *hostile) reply(op abi.Op) (body []byte, fds []int) {
	d.last++
	object, key := abi.Object{Handle: d.last}, abi.RegReply{Handle: d.last, Key: 7}
	switch op {
	case abi.OpHello:
		return abi.Put(nil, &abi.HelloReply{Version: abi.Version, Devices: 1}), nil
	case abi.OpOpen:
		wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		d.must(err)
		return abi.Put(nil, &abi.OpenReply{Shards: 1, Doorbells: 1}),
			[]int{d.memfd(goodDoorbells, shared), d.socket(), wake}
	case abi.OpQueryPort:
		return abi.Put(nil, &abi.PortReply{}), nil
	case abi.OpGIDs:
		return abi.Put(abi.Put(nil, &abi.GIDEntry{}), &abi.GIDEntry{Index: 1}), nil
	case abi.OpPKey:
		return abi.Put(nil, &abi.PKeyReply{}), nil
	case abi.OpClock:
		return abi.Put(nil, &abi.ClockReply{Now: 1}), nil
	case abi.OpAllocPD, abi.OpAllocXRCD, abi.OpCreateCMID:
		return abi.Put(nil, &object), nil
	case abi.OpCreateChannel, abi.OpOpenCM:
		return abi.Put(nil, &object), []int{d.socket()}
	case abi.OpCreateCQ, abi.OpResizeCQ:
		return abi.Put(nil, &abi.Ring{Handle: d.last, Size: uint64(len(goodCQ))}), []int{d.memfd(goodCQ, shared)}
	case abi.OpCreateSRQ, abi.OpModifySRQ:
		return abi.Put(nil, &abi.Ring{Handle: d.last, Size: uint64(len(goodRecv))}), []int{d.memfd(goodRecv, shared)}
	case abi.OpCreateQP:
		both := append(append([]byte(nil), goodSend...), goodRecv...)
		return abi.Put(nil, &abi.Ring{Handle: d.last, Num: 9, Size: uint64(len(both)), Send: uint64(len(goodSend)),
			Recv: uint64(len(goodRecv))}), []int{d.memfd(both, shared)}
	case abi.OpRegMR, abi.OpReregMR, abi.OpAllocMW, abi.OpCreateAH:
		return abi.Put(nil, &key), nil
	case abi.OpQuerySRQ:
		return abi.Put(nil, &abi.SRQAttr{}), nil
	case abi.OpQueryQP, abi.OpCMInitQPAttr:
		return abi.Put(nil, &abi.QPAttr{}), nil
	case abi.OpCMEvent:
		return abi.Put(nil, &abi.CMEvent{Type: uint32(ib.CMConnectRequest), ID: d.last}), nil
	case abi.OpCMQuery:
		return abi.Put(nil, &abi.CMIDAttr{}), nil
	}
	return nil, nil
}

// words are values that a length, an index or a handle has at its limits.
var words = []uint32{0, 1, 2, 3, 15, 16, 63, 64, 4095, 4096, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1}

// spoil changes a reply as one step of the script says. It returns false to close the connection.
func (d *hostile) spoil(m *answerTo, step [3]byte) bool {
	at, value := int(step[1]), int(step[2])
	switch step[0] % 12 {
	case 1:
		if len(m.body) > 0 {
			m.body[at%len(m.body)] ^= byte(value)
		}
	case 2:
		if len(m.body) >= 4 {
			binary.NativeEndian.PutUint32(m.body[at%(len(m.body)/4)*4:], words[value%len(words)])
		}
	case 3:
		m.body = append(m.body, make([]byte, at)...)[:min(value, len(m.body)+at)]
	case 4: // another number of descriptors
		for len(m.fds) < value%(abi.MaxFDs+2) {
			m.fds = append(m.fds, d.dup(int(os.Stdin.Fd())))
		}
	case 5:
		for len(m.fds) > at%(abi.MaxFDs+1) {
			_ = unix.Close(m.fds[len(m.fds)-1])
			m.fds = m.fds[:len(m.fds)-1]
		}
	case 6:
		m.header.Status = abi.Status(value)
	case 7:
		m.header.Op, m.header.Seq = m.header.Op+abi.Op(at), m.header.Seq+uint32(value)
	case 8: // memory that is shorter than the reply says, or that could become so
		if len(m.fds) > 0 {
			_ = unix.Close(m.fds[0])
			m.fds[0] = d.memfd(make([]byte, at), []int{0, shared, unix.F_SEAL_SHRINK | unix.F_SEAL_WRITE}[value%3])
		}
	case 9: // memory with other content
		d.scribble(at, value)
	case 10: // something else than memory, or than a socket
		if len(m.fds) > 0 {
			_ = unix.Close(m.fds[at%len(m.fds)])
			m.fds[at%len(m.fds)] = d.dup(int(os.Stdin.Fd()))
		}
	case 11:
		return at%2 == 0
	}
	return true
}

// scribble writes a word to the memory that was shared last: to an index, a field of the header, or a slot.
func (d *hostile) scribble(at, value int) {
	if len(d.mem) > 0 {
		word := binary.NativeEndian.AppendUint32(nil, words[value%len(words)])
		_, _ = unix.Pwrite(d.mem[len(d.mem)-1], word, int64(at*4)) // fails if it is sealed
	}
}

// serve answers requests until the connection ends.
func (d *hostile) serve() {
	defer d.conn.Close()
	for {
		h, _, fds, err := d.conn.Receive()
		abi.CloseAll(fds)
		if err != nil {
			return
		}
		m := answerTo{header: h}
		m.body, m.fds = d.reply(h.Op)
		step, _ := d.script.next()
		goOn := d.spoil(&m, step)
		if d.adjust != nil {
			d.adjust(&m)
		}
		if goOn {
			goOn = d.conn.Send(m.header, m.body, m.fds...) == nil
		}
		abi.CloseAll(m.fds)
		if !goOn {
			return
		}
	}
}

// tell sends a message on a socket of events.
func (d *hostile) tell(at, value byte) {
	if len(d.socks) == 0 {
		return
	}
	event := abi.Put(nil, &abi.Event{Type: uint32(at), Object: abi.Handle(value)})
	_ = unix.Sendto(d.socks[int(at)%len(d.socks)], event[:int(value)%(len(event)+1)],
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
}

// victim is a client with the objects that the daemon has given it.
type victim struct {
	dev  *Device
	pd   ib.PD
	xrcd ib.XRCD
	ch   ib.Channel
	cq   ib.CQ
	buf  []byte
	mr   ib.MR
	mw   ib.MW
	ah   ib.AH
	srq  ib.SRQ
	qp   ib.QP
	cm   ib.CM
	id   ib.CMID
}

// set stores a new object if the verb has succeeded.
func set[T any](to *T, v T, err error) {
	if err == nil {
		*to = v
	}
}

// over is a context that does not wait.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// verbs are what the client does. The objects that a verb needs were made before, or it is left out.
var verbs = []struct {
	needs func(v *victim) bool
	call  func(t *testing.T, v *victim, d *hostile, at, value byte)
}{
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		pd, err := v.dev.AllocPD()
		set(&v.pd, pd, err)
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		ch, err := v.dev.CreateChannel()
		set(&v.ch, ch, err)
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		cq, err := v.dev.CreateCQ(ib.CQInit{Entries: 4, Channel: v.ch})
		set(&v.cq, cq, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, at, value byte) {
		mr, err := v.pd.RegMR(ib.MRInit{Buf: v.buf})
		set(&v.mr, mr, err)
	}},
	{hasCQ, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		qp, err := v.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: v.cq, RecvCQ: v.cq, SRQ: v.srq})
		set(&v.qp, qp, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		srq, err := v.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 2}})
		set(&v.srq, srq, err)
	}},
	{hasQP, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		_ = v.qp.Modify(ib.QPAttr{State: ib.QPState(at % 8)}, ib.AttrState)
	}},
	{hasQP, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wrs := []ib.SendWR{{Opcode: ib.WRSend, SGL: make([]ib.SGE, at%4)},
			{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, value)}}
		if n, err := v.qp.PostSend(wrs); n < 0 || n > len(wrs) || n < len(wrs) && err == nil {
			t.Errorf("%d of %d requests were posted: %v", n, len(wrs), err)
		}
	}},
	{hasQP, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wrs := []ib.RecvWR{{SGL: make([]ib.SGE, at%4)}, {}, {}, {}, {}}
		if n, err := v.qp.PostRecv(wrs); n < 0 || n > len(wrs) || n < len(wrs) && err == nil {
			t.Errorf("%d of %d receives were posted: %v", n, len(wrs), err)
		}
	}},
	{hasSRQ, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wrs := []ib.RecvWR{{SGL: make([]ib.SGE, at%4)}, {}, {}, {}, {}}
		if n, err := v.srq.PostRecv(wrs); n < 0 || n > len(wrs) || n < len(wrs) && err == nil {
			t.Errorf("%d of %d receives were posted to the SRQ: %v", n, len(wrs), err)
		}
	}},
	{hasCQ, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wcs := make([]ib.WC, 1+at%8)
		if n, _ := v.cq.Poll(wcs); n < 0 || n > len(wcs) {
			t.Errorf("%d completions in room for %d", n, len(wcs))
		}
		_ = v.cq.Arm(value%2 == 0)
		_ = v.cq.Entries()
	}},
	{nil, func(_ *testing.T, _ *victim, d *hostile, at, value byte) { d.scribble(int(at), int(value)) }},
	{nil, func(_ *testing.T, v *victim, d *hostile, at, value byte) {
		d.tell(at, value)
		_, _ = v.dev.NextEvent(over)
	}},
	{hasChannel, func(_ *testing.T, v *victim, d *hostile, at, value byte) {
		d.tell(at, value)
		_, _ = v.ch.Wait(over)
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		cm, err := v.dev.OpenCM()
		set(&v.cm, cm, err)
	}},
	{hasCM, func(_ *testing.T, v *victim, d *hostile, at, value byte) {
		d.tell(at, value)
		if ev, err := v.cm.NextEvent(over); err == nil && ev.ID != nil {
			v.id = ev.ID
		}
	}},
	{hasCM, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		id, err := v.cm.CreateID(ib.CMIDInit{Space: ib.PortSpaceTCP})
		set(&v.id, id, err)
	}},
	{hasID, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.id.Query() }},
	{hasID, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) {
		_, _, _ = v.id.InitQPAttr(ib.QPState(at))
	}},
	{hasID, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) {
		_ = v.id.Bind(netip.AddrPortFrom(netip.IPv6Loopback(), uint16(at)))
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.QueryPort(1) }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.GIDs(1) }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.PKey(1, 0) }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.Clock() }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		x, err := v.dev.AllocXRCD()
		set(&v.xrcd, x, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		mw, err := v.pd.AllocMW(ib.MWType1)
		set(&v.mw, mw, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		ah, err := v.pd.CreateAH(ib.AHAttr{})
		set(&v.ah, ah, err)
	}},
	{func(v *victim) bool { return v.mr != nil }, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		_ = v.mr.Rereg(ib.ReregAccess, nil, ib.MRInit{Buf: v.buf})
	}},
	{func(v *victim) bool { return v.mw != nil && v.qp != nil }, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		_ = v.mw.Bind(v.qp, 1, 0, ib.MWBind{})
	}},
	{func(v *victim) bool { return v.ah != nil }, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		_ = v.ah.Modify(ib.AHAttr{})
	}},
	{hasCQ, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _ = v.cq.Resize(8) }},
	{hasSRQ, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) {
		_ = v.srq.Modify(ib.SRQAttr{MaxWR: 8}, ib.SRQAttrMask(at))
		_, _ = v.srq.Query()
	}},
	{hasQP, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.qp.Query() }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) { v.close(int(at)) }},
}

func hasPD(v *victim) bool      { return v.pd != nil }
func hasCQ(v *victim) bool      { return v.cq != nil && v.pd != nil }
func hasQP(v *victim) bool      { return v.qp != nil }
func hasSRQ(v *victim) bool     { return v.srq != nil }
func hasChannel(v *victim) bool { return v.ch != nil }
func hasCM(v *victim) bool      { return v.cm != nil }
func hasID(v *victim) bool      { return v.id != nil }

// close closes one object.
func (v *victim) close(which int) {
	switch all := []interface{ Close() error }{v.pd, v.xrcd, v.ch, v.cq, v.mr, v.mw, v.ah, v.srq, v.qp, v.cm,
		v.id}; all[which%len(all)] {
	case nil:
	default:
		_ = all[which%len(all)].Close()
	}
}

// FuzzDaemon runs a client of a daemon that spoils replies, events and shared memory. Three bytes
// say what the client does next, and three how the daemon answers. Whatever that is, each verb
// returns at once, with an error or a result within its limits; nothing panics, nor is memory
// outside of a mapping accessed; and neither descriptors nor goroutines are left.
func FuzzDaemon(f *testing.F) {
	for _, seed := range daemonSeeds() {
		f.Add(seed)
	}
	buf, err := Alloc(4096)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		descriptors, goroutines := lowestFree(t), runtime.NumGoroutine()
		attack(t, input[:min(len(input), 6*40)], buf)
		for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			d, g := lowestFree(t), runtime.NumGoroutine()
			if d <= descriptors && g <= goroutines {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("descriptor %d is free, before it was %d; %d goroutines, before %d", d, descriptors, g,
					goroutines)
			}
		}
	})
}

// lowestFree returns the lowest number that no descriptor has. It grows by any descriptor that is left open.
func lowestFree(t *testing.T) int {
	fd, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	return fd
}

// dial opens a device of d. The caller calls end after the device is closed.
func (d *hostile) dial(t *testing.T) (dev *Device, end func(), err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.t, d.conn = t, abi.NewConn(connOf(t, ends[0]))
	served := make(chan struct{})
	go func() {
		defer close(served)
		d.serve()
	}()
	dev, err = New(context.Background(), connOf(t, ends[1]), "")
	return dev, func() {
		<-served
		abi.CloseAll(d.mem)
		abi.CloseAll(d.socks)
	}, err
}

// attack runs one script.
func attack(t *testing.T, input, buf []byte) {
	d := &hostile{script: &script{b: input}}
	dev, end, err := d.dial(t)
	defer end()
	if err != nil {
		return
	}
	defer dev.Close()
	v := &victim{dev: dev, buf: buf}
	for {
		step, more := d.script.next()
		if !more {
			return
		}
		began := time.Now()
		if verb := verbs[int(step[0])%len(verbs)]; verb.needs == nil || verb.needs(v) {
			verb.call(t, v, d, step[1], step[2])
		}
		if took := time.Since(began); took > patience/2 {
			t.Fatalf("verb %d takes %v", int(step[0])%len(verbs), took)
		}
	}
}

func connOf(t *testing.T, fd int) *net.UnixConn {
	file := os.NewFile(uintptr(fd), "end")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

// daemonSeeds are scripts in which the client calls all verbs, and the daemon spoils one of its
// replies, or sets one of the words of the one that has the most to check, that about a QP's rings.
func daemonSeeds() (seeds [][]byte) {
	for kind := range byte(12) {
		for verb := range len(verbs) - 1 {
			seeds = append(seeds, allVerbs(verb, [3]byte{kind, byte(verb), byte(3 * verb)}))
		}
	}
	const createQP = 4
	for word := range byte(unsafe.Sizeof(abi.Ring{}) / 4) {
		for value := range byte(len(words)) {
			seeds = append(seeds, allVerbs(createQP, [3]byte{2, word, value}))
		}
	}
	return seeds
}

// allVerbs is a script of all verbs. The reply to one of them is spoiled.
func allVerbs(spoiled int, how [3]byte) []byte {
	noReply := map[int]bool{7: true, 8: true, 9: true, 10: true, 11: true, 12: true, 13: true, 28: true}
	s := make([]byte, 6) // hello and open
	for verb := range len(verbs) - 1 {
		s = append(s, byte(verb), byte(verb), 8)
		switch {
		case noReply[verb]:
		case verb == spoiled:
			s = append(s, how[:]...)
		default:
			s = append(s, 0, 0, 0)
		}
	}
	return s
}

// TestHostileDaemon checks that a client refuses memory that is shorter than its daemon says or that
// could become so, doorbells that do not exist, and states that it does not know.
func TestHostileDaemon(t *testing.T) {
	ringOf := func(m *answerTo, change func(*abi.Ring)) {
		r, err := abi.Get[abi.Ring](m.body)
		if err != nil {
			t.Error(err)
		}
		change(&r)
		m.body = abi.Put(nil, &r)
	}
	for _, c := range []struct {
		name   string
		op     abi.Op
		adjust func(*hostile, *answerTo)
	}{
		{"short rings", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Size += 1 << 20 })
		}},
		{"rings that may shrink", abi.OpCreateCQ, func(d *hostile, m *answerTo) {
			abi.CloseAll(m.fds)
			m.fds = []int{d.memfd(goodCQ, 0)}
		}},
		{"no memory", abi.OpCreateCQ, func(d *hostile, m *answerTo) {
			abi.CloseAll(m.fds)
			m.fds = []int{d.socket()}
		}},
		{"another shard", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Shard = 1 })
		}},
		{"another doorbell", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Doorbell = 4096 })
		}},
		{"nothing", 0, nil},
	} {
		d := &hostile{script: &script{}}
		d.adjust = func(m *answerTo) {
			if m.header.Op == c.op {
				c.adjust(d, m)
			}
		}
		dev, end, err := d.dial(t)
		if err != nil {
			t.Fatal(err)
		}
		pd, err := dev.AllocPD()
		var cq ib.CQ
		if err == nil {
			cq, err = dev.CreateCQ(ib.CQInit{Entries: 4})
		}
		var qp ib.QP
		if err == nil {
			qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})
		}
		if c.op != 0 && !errors.Is(err, ib.ErrInvalid) || c.op == 0 && err != nil {
			t.Errorf("%s: error %v", c.name, err)
		}
		if c.op == 0 {
			if err := qp.Modify(ib.QPAttr{State: ib.NumQPStates}, ib.AttrState); !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("a state that there is not: %v", err)
			}
		}
		_ = dev.Close()
		end()
	}
}

// TestHandleTwice checks that a client closes what it holds even if its daemon gives two objects one handle.
func TestHandleTwice(t *testing.T) {
	d := &hostile{script: &script{}, adjust: func(m *answerTo) {
		if m.header.Op == abi.OpCreateChannel || m.header.Op == abi.OpAllocPD {
			m.body = abi.Put(nil, &abi.Object{Handle: 7})
		}
	}}
	dev, end, err := d.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	defer dev.Close()
	var channels [2]ib.Channel
	for i := range channels {
		if channels[i], err = dev.CreateChannel(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := channels[0].Wait(t.Context()); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("a channel whose handle another one has: %v", err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); err != nil {
		t.Fatal(err)
	}
	_ = dev.Close()
	if _, err := channels[1].Wait(t.Context()); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("a channel whose handle a PD had: %v", err)
	}
}
