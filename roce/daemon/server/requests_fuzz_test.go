package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// raider is a client by hand that sends whatever its input says, and writes to whatever memory it shares.
type raider struct {
	t      *testing.T
	conn   *abi.Conn
	loot   []int    // descriptors that came with replies, the latest ones
	files  []int    // descriptors that it may send; 0 for one of new memory
	memory [][]byte // that it has sent, in order
	seq    uint32

	device  *stepped
	session *session // of the server, whose work the test does itself: goroutines that wait for each other are slow
}

// steps other than requests, by their number.
const (
	stepWrite = 200 + iota // a word to shared memory
	stepWake               // writes the eventfd of a shard
)

// step takes the next step of the input: a request with a body of arbitrary length and with up to 17
// descriptors, or a write. It returns the rest, and false if the connection has ended.
func (r *raider) step(b []byte) (rest []byte, alive bool) {
	op, how, n := b[0], int(b[1]), int(b[2])*4
	b = b[3:]
	body := b[:min(n, len(b))]
	switch op {
	case stepWrite:
		if len(body) >= 8 && len(r.memory) > 0 {
			at := int64(binary.LittleEndian.Uint32(body)) % memfdBytes
			copy(r.memory[how%len(r.memory)][at:], body[4:])
		}
		return b[len(body):], true
	case stepWake:
		if len(r.loot) > 0 {
			_ = unix.Sendto(r.loot[how%len(r.loot)], nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
			_, _ = unix.Write(r.loot[how%len(r.loot)], []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
		return b[len(body):], true
	}
	var fds []int
	for i := range how % (abi.MaxFDs + 2) {
		fd := r.files[(how+i)%len(r.files)]
		if fd == 0 {
			fd = r.share()
			defer unix.Close(fd)
		}
		fds = append(fds, fd)
	}
	return b[len(body):], r.ask(abi.Op(op), body, fds...)
}

// share returns a descriptor of new memory, which the raider has mapped.
func (r *raider) share() int {
	fd := newMemfd(r.t, memfdBytes, unix.F_SEAL_SHRINK)
	buf, err := unix.Mmap(fd, 0, memfdBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(r.t, err)
	r.memory = append(r.memory, buf)
	return fd
}

// ask sends a request and checks the reply. It returns false if the daemon has ended the connection.
func (r *raider) ask(op abi.Op, body []byte, fds ...int) bool {
	r.t.Helper()
	r.seq++
	if r.conn.Send(abi.Header{Op: op, Seq: r.seq}, body, fds...) != nil || r.session.next() != nil {
		return false
	}
	h, reply, got, err := r.conn.Receive()
	if err != nil {
		r.t.Fatalf("%v is not answered: %v", op, err)
	}
	r.loot = append(r.loot, got...)
	if n := len(r.loot) - 16; n > 0 {
		abi.CloseAll(r.loot[:n])
		r.loot = r.loot[n:]
	}
	switch {
	case h.Op != op || h.Seq != r.seq:
		r.t.Fatalf("answered as %v %d, want %v %d", h.Op, h.Seq, op, r.seq)
	case h.Status == abi.Failed:
		r.t.Fatalf("%v with %d bytes: an error of no type, want one: %v", op, len(body), abi.GetError(reply, h.Status))
	case h.Status != abi.OK && len(got) > 0:
		r.t.Fatalf("%v is refused with %d descriptors, want none", op, len(got))
	}
	return true
}

// neighbour is a good client of the server that others attack.
type neighbour struct {
	from, to ib.QP
	cq       ib.CQ
	wr       ib.SendWR
	recv     ib.RecvWR
}

func newNeighbour(t testing.TB, dev *client.Device) *neighbour {
	t.Helper()
	n := &neighbour{}
	pd, err := dev.AllocPD()
	must(t, err)
	n.cq, err = dev.CreateCQ(ib.CQInit{Entries: 16})
	must(t, err)
	buf, err := dev.Alloc(4096)
	must(t, err)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite})
	must(t, err)
	for _, q := range []*ib.QP{&n.from, &n.to} {
		*q, err = pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: n.cq, RecvCQ: n.cq,
			Cap: ib.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
		must(t, err)
		must(t, ib.ModifyTo(*q, ib.QPAttr{Port: 1, QKey: 5}, ib.StateInit, ib.StateRTR, ib.StateRTS))
	}
	gids, err := dev.GIDs(1)
	must(t, err)
	ah, err := pd.CreateAH(ib.AHAttr{DGID: gids[0].GID})
	must(t, err)
	n.wr = ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}}, AH: ah.Num(),
		RemoteQPN: n.to.Num(), RemoteQKey: 5}
	n.recv = ib.RecvWR{SGL: []ib.SGE{{Addr: mr.Addr(), Length: 4096, LKey: mr.LKey()}}}
	return n
}

