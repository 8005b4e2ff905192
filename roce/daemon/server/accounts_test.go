package server

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/tests/require"
)

// accountant does requests of one client, again and again, and compares what the account of the user says with the
// memory that the daemon and the kernel use.
type accountant struct {
	*bareSession
	device  *stepped
	gid     ib.GID
	pd, cq  abi.Handle
	already int            // handles when the requests begin
	others  []*bareSession // that the requests have begun
}

// often is how often a row does its request, unless the protocol allows less.
var often = require.Rounds(2_500, 10_000)

// accountRow is a wasteful way to do a request.
type accountRow struct {
	name  string
	count int // 0 for often
	over  int // how many devices the daemon has; 0 for 1
	least int // part of what is booked that is in use at least, one in so many; 0 for 2
	// begin prepares, and returns what is done once for each i.
	begin func(c *accountant) func(i int)
}

// noise is memory that comes and goes without a client: goroutines that end, buffers of the runtime, and the eight
// buffers of 64 KiB that a device's transmitter makes when it first has so many runs in a turn, and keeps. perObject is
// what tables may take more, or less, for an object than is booked: they grow in steps.
const (
	noise     = 1 << 20
	perObject = 512
)

// TestAccounts does every request of the protocol often, in orders that waste most, and checks what it adds to the
// user's account: at least half of what the memory of the daemon and the kernel's for sockets grow by, and no more than
// twice as much, or limits would mean nothing. What closes the objects gives all of it back while the session lasts,
// and so does the end of the session.
func TestAccounts(t *testing.T) {
	if !alone(t) {
		return
	}
	for _, op := range abi.Ops() {
		rows := append(accountRows[op], accountCMRows[op]...)
		if len(rows) == 0 {
			t.Errorf("%v has no row: say how it costs the daemon the most", op)
		}
		for _, row := range rows {
			t.Run(op.String()+": "+row.name, row.test)
		}
	}
}

func (row *accountRow) test(t *testing.T) {
	settled := goroutinesEnd(t)
	t.Cleanup(settled) // after all others: the next row begins without memory of this one
	s, dev := newSteppedDevices(t, max(row.over, 1))
	var left [2]int64
	for round := range left {
		settled := goroutinesEnd(t)
		row.round(t, s, dev, round == 0)
		require.Until(t, "the user holds nothing", func() bool { return len(s.Usage()) == 0 })
		settled()
		left[round] = heapInUse()
	}
	for end := time.Now().Add(10 * time.Second); left[1] > left[0]+noise && time.Now().Before(end); {
		left[1] = heapInUse() // goroutines of what has ended may still run
	}
	if grown := left[1] - left[0]; grown > noise {
		t.Errorf("got %d bytes more in use after a second client has gone than after the first, want none", grown)
	}
}

// goroutinesEnd returns what waits until no more goroutines run than now: those of sockets that are closed, for
// example, end by themselves, and hold what they would have sent until then.
func goroutinesEnd(t *testing.T) (wait func()) {
	before := runtime.NumGoroutine()
	return func() {
		t.Helper()
		require.Until(t, "the goroutines of closed sockets have ended", func() bool {
			return runtime.NumGoroutine() <= before
		})
	}
}

// round does the requests of a row, in a session that ends. The first time tables of the device may grow, for all
// users.
func (row *accountRow) round(t *testing.T, s *Server, dev *stepped, first bool) {
	t.Run("round", func(t *testing.T) {
		c := &accountant{bareSession: newBareSession(t, s), device: dev}
		gids, err := dev.GIDs(1)
		must(t, err)
		c.gid = gids[0].GID
		c.pd = c.make(abi.OpAllocPD, nil)
		c.cq = c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 64}))
		do, count := row.begin(c), row.count
		if count == 0 {
			count = often
		}
		before, booked := c.memoryInUse(), c.booked()
		c.already = len(c.objects)
		for i := range count {
			do(i)
			c.device.step()
		}
		grown, more := c.memoryInUse()-before, c.booked()-booked
		t.Logf("%d bytes each, %d booked", grown/int64(count), more/int64(count))
		slack := int64(perObject * (len(c.objects) - c.already))
		if grown-noise > min(2*more, more*10/9+slack) || more > int64(max(row.least, 2))*(grown+noise)+slack {
			t.Errorf("got %d bytes booked, want %d, which are in use, within 2 times", more, grown)
		}
		c.closeMade()
		require.Until(t, "as much is booked as before", func() bool { return c.booked() <= booked })
		if !first && c.others == nil {
			require.Until(t, "as much memory is in use as before", func() bool {
				return c.memoryInUse() <= before+noise
			})
		}
		runtime.KeepAlive(do)
	})
}

