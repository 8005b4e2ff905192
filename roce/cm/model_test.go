package cm

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

var (
	modelSeeds = flag.Int("cm.seeds", 300, "seeds that TestModel runs")
	modelSeed  = flag.Uint64("cm.seed", 0, "the one seed that TestModel runs, to replay a failure")
)

// TestModel lets three consumers connect to one another and to themselves over a network that drops, duplicates,
// reorders and delays, in virtual time. They accept, reject, wait, disconnect and release at random. The events of each
// must be consistent, both ends of a connection must agree, and in the end nothing may be left.
func TestModel(t *testing.T) {
	var heard [Forgotten + 1]int
	runSeeds(t, *modelSeeds, func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := &badNetwork{rng: rng, maxDelay: 1 + ib.Instant(rng.Int64N(int64(400*millisecond)))}
		if rng.IntN(5) != 0 { // one in five is perfect but for delay
			n.drop, n.duplicate, n.late = rng.Float64()*0.3, rng.Float64()*0.2, rng.Float64()*0.02
		}
		if rng.IntN(8) == 0 {
			n.cutFrom = ib.Instant(rng.Int64N(int64(30 * second)))
			n.cutTo = n.cutFrom + 60*second
		}
		w := newModel(t, seed, n)
		w.run()
		for kind, n := range w.heard {
			heard[kind] += n
		}
	})
	t.Logf("events: %v", heard)
	if slices.Contains(heard[:], 0) && *modelSeed == 0 {
		t.Errorf("some events did not occur: %v, want all", heard)
	}
}

func runSeeds(t *testing.T, n int, f func(*testing.T, uint64)) {
	if *modelSeed != 0 {
		f(t, *modelSeed)
		return
	}
	for seed := uint64(1); seed <= uint64(n); seed++ {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { f(t, seed) }) {
			t.Fatalf("seed %d failed; replay it with: go test ./roce/cm -run %s -cm.seed=%d", seed, t.Name(), seed)
		}
	}
}

// network carries messages between consumers.
type network interface {
	send(now ib.Instant, from int, m *Message)
	due() ib.Instant // of the next arrival
	// arrive delivers the messages that are due.
	arrive(now ib.Instant, handle func(to int, path Path, mad []byte))
	heal() // no more faults
}

// model is the consumers and what is between them.
type model struct {
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	now       ib.Instant
	net       network
	consumers []*consumer
	reactions []reaction // by time
	reuse     bool       // QP numbers are used again too early
	sent      int
	heard     [Forgotten + 1]int // events of all consumers
}

// reaction is the time at which a consumer acts on an ID.
type reaction struct {
	at ib.Instant
	c  *consumer
	id ID
}

func newModel(t *testing.T, seed uint64, n network) *model {
	w := &model{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), net: n, now: second, reuse: seed%4 == 0}
	for i := range 3 {
		c := &consumer{
			Manager: New(Options{GUID: uint64(i) + 1, Seed: seedOf(seed*3 + uint64(i)), MaxHalfOpenSource: 4,
				MaxTimewait: 5}),
			w: w, name: string(rune('A' + i)), gid: gidOf(i), rng: rand.New(rand.NewPCG(seed, 10+uint64(i))),
			links: map[ID]*link{}, ended: map[ID]any{}, qpn: 2,
		}
		for _, datagram := range []bool{true, false} {
			var err error
			if c.listener, err = c.Listen(testService, netip.Addr{}, datagram); err != nil {
				t.Fatal(err)
			}
		}
		w.consumers = append(w.consumers, c)
	}
	return w
}

const modelStarts = 40

// run runs the consumers' random calls. Then it repairs the network, checks the result, and releases all IDs.
func (w *model) run() {
	pause := ib.Instant(1) << (20 + w.rng.IntN(13)) // 1 ms to 4 s
	for range modelStarts {
		from, to := w.consumers[w.rng.IntN(3)], w.consumers[w.rng.IntN(3)]
		from.start(to)
		w.until(w.now + ib.Instant(w.rng.Int64N(int64(pause))))
	}
	w.net.heal()
	for _, c := range w.consumers {
		c.drain = true
		for _, id := range slices.Clone(c.ids) {
			w.react(c, id)
		}
	}
	w.until(w.now + 200*second)
	w.agree()
	for _, c := range w.consumers {
		for _, id := range slices.Clone(c.ids) {
			c.links[id].lingers = c.Release(w.now, id)
			c.end(id, "released")
		}
		w.settle()
	}
	w.until(w.now + 200*second)
	for _, c := range w.consumers {
		if s := c.leftover(); s != "" {
			c.fail("it still holds %s", s)
		}
		for id, l := range c.links {
			if l.lingers {
				c.fail("ID %#x was never forgotten", uint32(id))
			}
		}
	}
	// A connection takes at most 16 copies of four messages, and an answer to each copy.
	if most := modelStarts * 4 * 16 * 4; w.sent > most {
		w.t.Fatalf("seed %d: %d messages for %d connections, want at most %d", w.seed, w.sent, modelStarts, most)
	}
}

// react schedules a consumer's action on an ID.
func (w *model) react(c *consumer, id ID) {
	r := reaction{w.now + ib.Instant(c.rng.Int64N(int64(second))), c, id}
	i, _ := slices.BinarySearchFunc(w.reactions, r.at,
		func(r reaction, at ib.Instant) int { return cmp.Compare(r.at, at) })
	w.reactions = slices.Insert(w.reactions, i, r)
}