// exchange sends a datagram to itself, while the device is stepped.
func (n *neighbour) exchange(t *testing.T, d *stepped) {
	t.Helper()
	_, err := n.to.PostRecv([]ib.RecvWR{n.recv})
	must(t, err)
	_, err = n.from.PostSend([]ib.SendWR{n.wr})
	must(t, err)
	var wc [1]ib.WC
	for range 10 {
		d.step()
		if got, err := n.cq.Poll(wc[:]); got == 1 {
			must(t, errors.Join(err, wc[0].Err()))
			return
		}
	}
	t.Fatal("the good client's datagrams do not arrive any more")
}

// stepped is a device in virtual time, so that no shard competes with the test for the processors.
type stepped struct {
	*device.Device
	now    ib.Instant
	others []*device.Device
}

// step runs the device for a millisecond.
func (d *stepped) step() {
	d.now += ib.Instant(time.Millisecond)
	for range 100 {
		more := d.Step(d.now)
		for _, other := range d.others {
			more = other.Step(d.now) || more
		}
		if !more {
			return
		}
	}
}

// watched is a link whose owner looks at the doorbells in each step.
type watched struct{ link.Link }

func (watched) Watch(int) error { return nil }

// newStepped returns a server of a stepped device.
func newStepped(t testing.TB) (*Server, *stepped) { return newSteppedDevices(t, 1) }

// newSteppedDevices returns a server of devices on one network, of which the first steps the others, too.
func newSteppedDevices(t testing.TB, n int) (*Server, *stepped) {
	t.Helper()
	net := mem.NewNetwork()
	var all []roce.Device
	var devs []*device.Device
	for i := range n {
		gid := ib.GIDFromAddr(linktest.Loopback())
		dev, err := device.Open(wrap.Seal(watched{net.Open([]ib.GID{gid}, mem.Options{})}),
			device.Options{Manual: true, Seed: uint64(i) + 1, Name: fmt.Sprintf("dev%d", i)})
		must(t, err)
		all, devs = append(all, dev), append(devs, dev)
	}
	s, err := New(all, Options{OwnProcesses: true})
	must(t, err)
	t.Cleanup(func() {
		for _, dev := range devs {
			must(t, dev.Close())
		}
		must(t, s.Close())
	})
	return s, &stepped{Device: devs[0], others: devs[1:]}
}

// FuzzRequests sends arbitrary requests with arbitrary descriptors to a server, and writes to the
// memory that they share. Each request must be answered in time, by a reply or an error of a type that
// clients can tell, or the connection must end. Afterwards another client of the same server still
// exchanges data, and the server holds nothing of the raider: no resource, descriptor or goroutine.
func FuzzRequests(f *testing.F) {
	s, device := newStepped(f)
	s.SetLimits(Limits{QPs: 16, CQEntries: 4096, Pinned: 8 << 20, Heap: 8 << 20, MRs: 32, PDs: 32, CQs: 32, SRQs: 16,
		AHs: 16, MWs: 16, XRCDs: 16, Channels: 16}, Limits{})
	theirs, session := connect(f, s)
	s.running.Go(func() { s.attend(session) })
	dev, err := client.New(context.Background(), theirs, "")
	must(f, err)
	f.Cleanup(func() {
		must(f, dev.Close())
		s.running.Wait()
	})
	gids, err := dev.GIDs(1)
	must(f, err)
	n := newNeighbour(f, dev)
	var victim prey
	victim.start(f)
	f.Cleanup(func() { victim.end() })
	files := openFiles(f)
	for _, seed := range requestSeeds(gids[0].GID) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		theirs, ours := victim.connect(t) // may start a process
		_ = unix.Dup3(victim.mem, files[fileMemory], unix.O_CLOEXEC)
		held, descriptors, goroutines := *s.strain(), linktest.OpenDescriptors(t)-2, runtime.NumGoroutine()
		session := s.admit(abi.NewConn(ours))
		if session == nil {
			t.Fatal("the connection is refused")
		}
		r := &raider{t: t, conn: abi.NewConn(theirs), files: files, device: device, session: session}
		r.run(input[:min(len(input), 4096)])
		n.exchange(t, device)
		for end := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			now, g := s.strain(), runtime.NumGoroutine()
			if g <= goroutines && *now == held && linktest.OpenDescriptors(t) <= descriptors {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("held %v, before %v; %d descriptors are open, before %d; %d goroutines, before %d", *now, held,
					linktest.OpenDescriptors(t), descriptors, g, goroutines)
			}
		}
	})
}

