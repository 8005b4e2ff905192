package server

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// bareSession is a session whose requests the test carries out itself, so that there is no
// client whose memory would be measured, too.
type bareSession struct {
	t *testing.T
	*session
	left   sync.Once
	theirs *os.File // the client's end of the latest channel
}

func newBareSession(t *testing.T, s *Server) *bareSession {
	t.Helper()
	c := newGreetedSession(t, s)
	c.keepSocket(abi.OpOpen, abi.Put(nil, &abi.Open{}))
	c.ask(abi.OpShareDoorbells, nil)
	return c
}

// newGreetedSession returns a session without a device.
func newGreetedSession(t *testing.T, s *Server) *bareSession {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	file := os.NewFile(uintptr(ends[0]), "socket")
	conn, err := net.FileConn(file)
	must(t, err)
	must(t, file.Close())
	who := &unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid())}
	user, _, err := s.accounts.enter(who.Uid)
	must(t, err)
	c := &bareSession{t: t, session: newSession(s, abi.NewConn(conn.(*net.UnixConn)), who, user)}
	c.ask(abi.OpHello, abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version}))
	t.Cleanup(func() {
		c.leave()
		c.closeConn()
		must(t, unix.Close(ends[1]))
	})
	return c
}

// leave ends the session, once.
func (c *bareSession) leave() { c.left.Do(c.end) }

// try carries out a request, and returns the body of the reply. It gives memory along if the request takes any.
func (c *bareSession) try(op abi.Op, body []byte, fds ...int) ([]byte, error) {
	c.t.Helper()
	if len(fds) == 0 && slices.Contains(takesMemory, op) {
		fds = []int{newMemfd(c.t, memfdBytes, unix.F_SEAL_SHRINK)}
		defer unix.Close(fds[0])
	}
	r, err := c.answer(op, body, fds)
	if err == nil {
		r.sent()
	}
	return r.body, err
}

// ask is try for a request that is not refused.
func (c *bareSession) ask(op abi.Op, body []byte, fds ...int) []byte {
	c.t.Helper()
	reply, err := c.try(op, body, fds...)
	if err != nil {
		c.t.Fatalf("%v: %v", op, err)
	}
	return reply
}

// make carries out a request that creates an object, and returns its handle.
func (c *bareSession) make(op abi.Op, body []byte, fds ...int) abi.Handle {
	c.t.Helper()
	reply := c.ask(op, body, fds...)
	o, err := abi.Get[abi.Object](reply[:4])
	must(c.t, err)
	return o.Handle
}

// makeQP creates an RC QP in RTS.
func (c *bareSession) makeQP(pd, cq abi.Handle, sendWR, sge, inline uint32) {
	c.t.Helper()
	gids, err := c.unit.dev.GIDs(1)
	must(c.t, err)
	h := c.make(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{PD: pd, SendCQ: cq, RecvCQ: cq, Type: uint32(ib.RC),
		MaxSendWR: sendWR, MaxRecvWR: 16, MaxSendSGE: sge, MaxRecvSGE: sge, MaxInline: inline}))
	attr := ib.QPAttr{Port: 1, PathMTU: ib.MTU1024, DestQPN: 5, MaxRdAtomic: 16, MaxDestRdAtomic: 16, Timeout: 14,
		AH: ib.AHAttr{DGID: gids[0].GID, Port: 1}}
	for _, attr.State = range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS} {
		body := abi.QPAttrOf(h, &attr, ib.Required(ib.RC, attr.State))
		c.ask(abi.OpModifyQP, abi.Put(nil, &body))
	}
}

// makeChannel creates a channel, and keeps the client's end of its socket open.
func (c *bareSession) makeChannel(op abi.Op) abi.Handle {
	c.t.Helper()
	return c.keepSocket(op, nil)
}

// keepSocket carries out a request whose reply has a socket, and keeps the socket open.
func (c *bareSession) keepSocket(op abi.Op, body []byte) abi.Handle {
	c.t.Helper()
	r, err := c.answer(op, body, nil)
	must(c.t, err)
	fd, err := unix.Dup(r.fds[0])
	must(c.t, err)
	theirs := os.NewFile(uintptr(fd), "client's end")
	c.t.Cleanup(func() { _ = theirs.Close() })
	c.theirs = theirs
	r.sent()
	return r.made
}

