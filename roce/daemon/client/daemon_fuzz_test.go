package client

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/linktest"
)

// hostile is a daemon that spoils its replies, its events and the memory that clients share with it, as a
// script says. Without a script its replies are those of a good one.
type hostile struct {
	t      testing.TB
	script *script
	conn   *abi.Conn
	last   abi.Handle
	adjust func(*answerTo) // changes replies of a test without a script; nil for none

	mu    sync.Mutex
	mem   []int // memfds of the client
	socks []int // its ends of the sockets of events
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

// Memory of rings and doorbells as a good daemon formats it.
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

// format writes content to the memfd that came with a request, and keeps a descriptor to write to it later. It
// returns the size of the content.
func (d *hostile) format(fds []int, content []byte) uint64 {
	for _, fd := range fds {
		_, err := unix.Pwrite(fd, content, 0)
		d.must(err)
		d.mu.Lock()
		d.mem = append(d.mem, d.dup(fd))
		d.mu.Unlock()
	}
	return uint64(len(content))
}

// formatQP formats the rings of a QP, or the send ring only if there is no memory for both.
func (d *hostile) formatQP(fds []int) *abi.Ring {
	r := &abi.Ring{Handle: d.last, Num: 9, Send: uint64(len(goodSend)), Recv: uint64(len(goodRecv))}
	both := slices.Concat(goodSend, goodRecv)
	var st unix.Stat_t
	for _, fd := range fds {
		d.must(unix.Fstat(fd, &st))
	}
	if st.Size < int64(len(both)) {
		r.Recv, both = 0, goodSend
	}
	r.Size = d.format(fds, both)
	return r
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
	d.mu.Lock()
	defer d.mu.Unlock()
	d.socks = append(d.socks, ends[0])
	return ends[1]
}

func (d *hostile) must(err error) {
	if err != nil {
		d.t.Error(err)
	}
}

// reply returns a good reply to a request with these descriptors.
func (d *hostile) reply(op abi.Op, given []int) (body []byte, fds []int) {
	d.last++
	object, key := abi.Object{Handle: d.last}, abi.RegReply{Handle: d.last, Key: 7}
	switch op {
	case abi.OpHello:
		return abi.Put(nil, &abi.HelloReply{Version: abi.Version, Devices: 1}), nil
	case abi.OpOpen:
		return abi.Put(nil, &abi.OpenReply{Shards: 1, Doorbells: 1}), []int{d.socket()}
	case abi.OpShareDoorbells:
		d.format(given, goodDoorbells)
		wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		d.must(err)
		return nil, []int{wake}
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
		return abi.Put(nil, &abi.Ring{Handle: d.last, Size: d.format(given, goodCQ)}), nil
	case abi.OpCreateSRQ, abi.OpModifySRQ:
		return abi.Put(nil, &abi.Ring{Handle: d.last, Size: d.format(given, goodRecv)}), nil
	case abi.OpCreateQP:
		return abi.Put(nil, d.formatQP(given)), nil
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
	case 8: // memory that is not formatted
		for i := range at {
			d.scribble(i, 0)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mem) > 0 {
		word := binary.NativeEndian.AppendUint32(nil, words[value%len(words)])
		_, _ = unix.Pwrite(d.mem[len(d.mem)-1], word, int64(at*4)) // fails if it is sealed
	}
}

// serve answers requests until the connection ends.
func (d *hostile) serve() {
	defer d.conn.Close()
	for {
		h, _, given, err := d.conn.Receive()
		if err != nil {
			abi.CloseAll(given)
			return
		}
		m := answerTo{header: h}
		m.body, m.fds = d.reply(h.Op, given)
		abi.CloseAll(given)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.socks) == 0 {
		return
	}
	event := abi.Put(nil, &abi.Event{Type: uint32(at), Object: abi.Handle(value)})
	_ = unix.Sendto(d.socks[int(at)%len(d.socks)], event[:int(value)%(len(event)+1)],
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
}

// FuzzDaemon runs a client of a daemon that spoils replies, events and the client's memory. Three bytes
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
		descriptors, goroutines := linktest.OpenDescriptors(t), runtime.NumGoroutine()
		attack(t, input[:min(len(input), 6*40)], buf)
		for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
			d, g := linktest.OpenDescriptors(t), runtime.NumGoroutine()
			if d <= descriptors && g <= goroutines {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d descriptors are open, before %d; %d goroutines, before %d", d, descriptors, g,
					goroutines)
			}
		}
	})
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
			t.Fatalf("verb %d takes %v, want at most %v", int(step[0])%len(verbs), took, patience/2)
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
	s := make([]byte, 9) // hello, open and share doorbells
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
