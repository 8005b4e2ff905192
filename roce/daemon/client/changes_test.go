package client

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/require"
)

// relay passes messages on between a client and the daemon, and does something to one of them.
type relay struct {
	client, host *abi.Conn
	ended        chan struct{}

	mu sync.Mutex // guards what follows
	trap
	asked []abi.Op // requests since the trap was set
}

// trap is a fault that waits for a request.
type trap struct {
	t      *testing.T
	at     int // the request, counted from 1 on; 0 for none
	strike func(*relay, *exchange) bool
}

// set sets a trap for later requests.
func (r *relay) set(next trap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap, r.asked = next, nil
}

// sprung notes a request, and returns the fault that strikes it, nil for none.
func (r *relay) sprung(op abi.Op) func(*relay, *exchange) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked = append(r.asked, op); len(r.asked) == r.at {
		return r.strike
	}
	return nil
}

// requests returns the requests since the trap was set.
func (r *relay) requests() []abi.Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// exchange is a request and, after forward, its reply.
type exchange struct {
	request, reply answer
}

// newRelay returns a relay to a daemon, and the client's end.
func newRelay(t *testing.T, d *daemon) (*relay, *net.UnixConn) {
	t.Helper()
	host, err := net.Dial("unixpacket", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{client: abi.NewConn(connOf(t, ends[0])), host: abi.NewConn(host.(*net.UnixConn)),
		ended: make(chan struct{})}
	go r.run()
	return r, connOf(t, ends[1])
}

// run passes messages on until one end closes, or the fault ends both.
func (r *relay) run() {
	defer close(r.ended)
	defer r.host.Close()
	defer r.client.Close()
	for {
		var x exchange
		if !receive(r.client, &x.request) {
			return
		}
		strike := r.sprung(x.request.header.Op)
		if strike == nil {
			strike = pass
		}
		if !strike(r, &x) {
			return
		}
	}
}

func receive(c *abi.Conn, to *answer) bool {
	h, body, fds, err := c.Receive()
	if err != nil {
		abi.CloseAll(fds)
		return false
	}
	*to = answer{h, slices.Clone(body), fds}
	return true
}

// forward has the daemon carry out the request.
func (r *relay) forward(x *exchange) bool {
	err := r.host.Send(x.request.header, x.request.body, x.request.fds...)
	abi.CloseAll(x.request.fds)
	return err == nil && receive(r.host, &x.reply)
}

// answer sends the client the reply.
func (r *relay) answer(x *exchange) bool {
	err := r.client.Send(x.reply.header, x.reply.body, x.reply.fds...)
	abi.CloseAll(x.reply.fds)
	return err == nil
}

// pass is no fault.
func pass(r *relay, x *exchange) bool { return r.forward(x) && r.answer(x) }

// spoil returns a fault that changes the reply.
func spoil(change func(*answer)) func(*relay, *exchange) bool {
	return func(r *relay, x *exchange) bool {
		if !r.forward(x) {
			return false
		}
		change(&x.reply)
		return r.answer(x)
	}
}

// faults strike one request of a change.
var faults = []struct {
	name   string
	strike func(*relay, *exchange) bool
}{
	{"the daemon refuses", func(r *relay, x *exchange) bool {
		abi.CloseAll(x.request.fds)
		body, status := abi.PutError(nil, ib.ErrLimit)
		h := abi.Header{Op: x.request.header.Op, Seq: x.request.header.Seq, Status: status}
		x.reply = answer{header: h, body: body}
		return r.answer(x)
	}},
	{"the connection ends before the request arrives", func(_ *relay, x *exchange) bool {
		abi.CloseAll(x.request.fds)
		return false
	}},
	{"the connection ends before the reply arrives", func(r *relay, x *exchange) bool {
		r.forward(x)
		abi.CloseAll(x.reply.fds)
		return false
	}},
	{"the reply is cut", spoil(func(m *answer) { m.body = m.body[:max(len(m.body), 1)-1] })},
	{"the reply is too long", spoil(func(m *answer) { m.body = append(m.body, 0, 0, 0, 0) })},
	{"the reply describes other rings", spoil(func(m *answer) {
		if r, err := abi.Get[abi.Ring](m.body); err == nil {
			r.Size += 1 << 30
			m.body = abi.Put(nil, &r)
		}
	})},
	{"the reply is that of another request", spoil(func(m *answer) { m.header.Seq += 7 })},
	{"the reply comes without descriptors", spoil(func(m *answer) {
		abi.CloseAll(m.fds)
		m.fds = nil
	})},
	{"the reply comes with descriptors", spoil(func(m *answer) {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			m.fds = append(m.fds, fd)
		}
	})},
	{"the client has no room for descriptors", noRoom},
	{"the reply is no message", func(r *relay, x *exchange) bool {
		r.forward(x)
		abi.CloseAll(x.reply.fds)
		_, _ = r.client.Write([]byte{1, 2, 3})
		return receive(r.client, &x.request) // until the client ends the connection
	}},
}