// strain is what the clients of the only user hold.
type strain struct {
	used    [numResources]int64
	clients int
}

func (s *Server) strain() *strain {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	for _, u := range s.accounts.users {
		return &strain{u.used, u.clients}
	}
	return &strain{}
}

// connect connects to the server, and returns the client's end and the session.
func connect(t testing.TB, s *Server) (*net.UnixConn, *session) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	session := s.admit(abi.NewConn(connOf(t, ends[0])))
	if session == nil {
		t.Fatal("the connection is refused")
	}
	return connOf(t, ends[1]), session
}

// run carries out the input, and disconnects.
func (r *raider) run(input []byte) {
	r.t.Helper()
	hang := time.AfterFunc(20*time.Second, func() { panic("a request is not answered") })
	defer hang.Stop()
	defer func() {
		_ = r.conn.Close()
		r.session.end()
		r.session.closeConn()
		abi.CloseAll(r.loot)
		for _, buf := range r.memory {
			must(r.t, unix.Munmap(buf))
		}
	}()
	for alive := true; alive && len(input) >= 3; {
		input, alive = r.step(input)
		r.device.step()
	}
}

func connOf(t testing.TB, fd int) *net.UnixConn {
	t.Helper()
	file := os.NewFile(uintptr(fd), "end")
	defer file.Close()
	c, err := net.FileConn(file)
	must(t, err)
	return c.(*net.UnixConn)
}

// fileMemory is the index in openFiles of a descriptor of a client's memory.
const fileMemory = 4

// openFiles returns descriptors that the server does not accept as memory, and 0 for those that it does.
func openFiles(t testing.TB) (fds []int) {
	t.Helper()
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	must(t, err)
	process, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0) // for FuzzRequests to replace
	must(t, err)
	fds = []int{event, 0, newMemfd(t, memfdBytes, 0), newMemfd(t, memfdBytes, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE),
		process, 0}
	t.Cleanup(func() { abi.CloseAll(slices.DeleteFunc(fds, func(fd int) bool { return fd == 0 })) })
	return fds
}

