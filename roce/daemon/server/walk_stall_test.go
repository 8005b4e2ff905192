package server

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/uffd"
)

// stall is a page of a client's process whose first access waits. So something happens in the
// middle of the worker's turn that sends from it: a region with more data of the same request is
// deregistered, or the client dies. The kernel makes the turn wait, and virtual time stands still.
type stall struct {
	c     *walkClient
	fault uffd.Fault
	page  []byte
	arena *arena // to deregister; nil if the client shall die
	fired atomic.Bool
	stop  atomic.Bool
	ended chan error
}

const stallBytes = 4096

// stall posts a SEND whose data begins in a page whose access waits.
func (c *walkClient) stall() {
	if c.live || c.stalled != nil {
		return
	}
	q := c.someQP(func(q *walkQP) bool { return q.typ == ib.RC && len(c.registered(q.pd)) > 0 })
	if q == nil {
		return
	}
	s := &stall{c: c, ended: make(chan error, 1)}
	if !s.hang() {
		return
	}
	m, err := q.pd.value.(ib.PD).RegMR(ib.MRInit{Buf: s.page})
	if !c.granted("register memory", err) {
		must(c.t, unix.Close(int(s.fault)))
		return
	}
	c.add(abi.KindMR, m, q.pd)
	p := c.newPost(post{qp: q, verb: ib.WRSendImm})
	wr := ib.SendWR{ID: p.id, Opcode: p.verb, Imm: uint32(len(c.messages))}
	c.fillSend(p, &wr) // c has memory to send from
	p.message.data = append(make([]byte, stallBytes/2), p.message.data...)
	wr.SGL = append([]ib.SGE{{Addr: m.Addr(), Length: stallBytes / 2, LKey: m.LKey()}}, wr.SGL...)
	if a := c.arenaOf(wr.SGL[1].LKey); c.one(2) && a.mr.users+a.mr.maybe == 0 {
		s.arena = a
	}
	n, err := q.PostSend([]ib.SendWR{wr})
	if c.posted(p, n, err) {
		q.sends = append(q.sends, p)
	}
	c.walkWorld.stalled = s
}

// watch lets a device take a turn. If that accesses the page, something happens, and then it goes on.
func (s *stall) watch(turn func() bool) bool {
	s.stop.Store(false)
	go func() { s.ended <- s.run() }()
	more := turn()
	s.stop.Store(true)
	must(s.c.t, <-s.ended)
	return more
}

// arenaOf returns the arena that is registered with a key.
func (c *walkClient) arenaOf(key ib.Key) *arena {
	i := slices.IndexFunc(c.arenas, func(a *arena) bool { return a.mr != nil && a.key() == key })
	return c.arenas[i]
}

// hang makes the page, unless the kernel does not allow it.
func (s *stall) hang() bool {
	var err error
	s.page, err = unix.Mmap(-1, 0, stallBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(s.c.t, err)
	s.c.cleanup = append(s.c.cleanup, func() { must(s.c.t, unix.Munmap(s.page)) })
	if s.fault, err = uffd.Hang(s.page); err != nil {
		return false // it takes root, or vm.unprivileged_userfaultfd=1
	}
	must(s.c.t, unix.SetNonblock(int(s.fault), true))
	return true
}

// run waits for the access, and lets it go on when something has happened.
func (s *stall) run() error {
	if !s.until(func() bool { return s.fault.Wait() == nil }) {
		return nil
	}
	s.fired.Store(true)
	closed, act := make(chan error, 1), s.die
	if s.arena != nil {
		act = s.deregister
	}
	return errors.Join(act(closed), s.fault.Resolve(s.page), <-closed)
}

// die ends the client. Its session ends, but what it has mapped stays so: the worker may access it.
func (s *stall) die(closed chan<- error) error {
	srv := s.c.server
	before := srv.mapped()
	closed <- s.c.conn.Close()
	if !s.until(func() bool { return srv.Clients() < len(before) }) {
		return errors.New("memory that is in use keeps a session from ending")
	}
	for range 100 { // what is unmapped too early is unmapped by a goroutine
		runtime.Gosched()
	}
	alive := srv.mapped()
	for session, n := range before {
		if _, is := alive[session]; !is && session.mappings() != n {
			return fmt.Errorf("%d mappings while a worker uses them, want %d as before", session.mappings(), n)
		}
	}
	return nil
}

// mapped returns how many mappings each session has.
func (s *Server) mapped() map[*session]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := map[*session]int64{}
	for c := range s.sessions {
		list[c] = c.mappings()
	}
	return list
}

func (c *session) mappings() int64 {
	c.srv.accounts.mu.Lock()
	defer c.srv.accounts.mu.Unlock()
	return c.own.used[mappings]
}

// deregister deregisters an arena, which has to wait until the end of the turn.
func (s *stall) deregister(closed chan<- error) error {
	m := s.arena.mr.value.(ib.MR)
	key, device := uint32(m.LKey()), s.c.devs[s.c.side].Attr().Name
	early := make(chan struct{})
	go func() {
		err := m.Close()
		close(early)
		closed <- err
	}()
	listed := func(i MRInfo) bool { return i.Key == key && i.Device == device }
	if !s.until(func() bool { return !slices.ContainsFunc(s.c.server.MRs(), listed) }) {
		return errors.New("memory that is in use keeps a request from beginning")
	}
	runtime.Gosched()
	select {
	case <-early:
		return errors.New("memory that is in use is deregistered")
	default:
		return nil
	}
}

// until waits until a condition holds. It returns false if the stall shall end first, or it takes
// too long.
func (s *stall) until(holds func() bool) bool {
	const pause, patience = 20 * time.Microsecond, 20 * time.Second
	for range patience / pause {
		if holds() {
			return true
		}
		if s.stop.Load() {
			return false
		}
		t := unix.NsecToTimespec(int64(pause))
		_ = unix.Nanosleep(&t, nil)
	}
	return false
}

// endStall ends a stall that has fired. With always it also ends one that has not.
func (w *walkWorld) endStall(always bool) {
	s := w.stalled
	if s == nil || !always && !s.fired.Load() {
		return
	}
	w.stalled = nil
	if !s.fired.Load() {
		must(w.t, s.fault.Resolve(s.page))
	}
	must(w.t, unix.Close(int(s.fault)))
	switch {
	case !s.fired.Load():
		return
	case s.arena != nil:
		s.c.closed(s.arena.mr)
	default:
		s.c.bury()
	}
	w.totals.stalled++
}