// makeBoundIDs creates IDs for datagrams that are bound to the device's address.
func (c *bareSession) makeBoundIDs(count int) (all []abi.Handle) {
	c.t.Helper()
	gids, err := c.unit.dev.GIDs(1)
	must(c.t, err)
	here := abi.CMAddrOf(netip.AddrPortFrom(gids[0].GID.Addr(), 0))
	channel := c.makeChannel(abi.OpOpenCM)
	for range count {
		id := c.make(abi.OpCreateCMID, abi.Put(nil, &abi.CreateCMID{Channel: channel, Type: uint32(ib.UD)}))
		c.ask(abi.OpCMBind, abi.Put(nil, &abi.CMBind{ID: id, Addr: here}))
		all = append(all, id)
	}
	return all
}

// heapInUse returns the bytes of the heap that are reachable, and those of stacks.
func heapInUse() int64 {
	runtime.GC()
	afterFinalizers()
	runtime.GC() // frees what finalizers and cleanups have released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// afterFinalizers waits until finalizers and cleanups have run of all that could not be reached before: goroutines of
// the runtime run them after a collection, in order.
func afterFinalizers() {
	finalized, cleaned := make(chan struct{}), make(chan struct{})
	runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(finalized) })
	runtime.AddCleanup(new([64]byte), func(c chan struct{}) { close(c) }, cleaned)
	runtime.GC()
	<-finalized
	<-cleaned
}

// aloneEnv is set in a process that runs only one test, so that its heap holds nothing else.
const aloneEnv = "GOROCE_HEAP_TEST_ALONE"

// alone runs the test in a process of its own, and returns true in that process.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) != "" {
		return true
	}
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// TestChannelEnds: the IDs of an event channel, and their memberships, end with it, whether the client closes the
// handle or its end of the socket, and all that was booked for them is given back.
func TestChannelEnds(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	group := abi.CMAddrOf(netip.MustParseAddrPort("239.1.1.1:0"))
	for _, x := range []struct {
		how string
		end func(channel abi.Handle)
	}{
		{"the handle is closed", func(channel abi.Handle) {
			c.ask(abi.OpClose, c.closing(channel))
		}},
		{"the socket is closed", func(abi.Handle) {
			must(t, c.theirs.Close())
			require.Until(t, "the session is told", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.session.left) == 1
			})
			c.ask(abi.OpClock, nil) // the next request
		}},
	} {
		handles, booked := len(c.objects), s.Usage()[0].Amount["heap"]
		ids := c.makeBoundIDs(100)
		for _, id := range ids {
			c.ask(abi.OpCMJoin, abi.Put(nil, &abi.CMBind{ID: id, Addr: group}))
		}
		x.end(c.objects[ids[0]].cm.channel.object.handle)
		if n := len(c.objects); n != handles {
			t.Errorf("%s: %d handles are open, want the %d from before", x.how, n, handles)
		}
		if n := s.Usage()[0].Amount["heap"]; n != booked {
			t.Errorf("%s: %d bytes are booked, want the %d from before", x.how, n, booked)
		}
	}
}

// TestHeapOfSessions checks that the daemon books for connections what its heap grows by.
func TestHeapOfSessions(t *testing.T) {
	if !alone(t) {
		return
	}
	s, _ := newServer(t)
	newBareSession(t, s)
	const count = 100
	booked, before := s.Usage()[0].Amount["heap"], heapInUse()
	for range count {
		newBareSession(t, s)
	}
	grown := heapInUse() - before
	booked = s.Usage()[0].Amount["heap"] - booked
	t.Logf("a connection: %d bytes, %d booked", grown/count, booked/count)
	if booked < grown*9/10 || booked > 2*grown {
		t.Errorf("the heap grows by %d bytes each, %d are booked; want %d to %d", grown/count, booked/count,
			grown*9/10/count, 2*grown/count)
	}
}