// requestSeeds are sessions that create objects of all kinds, use them and close them, in a good order.
func requestSeeds(own ib.GID) [][]byte {
	begin := append(request(abi.OpHello, 0, abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version,
		MaxVersion: abi.Version})), request(abi.OpOpen, 0, abi.Put(nil, &abi.Open{}))...)
	begin = append(begin, request(abi.OpShareDoorbells, 1, nil)...)
	session := func(requests ...[]byte) []byte {
		b := append([]byte(nil), begin...)
		for _, r := range requests {
			b = append(b, r...)
		}
		return b
	}
	ah := abi.AHOf(&ib.AHAttr{DGID: own, Port: 1})
	attr := ib.QPAttr{Port: 1, PathMTU: ib.MTU1024, DestQPN: 5, MaxRdAtomic: 4, MaxDestRdAtomic: 4,
		Timeout: 14, AH: ib.AHAttr{DGID: own, Port: 1}}
	modify := func(state ib.QPState) []byte {
		attr.State = state
		body := abi.QPAttrOf(5, &attr, ib.Required(ib.RC, state))
		return request(abi.OpModifyQP, 0, abi.Put(nil, &body))
	}
	port := abi.Put(nil, &abi.Port{Port: 1})
	verbs := session(none(abi.OpAllocPD), request(abi.OpAllocXRCD, 0, abi.Put(nil, &abi.AllocXRCD{})),
		none(abi.OpCreateChannel),
		request(abi.OpCreateCQ, 1, abi.Put(nil, &abi.CreateCQ{Entries: 8, Channel: 3})),
		request(abi.OpCreateQP, 1, abi.Put(nil, &abi.CreateQP{PD: 1, SendCQ: 4, RecvCQ: 4, Type: uint32(ib.RC),
			MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 32})),
		modify(ib.StateInit), modify(ib.StateRTR), modify(ib.StateRTS),
		request(abi.OpCreateSRQ, 1, abi.Put(nil, &abi.CreateSRQ{PD: 1, MaxWR: 4, MaxSGE: 2})),
		request(abi.OpShareMemory, 1, nil), request(abi.OpShareMemory, 1, nil),
		request(abi.OpRegMR, 0, abi.Put(nil, &abi.RegMR{PD: 1, Kind: abi.MemFD, File: 7, Access: 7, Addr: 64,
			Length: 4096})),
		request(abi.OpReregMR, 0, abi.Put(nil, &abi.ReregMR{MR: 9, Mask: 1,
			RegMR: abi.RegMR{PD: 1, Kind: abi.MemFD, File: 8, Length: 8192}})), closes(8, abi.KindSharedMemory),
		request(abi.OpReregMR, 0, abi.Put(nil, &abi.ReregMR{MR: 9, Mask: 4 | abi.KeepKeys,
			RegMR: abi.RegMR{Access: 1}})),
		request(abi.OpRegMR, 0, abi.Put(nil, &abi.RegMR{PD: 1, Kind: abi.MemProcess, Access: 7, Addr: preyAddr,
			Length: preyBytes})),
		request(abi.OpReregMR, 0, abi.Put(nil, &abi.ReregMR{MR: 9, Mask: 1,
			RegMR: abi.RegMR{PD: 1, Kind: abi.MemProcess, Addr: preyAddr + 8, Length: 4096}})),
		request(abi.OpAllocMW, 0, abi.Put(nil, &abi.AllocMW{PD: 1, Type: 1})),
		request(abi.OpCreateAH, 0, abi.Put(nil, &abi.CreateAH{PD: 1, AH: ah})),
		request(abi.OpModifyAH, 0, abi.Put(nil, &abi.ModifyAH{Handle: 12, AH: ah})),
		request(abi.OpResizeCQ, 1, abi.Put(nil, &abi.ResizeCQ{CQ: 4, Entries: 32})),
		request(abi.OpModifySRQ, 1, abi.Put(nil, &abi.SRQAttr{SRQ: 6, Mask: 1, MaxWR: 16})),
		request(abi.OpQuerySRQ, 0, abi.Put(nil, &abi.SRQAttr{SRQ: 6})), about(abi.OpQueryQP, 5),
		request(abi.OpAttach, 0, abi.Put(nil, &abi.Group{QP: 5, GID: ib.GID{0xFF, 0x0E, 15: 7}})),
		request(abi.OpDetach, 0, abi.Put(nil, &abi.Group{QP: 5, GID: ib.GID{0xFF, 0x0E, 15: 7}})),
		request(abi.OpQueryPort, 0, port), request(abi.OpGIDs, 0, port), request(abi.OpPKey, 0, port),
		request(abi.OpCounters, 0, port),
		request(abi.OpQueryDevice, 0, abi.Put(nil, &abi.Open{})), none(abi.OpClock), closes(4, abi.KindCQ),
		closes(5, abi.KindQP), closes(4, abi.KindCQ),
		closes(9, abi.KindMR))
	domain := session(request(abi.OpAllocXRCD, 1, abi.Put(nil, &abi.AllocXRCD{Flags: abi.XRCDCreate})),
		request(abi.OpAllocXRCD, 1, abi.Put(nil, &abi.AllocXRCD{})),
		request(abi.OpCreateQP, 0, abi.Put(nil, &abi.CreateQP{XRCD: 1, Type: uint32(ib.XRCTGT)})),
		request(abi.OpOpenQP, 0, abi.Put(nil, &abi.OpenQP{XRCD: 2, QPN: 32, Type: uint32(ib.XRCTGT)})),
		closes(1, abi.KindXRCD), closes(3, abi.KindQP), closes(1, abi.KindXRCD), about(abi.OpQueryQP, 4))
	word := func(at uint32, b ...byte) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, at), b...)
	}
	write := func(to int, body []byte) []byte { return request(stepWrite, to, body) }
	rings := append(append([]byte(nil), verbs[:len(verbs)-4*11]...), session(
		write(0, word(128, 0xFF, 0xFF, 0xFF, 0xFF)), write(0, word(192, 0xFF, 0xFF, 0xFF, 0xFF)),
		request(stepWake, 1, nil), write(1, word(64, 3, 0, 0, 0)), write(2, word(64, 0xFF, 0xFF, 0xFF, 0xFF)),
		request(stepWake, 1, nil), none(abi.OpClock))[len(begin):]...)
	return [][]byte{begin, verbs, domain, session(cmRequests(own)...), rings, request(abi.OpClock, 0, nil),
		request(77, 17, make([]byte, 40))}
}

