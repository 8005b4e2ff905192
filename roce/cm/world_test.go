package cm

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

const testService = 0x0000000001061D2F // rdma_cm's TCP port 7471

// world is hosts on a network, in virtual time. Messages arrive at once, unless lose drops them.
type world struct {
	t     *testing.T
	now   ib.Instant
	hosts []*host
	lose  func(from *host, attr wire.CMAttr) bool
	log   []string      // "A REQ", and "A REQ lost"
	sent  []sentMessage // all that was sent
}

type sentMessage struct {
	from *host
	Message
}

// host is a manager with an address, and its events.
type host struct {
	*Manager
	w      *world
	name   string
	gid    ib.GID
	events []Event
}

// newWorld makes the hosts A, B, C ...
func newWorld(t *testing.T, n int, o Options) *world {
	t.Helper()
	w := &world{t: t, now: 1000 * second}
	for i := range n {
		o.GUID, o.Seed = 0x0202_0000_0000_0000+uint64(i), seedOf(uint64(i)+7)
		w.hosts = append(w.hosts, &host{Manager: New(o), w: w, name: string(rune('A' + i)), gid: gidOf(i)})
	}
	return w
}

// seedOf returns a seed made of a number.
func seedOf(n uint64) (seed [32]byte) {
	binary.LittleEndian.PutUint64(seed[:], n)
	return seed
}

func gidOf(i int) ib.GID { return ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 13: 0, 14: 2, 15: byte(i + 1)} }

func (h *host) pathTo(peer *host) Path {
	return Path{Local: h.gid, Remote: peer.gid, FlowLabel: 0x12345}
}

// settle delivers messages until there are none, without passing time.
func (w *world) settle() {
	for again := true; again; {
		again = false
		for _, h := range w.hosts {
			var m Message
			for h.NextMessage(&m) {
				again = true
				w.carry(h, m)
			}
			h.takeEvents()
		}
	}
}

func (h *host) takeEvents() {
	var e Event
	for h.NextEvent(&e) {
		h.events = append(h.events, e)
	}
}

func (w *world) carry(from *host, m Message) {
	attr := attrOf(&m.MAD)
	line := from.name + " " + attr.String()
	w.sent = append(w.sent, sentMessage{from, m})
	if w.lose != nil && w.lose(from, attr) {
		w.log = append(w.log, line+" lost")
		return
	}
	w.log = append(w.log, line)
	for _, h := range w.hosts {
		if h.gid == m.Path.Remote {
			h.Handle(w.now, back(m.Path), m.MAD[:])
			h.takeEvents()
		}
	}
}

// back returns a path as the other end sees it.
func back(p Path) Path {
	p.Local, p.Remote = p.Remote, p.Local
	return p
}

func attrOf(mad *[wire.MADLen]byte) wire.CMAttr {
	var h wire.MADHeader
	h.Decode(mad)
	return h.Attr
}

// pass passes time, with all deadlines in between.
func (w *world) pass(d ib.Instant) {
	w.settle()
	end := w.now + d
	for {
		next := driver.Never
		for _, h := range w.hosts {
			next = min(next, h.Deadline())
		}
		if next > end {
			break
		}
		w.now = max(w.now, next)
		for _, h := range w.hosts {
			h.Timeout(w.now)
		}
		w.settle()
	}
	w.now = end
}

// want checks which messages were sent since the last call: "A REQ", "B REP lost" ...
func (w *world) want(lines ...string) {
	w.t.Helper()
	w.settle()
	if !slices.Equal(w.log, lines) {
		w.t.Fatalf("messages:\n got %q\nwant %q", w.log, lines)
	}
	w.log = nil
}

// event takes the next event of h, which must be of this kind.
func (h *host) event(kind EventKind) Event {
	h.w.t.Helper()
	h.w.settle()
	if len(h.events) == 0 {
		h.w.t.Fatalf("%s has no event, want %v", h.name, kind)
	}
	e := h.events[0]
	h.events = h.events[1:]
	if e.Kind != kind {
		h.w.t.Fatalf("%s: event %v, want %v: %+v", h.name, e.Kind, kind, e)
	}
	return e
}

// wait passes time until h has an event, which must be of this kind.
func (h *host) wait(kind EventKind) Event {
	h.w.t.Helper()
	for range 100 {
		h.w.settle()
		if len(h.events) > 0 {
			break
		}
		h.w.pass(10 * millisecond)
	}
	return h.event(kind)
}

// quiet checks that no events are left.
func (w *world) quiet() {
	w.t.Helper()
	w.settle()
	for _, h := range w.hosts {
		if len(h.events) > 0 {
			w.t.Fatalf("%s: unexpected events %+v, want none", h.name, h.events)
		}
	}
}

// empty checks that a manager holds nothing any more.
func (w *world) empty() {
	w.t.Helper()
	w.quiet()
	for _, h := range w.hosts {
		if s := h.leftover(); s != "" {
			w.t.Fatalf("%s still holds %s, want nothing", h.name, s)
		}
	}
}

// leftover describes what a manager holds.
func (m *Manager) leftover() string {
	var held []string
	for what, n := range map[string]int{
		"conns": len(m.conns), "byRemote": len(m.byRemote), "byQP": len(m.byQP), "timers": len(m.timers),
		"half open": m.half.Len(),
		"sources":   m.half.Sources(), "timewait": m.waiting.Len(), "messages": m.messages.len(),
		"events": m.events.len(),
	} {
		if n != 0 {
			held = append(held, fmt.Sprintf("%d %s", n, what))
		}
	}
	slices.Sort(held)
	return strings.Join(held, ", ")
}

func (h *host) listen(service uint64, datagram bool) ListenID {
	h.w.t.Helper()
	l, err := h.Listen(service, netip.Addr{}, datagram)
	h.w.check(err)
	return l
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// wish returns a Connect with all fields set.
func (h *host) wish(peer *host) Connect {
	return Connect{
		Params: Params{QPN: 0x100, Service: ib.RC, ResponderResources: 5, InitiatorDepth: 3, RetryCount: 6, RNRRetry: 4,
			PrivateData: []byte("hello")},
		Path: h.pathTo(peer), ServiceID: testService, SrcPort: 40000, PathMTU: ib.MTU1024, AckTimeout: 14,
		GiveUp: driver.Never,
	}
}

// consent returns the Params to accept with.
func consent() Params {
	return Params{QPN: 0x200, Service: ib.RC, ResponderResources: 2, InitiatorDepth: 16, RNRRetry: 7,
		PrivateData: []byte("welcome")}
}

// request sends a REQ from A to B, which listens and gets it at once, and returns both IDs.
func (w *world) request() (a, b ID) {
	w.t.Helper()
	A, B := w.hosts[0], w.hosts[1]
	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	return a, B.event(Request).ID
}

// connect establishes a connection from A to B and returns both IDs.
func (w *world) connect() (a, b ID) {
	w.t.Helper()
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	a, b = w.request()
	_, err := B.Accept(w.now, b, consent())
	w.check(err)
	A.event(Replied)
	w.check(A.Confirm(w.now, a, nil))
	B.event(Established)
	w.want("A REQ", "B REP", "A RTU")
	return a, b
}

// loseFirst loses the first n messages of a kind from one host.
func (w *world) loseFirst(from *host, attr wire.CMAttr, n int) {
	w.lose = func(h *host, a wire.CMAttr) bool {
		if h != from || a != attr || n == 0 {
			return false
		}
		n--
		return true
	}
}