// booked returns what the user's account says.
func (c *accountant) booked() int64 { return c.srv.Usage()[0].Amount["heap"] }

// closeMade closes the objects that the requests have made, the latest first.
func (c *accountant) closeMade() {
	c.t.Helper()
	var made []abi.Handle
	for h := range c.objects {
		made = append(made, h)
	}
	slices.Sort(made)
	for _, h := range slices.Backward(made[min(c.already, len(made)):]) {
		if c.objects[h] != nil { // the end of an ID ends its memberships
			c.ask(abi.OpClose, c.closing(h))
		}
	}
	for _, s := range c.others {
		s.leave()
	}
	for range 100 { // what the peers of connections do, and their timers
		c.device.now += ib.Instant(60e9)
		c.device.step()
	}
}

// memoryInUse returns the bytes of the heap that are reachable, and those of stacks and of messages in the session's
// sockets that nobody has read.
func (c *accountant) memoryInUse() (bytes int64) {
	c.t.Helper()
	boxes := []*outbox{c.events}
	for _, o := range c.objects {
		switch v := o.value.(type) {
		case *channel:
			boxes = append(boxes, v.outbox)
		case *cmChannel:
			boxes = append(boxes, v.box)
		}
	}
	for _, b := range boxes {
		bytes += socketMemory(c.t, b.file)
	}
	return bytes + heapInUse()
}

// socketMemory returns the kernel's memory for messages that were sent by a socket, and not read.
func socketMemory(t *testing.T, f *abi.File) int64 {
	t.Helper()
	var info [9]uint32 // linux/sock_diag.h; the third is SK_MEMINFO_WMEM_ALLOC
	size := uint32(unsafe.Sizeof(info))
	raw, err := f.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			t.Fatalf("getsockopt SO_MEMINFO: %v", errno)
		}
	}))
	return int64(info[2])
}

// close closes an object.
func (c *accountant) close(h abi.Handle) {
	c.t.Helper()
	c.ask(abi.OpClose, c.closing(h))
}

// makeCQ creates a CQ, on a channel or on none.
func (c *accountant) makeCQ(channel abi.Handle) abi.Handle {
	c.t.Helper()
	return c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 1, Channel: channel}))
}

// makeQPOf creates a QP of a type with short queues.
func (c *accountant) makeQPOf(typ ib.QPType) abi.Handle {
	c.t.Helper()
	return c.make(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq, Type: uint32(typ),
		MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}))
}

// modify moves an RC QP on, with as many READs and atomics as it may have.
func (c *accountant) modify(h abi.Handle, peer ib.GID, states ...ib.QPState) {
	c.t.Helper()
	attr := ib.QPAttr{Port: 1, PathMTU: ib.MTU1024, DestQPN: 5, MaxRdAtomic: 128, MaxDestRdAtomic: 128, Timeout: 14,
		AH: ib.AHAttr{DGID: peer, Port: 1}}
	for _, attr.State = range states {
		mask := ib.AttrState
		if attr.State != ib.StateErr && attr.State != ib.StateReset {
			mask = ib.Required(ib.RC, attr.State)
		}
		body := abi.QPAttrOf(h, &attr, mask)
		c.ask(abi.OpModifyQP, abi.Put(nil, &body))
	}
}

// tell gives the session an asynchronous event of an object, as the device does.
func (c *accountant) tell(h abi.Handle, types ...ib.EventType) {
	for _, typ := range types {
		switch v := c.objects[h].value.(type) {
		case *device.QP:
			c.Event(ib.Event{Type: typ, QP: v})
		case *device.SRQ:
			c.Event(ib.Event{Type: typ, SRQ: v})
		case *device.CQ:
			c.Event(ib.Event{Type: typ, CQ: v})
		}
	}
}

// qpNum returns the number of a QP.
func (c *accountant) qpNum(h abi.Handle) uint32 { return uint32(c.objects[h].value.(*device.QP).Num()) }

// addressOf returns an address that no other i has.
func addressOf(i int) ib.GID {
	return ib.GIDFromAddr(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
}