// noRoom is a fault: the client has no descriptor free when the reply comes.
func noRoom(r *relay, x *exchange) bool {
	if !r.forward(x) {
		return false
	}
	r.mu.Lock()
	t := r.t
	r.mu.Unlock()
	limitDescriptors(t, 0)
	t.Cleanup(func() { abi.CloseAll(x.reply.fds) }) // until then these take their places, too
	return r.client.Send(x.reply.header, x.reply.body, x.reply.fds...) == nil
}

const cannotSend = "requests cannot be sent"

// shortages are what a process lacks while a change is made, as the client or as the daemon: both are in this process.
var shortages = []struct {
	name  string
	begin func(t *testing.T, c *changed)
}{
	{"nothing", func(*testing.T, *changed) {}},
	{cannotSend, func(_ *testing.T, c *changed) {
		_ = c.dev.link.conn.SetWriteDeadline(time.Unix(1, 0))
	}},
	{"limits are reached", func(_ *testing.T, c *changed) {
		used := c.usage()
		n := func(key string) int { return int(max(used[key], 1)) }
		c.d.server.SetLimits(server.Limits{}, server.Limits{QPs: n("qps"), MRs: n("mrs"), MWs: n("mws"), CQs: n("cqs"),
			CQEntries: n("cq_entries"), PDs: n("pds"), SRQs: n("srqs"), AHs: n("ahs"), XRCDs: n("xrcds"),
			Channels: n("channels"), Pinned: used["pinned"], Heap: used["heap"]})
	}},
	{"rings are too long", func(_ *testing.T, c *changed) {
		c.d.server.SetLimits(server.Limits{}, server.Limits{Pinned: c.usage()["pinned"]})
	}},
	{"the heap is full", func(_ *testing.T, c *changed) {
		c.d.server.SetLimits(server.Limits{}, server.Limits{Heap: c.usage()["heap"]})
	}},
	{"files must be short", func(t *testing.T, _ *changed) { limit(t, unix.RLIMIT_FSIZE, 1) }},
	{"no descriptor is free", func(t *testing.T, _ *changed) { limitDescriptors(t, 0) }},
	{"1 descriptor is free", func(t *testing.T, _ *changed) { limitDescriptors(t, 1) }},
	{"2 descriptors are free", func(t *testing.T, _ *changed) { limitDescriptors(t, 2) }},
	{"3 descriptors are free", func(t *testing.T, _ *changed) { limitDescriptors(t, 3) }},
}

// limit limits a resource of the process until the test ends.
func limit(t *testing.T, what int, most uint64) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(what, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(what, &before) })
}

// limitDescriptors leaves the process a number of free descriptors until the test ends. The limit stays above what is
// open, as poll(2) would fail.
func limitDescriptors(t *testing.T, free int) {
	t.Helper()
	list, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, name := range list {
		if n, err := strconv.Atoi(filepath.Base(name)); err == nil {
			highest = max(highest, n)
		}
	}
	limit(t, unix.RLIMIT_NOFILE, uint64(highest+1+free))
	var fill []int
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		fill = append(fill, fd)
	}
	abi.CloseAll(fill[len(fill)-free:])
	t.Cleanup(func() { abi.CloseAll(fill[:len(fill)-free]) })
}

// usage returns what the account of the user says, without connections.
func (c *changed) usage() map[string]int64 {
	for _, u := range c.d.server.Usage() {
		if u.UID == uint32(os.Getuid()) {
			return u.Amount
		}
	}
	return nil
}