// until runs everything that happens until then.
func (w *model) until(end ib.Instant) {
	for {
		w.settle()
		next := w.net.due()
		for _, c := range w.consumers {
			next = min(next, c.Deadline())
		}
		if len(w.reactions) > 0 {
			next = min(next, w.reactions[0].at)
		}
		if next > end {
			break
		}
		w.now = max(w.now, next)
		w.net.arrive(w.now, func(to int, path Path, mad []byte) {
			c := w.consumers[to]
			c.Handle(w.now, path, mad)
			c.hear()
			w.settle()
		})
		for _, c := range w.consumers {
			c.Timeout(w.now)
		}
		w.settle()
		if len(w.reactions) > 0 && w.reactions[0].at <= w.now {
			r := w.reactions[0]
			w.reactions = w.reactions[1:]
			if l := r.c.links[r.id]; l.phase != gone {
				r.c.act(r.id)
				if l.phase != gone && l.phase != up {
					w.react(r.c, r.id)
				}
			}
		}
	}
	w.now = end
}

// settle takes messages and events out of the managers.
func (w *model) settle() {
	for i, c := range w.consumers {
		c.hear()
		var m Message
		for c.NextMessage(&m) {
			w.sent++
			w.net.send(w.now, i, &m)
		}
	}
}

// peerOf finds the other end of a connection, nil if that manager has none.
func (w *model) peerOf(c *consumer, id ID) (*consumer, ID) {
	conn := c.conns[id]
	for _, p := range w.consumers {
		if p.gid == conn.path.Remote {
			return p, ID(conn.remote.id)
		}
	}
	return nil, 0
}

// confirmed reports whether the peer of an accepted connection may send data to it, and not to an earlier one from a
// copy of the same REQ.
func (w *model) confirmed(c *consumer, id ID) bool {
	p, peer := w.peerOf(c, id)
	other := p.links[peer]
	return other != nil && other.phase == up && other.conn.RQPSN == c.links[id].conn.SQPSN &&
		other.conn.SQPSN == c.links[id].conn.RQPSN
}

// agree checks both ends of all connections after the network has been good for a long time: an established end has an
// established peer with the same parameters, unless the peer has disconnected and that message was lost.
func (w *model) agree() {
	for _, c := range w.consumers {
		for _, id := range c.ids {
			l := c.links[id]
			if l.phase != up {
				c.fail("ID %#x is %v after 200 s; %v", uint32(id), l.phase, l.events)
			}
			p, peer := w.peerOf(c, id)
			other := p.links[peer]
			switch {
			case p.ended[peer] != nil:
				continue
			case other == nil || other.phase != up:
				c.fail("ID %#x is up, its peer %#x of %s is %+v", uint32(id), uint32(peer), p.name, other)
			}
			mine, theirs := l.conn, other.conn
			if mine.RemoteQPN != other.qpn || mine.RQPSN != theirs.SQPSN || mine.SQPSN != theirs.RQPSN ||
				mine.PathMTU != theirs.PathMTU ||
				mine.InitiatorDepth != theirs.ResponderResources || mine.AckTimeout != theirs.AckTimeout ||
				mine.Service != theirs.Service {
				c.fail("ID %#x: the ends do not agree: %+v, %+v", uint32(id), mine, theirs)
			}
		}
	}
}

// badNetwork drops, duplicates and delays messages, each by itself: so it reorders.
type badNetwork struct {
	rng                   *rand.Rand
	drop, duplicate, late float64
	maxDelay              ib.Instant
	cutFrom, cutTo        ib.Instant // nothing passes
	flying                []flight   // by arrival
}

type flight struct {
	at ib.Instant
	m  Message
}

func (n *badNetwork) send(now ib.Instant, from int, m *Message) {
	if now >= n.cutFrom && now < n.cutTo {
		return
	}
	if n.rng.Float64() >= n.drop {
		n.fly(now+ib.Instant(n.rng.Int64N(int64(n.maxDelay))), m)
	}
	if n.rng.Float64() < n.duplicate {
		n.fly(now+ib.Instant(n.rng.Int64N(int64(n.maxDelay))), m)
	}
	if n.rng.Float64() < n.late { // a copy that was stuck somewhere
		n.fly(now+ib.Instant(n.rng.Int64N(int64(30*second))), m)
	}
}

func (n *badNetwork) fly(at ib.Instant, m *Message) {
	i, _ := slices.BinarySearchFunc(n.flying, at, func(f flight, at ib.Instant) int { return cmp.Compare(f.at, at) })
	n.flying = slices.Insert(n.flying, i, flight{at, *m})
}

func (n *badNetwork) due() ib.Instant {
	if len(n.flying) == 0 {
		return driver.Never
	}
	return n.flying[0].at
}

func (n *badNetwork) arrive(now ib.Instant, handle func(int, Path, []byte)) {
	for n.due() <= now {
		f := n.flying[0]
		n.flying = n.flying[1:]
		for to := range 3 {
			if f.m.Path.Remote == gidOf(to) {
				handle(to, back(f.m.Path), f.m.MAD[:])
			}
		}
	}
}

// heal ends all faults but a cut that is under way.
func (n *badNetwork) heal() { n.drop, n.duplicate, n.late, n.maxDelay = 0, 0, 0, millisecond }