// request is one step of the input. The length of the body is a multiple of 4.
func request(op abi.Op, fds int, body []byte) []byte {
	return append([]byte{byte(op), byte(fds), byte(len(body) / 4)}, body...)
}

func about(op abi.Op, h abi.Handle) []byte {
	return request(op, 0, abi.Put(nil, &abi.Object{Handle: h}))
}

func closes(h abi.Handle, k abi.Kind) []byte {
	return request(abi.OpClose, 0, abi.Put(nil, &abi.Close{Handle: h, Kind: k}))
}

func none(op abi.Op) []byte { return request(op, 0, nil) }

// cmRequests are those of a connection by address, of the client with itself.
func cmRequests(own ib.GID) [][]byte {
	addr := abi.CMAddrOf(netip.AddrPortFrom(own.Addr(), 5000))
	id := abi.CMValue{ID: 2}
	return [][]byte{none(abi.OpOpenCM),
		request(abi.OpCreateCMID, 0, abi.Put(nil, &abi.CreateCMID{Channel: 1, Space: uint32(ib.PortSpaceTCP),
			Type: uint32(ib.RC)})),
		request(abi.OpCMBind, 0, abi.Put(nil, &abi.CMBind{ID: 2, Addr: addr})),
		request(abi.OpCMListen, 0, abi.Put(nil, &abi.CMListen{ID: 2, Backlog: 4})),
		request(abi.OpCreateCMID, 0, abi.Put(nil, &abi.CreateCMID{Channel: 1, Space: uint32(ib.PortSpaceTCP),
			Type: uint32(ib.RC)})),
		request(abi.OpCMResolveAddr, 0, abi.Put(nil, &abi.CMResolve{ID: 3, TimeoutNS: 1e9, Remote: addr})),
		request(abi.OpCMResolveRoute, 0, abi.Put(nil, &abi.CMResolve{ID: 3, TimeoutNS: 1e9})),
		request(abi.OpCMConnect, 0, abi.Put(nil, &abi.CMConnect{ID: 3, Param: abi.CMParam{PrivateLen: 10}})),
		about(abi.OpCMEvent, 1), about(abi.OpCMEvent, 1), about(abi.OpCMEvent, 1),
		request(abi.OpCMAccept, 0, abi.Put(nil, &abi.CMConnect{ID: 4})), about(abi.OpCMEstablish, 3),
		request(abi.OpCMReject, 0, abi.Put(nil, &abi.CMReject{ID: 4, InfoLen: 4, PrivateLen: 200})),
		request(abi.OpCMDelay, 0, abi.Put(nil, &abi.CMDelay{ID: 4, NS: 1e9})), about(abi.OpCMDisconnect, 3),
		request(abi.OpCMNotify, 0, abi.Put(nil, &id)), request(abi.OpCMInitQPAttr, 0, abi.Put(nil, &id)),
		request(abi.OpCMSetOption, 0, abi.Put(nil, &id)), about(abi.OpCMQuery, 2),
		request(abi.OpCMJoin, 0, abi.Put(nil, &abi.CMBind{ID: 3, Addr: addr})),
		request(abi.OpCMLeave, 0, abi.Put(nil, &abi.CMBind{ID: 3, Addr: addr})),
		request(abi.OpCMMigrate, 0, abi.Put(nil, &abi.CMValue{ID: 3, Value: 1})), closes(1, abi.KindCMChannel)}
}