// TestChanges makes every step of every change that a client makes fail, at the client, at the daemon and between them.
// Afterwards both have the old state, or both have the new one, or the connection has ended; and the daemon has booked
// for the client what is there.
func TestChanges(t *testing.T) {
	d := newDaemon(t, server.Options{OwnProcesses: true})
	seen := map[abi.Op]bool{}
	for _, row := range changes {
		t.Run(row.name, func(t *testing.T) {
			asked, after := 0, map[string]int64(nil)
			row.try(t, d, "nothing", func(c *changed) { c.relay.set(trap{}) }, func(c *changed, err error) {
				if err != nil {
					t.Fatalf("without a fault: %v", err)
				}
				for _, op := range c.relay.requests() {
					seen[op] = true
					asked++
				}
				after = maps.Clone(c.usage())
			})
			for _, f := range faults {
				for at := 1; at <= asked; at++ {
					row.try(t, d, fmt.Sprintf("%s, %d of %d", f.name, at, asked), func(c *changed) {
						c.relay.set(trap{c.t, at, f.strike})
					}, func(c *changed, err error) { c.agree(&row, after, err) })
				}
			}
			for _, s := range shortages {
				if row.opens && s.name == cannotSend { // by the connection that is there
					continue
				}
				row.try(t, d, s.name, func(c *changed) { s.begin(c.t, c) },
					func(c *changed, err error) { c.agree(&row, after, err) })
			}
		})
	}
	for _, op := range abi.Ops() {
		if !seen[op] && !slices.Contains(unchanging, op) {
			t.Errorf("no row makes the request %v: add one, or say why both sides cannot differ after it", op)
		}
	}
}

// try makes a change under a fault, in a connection of its own.
func (row *change) try(t *testing.T, d *daemon, name string, begin func(*changed), end func(*changed, error)) {
	t.Run(name, func(t *testing.T) {
		c := newChanged(t, d)
		c.repeat = row.prepare(c)
		c.before = maps.Clone(c.usage())
		t.Run("change", func(t *testing.T) { // with the shortage, until its end
			c.t = t
			begin(c)
			c.err = c.repeat()
		})
		c.t = t
		d.server.SetLimits(server.Limits{}, server.Limits{})
		end(c, c.err)
		for _, dev := range []*Device{c.dev, c.second} {
			if dev == nil {
				continue
			}
			if err := dev.Close(); err != nil {
				t.Errorf("close the device: %v", err)
			}
		}
		<-c.relay.ended
		require.Until(t, "the daemon holds nothing for the client", func() bool { return len(d.server.Usage()) == 0 })
	})
}

// agree checks that both sides have the same state after a change has returned err.
func (c *changed) agree(row *change, after map[string]int64, err error) {
	c.t.Helper()
	if row.opens && err != nil {
		require.Until(c.t, "the daemon ends the second connection", func() bool {
			return maps.Equal(c.usage(), c.alone)
		})
		c.works()
		return
	}
	if errors.Is(err, ErrGone) {
		require.Until(c.t, "the daemon ends the connection", func() bool { return len(c.d.server.Usage()) == 0 })
		if _, err := c.dev.AllocPD(); !errors.Is(err, ErrGone) {
			c.t.Errorf("a verb when the connection has ended: got %v, want %v", err, ErrGone)
		}
		return
	}
	want := after
	if err != nil {
		want = c.before
	}
	now := c.usage()
	if !maps.Equal(now, want) && !(row.ends && maps.Equal(now, after)) {
		c.t.Errorf("the change returned %v; got %v booked, want %v", err, now, want)
	}
	c.works()
	if err != nil && row.ends {
		if err := c.repeat(); err != nil {
			c.t.Errorf("the change is made again: got %v, want none", err)
		}
		if now := c.usage(); !maps.Equal(now, after) {
			c.t.Errorf("after the second try: got %v booked, want %v", now, after)
		}
	}
}

// TestNoRoom: a client that has no room for the descriptor of a new object has the daemon close the object, and goes
// on.
func TestNoRoom(t *testing.T) {
	d := newDaemon(t, server.Options{})
	c := newChanged(t, d)
	before := maps.Clone(c.usage())
	for _, row := range []change{makes("create channel", (*changed).newChannel), makes("open event channel",
		(*changed).newCM)} {
		var err error
		t.Run(row.name, func(t *testing.T) {
			c.relay.set(trap{t, 1, noRoom})
			err = row.prepare(c)()
		})
		if !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrGone) {
			t.Errorf("%s: got %v, want %v", row.name, err, unix.EMFILE)
		}
		if now := c.usage(); !maps.Equal(now, before) {
			t.Errorf("%s: got %v booked, want %v", row.name, now, before)
		}
		c.works()
	}
}
