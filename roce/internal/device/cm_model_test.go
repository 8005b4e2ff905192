package device_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/require"
)

var (
	cmSeed  = flag.Uint64("cm.seed", 0, "play this seed of TestCMModel only")
	cmSeeds = flag.Int("cm.seeds", require.Rounds(20, 60), "how many seeds TestCMModel plays")
)

// cmGrammar has the events that may follow the last event of an ID; the zero value means an
// ID that has called Connect.
var cmGrammar = map[ib.CMEventType][]ib.CMEventType{
	0:                    {ib.CMConnectResponse, ib.CMRejected, ib.CMUnreachable},
	ib.CMConnectRequest:  {ib.CMEstablished, ib.CMRejected, ib.CMUnreachable},
	ib.CMConnectResponse: {ib.CMDisconnected, ib.CMRejected},
	ib.CMEstablished:     {ib.CMDisconnected},
	ib.CMDisconnected:    {ib.CMTimewaitExit},
}

// cmModel is two hosts whose applications connect, answer and disconnect at random, over bad
// links, in virtual time.
type cmModel struct {
	*world
	seed uint64
	rng  *rand.Rand
	ends []*cmEnd
	last map[ib.CMID]ib.CMEventType
	ids  [][]ib.CMID // of each end, in order
	came map[ib.CMEventType]int
}

// TestCMModel: each ID gets events in a legal order, whichever packets are lost, duplicated or
// delayed, and in the end no state is left.
func TestCMModel(t *testing.T) {
	came := map[ib.CMEventType]int{}
	for i := range *cmSeeds {
		seed := uint64(i) + 1
		if *cmSeed != 0 {
			seed = *cmSeed
		}
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { newCMModel(t, seed, came).run() })
		if *cmSeed != 0 {
			return
		}
	}
	for _, e := range []ib.CMEventType{ib.CMConnectRequest, ib.CMConnectResponse, ib.CMEstablished, ib.CMRejected,
		ib.CMUnreachable,
		ib.CMDisconnected, ib.CMTimewaitExit} {
		if came[e] < *cmSeeds {
			t.Errorf("%v was raised %d times, want %d at least: the scripts test too little", e, came[e], *cmSeeds)
		}
	}
}

func newCMModel(t *testing.T, seed uint64, came map[ib.CMEventType]int) *cmModel {
	rng := rand.New(rand.NewPCG(seed, 3))
	bad := wrap.FaultConfig{MaxDelay: time.Duration(1 + rng.Int64N(int64(300*time.Millisecond)))}
	if rng.IntN(5) != 0 {
		bad.Drop, bad.Duplicate, bad.Reorder, bad.Delay = rng.Float64()*0.3, rng.Float64()*0.2, rng.Float64()*0.2,
			rng.Float64()*0.5
	}
	above := func(l link.Link) link.Link {
		bad.Seed++
		return wrap.Fault(l, bad)
	}
	m := &cmModel{world: newWorld(t, seed, 64, stack{above: above, below: same}), seed: seed, rng: rng,
		last: map[ib.CMID]ib.CMEventType{}, came: came}
	for i, h := range []*host{m.a, m.b, m.a, m.b} { // two owners on each
		c := m.newCM(h)
		m.ends = append(m.ends, c)
		m.ids = append(m.ids, nil)
		c.listen(uint16(7000+i), 1+rng.IntN(4))
	}
	return m
}

// run takes random steps, closes everything, and checks that no state is left.
func (m *cmModel) run() {
	const steps = 150
	pause := int64(1) << (20 + m.rng.IntN(12)) // 1 ms to 2 s
	for range steps {
		i := m.rng.IntN(len(m.ends))
		switch m.rng.IntN(3) {
		case 0:
			m.ask(i)
		default:
			m.act(i)
		}
		m.until(m.now + ib.Instant(m.rng.Int64N(pause)))
	}
	for _, c := range m.ends {
		must(m.t, c.ch.Close())
	}
	m.nothingLeft()
	for _, h := range []*host{m.a, m.b} { // nor a port
		c := m.newCM(h)
		for i := range m.ends {
			c.listen(uint16(7000+i), 0)
		}
	}
}

// until advances the time, and handles events.
func (m *cmModel) until(at ib.Instant) {
	m.settle()
	for next := ib.Instant(0); next <= at; next = min(m.a.dev.Deadline(), m.b.dev.Deadline()) {
		m.now = max(m.now, next)
		m.settle()
	}
	m.now = at
	for i, c := range m.ends {
		for _, ev := range c.events() {
			m.hear(i, &ev)
		}
	}
}

// hear checks that an event is legal now, and mostly answers it.
func (m *cmModel) hear(i int, ev *ib.CMEvent) {
	m.t.Helper()
	m.came[ev.Type]++
	switch ev.Type {
	case ib.CMAddrResolved, ib.CMRouteResolved:
		return
	case ib.CMConnectRequest:
		if _, old := m.last[ev.ID]; old {
			m.t.Fatalf("seed %d: a request with an ID that is there", m.seed)
		}
		m.ids[i] = append(m.ids[i], ev.ID)
	default:
		before, ok := m.last[ev.ID]
		if !ok || !slices.Contains(cmGrammar[before], ev.Type) {
			m.t.Fatalf("seed %d: %v behind %v (known: %v), want one of %v", m.seed, ev.Type, before, ok,
				cmGrammar[before])
		}
	}
	m.last[ev.ID] = ev.Type
	if m.rng.IntN(4) != 0 {
		m.answer(i, ev.ID)
	}
}

// ask begins a connection.
func (m *cmModel) ask(i int) {
	c, to := m.ends[i], m.rng.IntN(len(m.ends))
	id := c.id()
	dst := addrPortOf(m.ends[to].h, uint16(7000+to+m.rng.IntN(8)/7*100)) // now and then nobody listens
	must(m.t, id.ResolveAddr(noAddr, dst, 0))
	must(m.t, id.ResolveRoute(0))
	p := c.param()
	p.Timeout = time.Duration(m.rng.Int64N(int64(10 * time.Second)))
	must(m.t, id.Connect(p))
	m.last[id] = 0
	m.ids[i] = append(m.ids[i], id)
}

// act calls a verb on an ID, or closes it.
func (m *cmModel) act(i int) {
	if len(m.ids[i]) == 0 {
		return
	}
	n := m.rng.IntN(len(m.ids[i]))
	id := m.ids[i][n]
	if m.rng.IntN(4) == 0 {
		must(m.t, id.Close())
		m.ids[i] = slices.Delete(m.ids[i], n, n+1)
		delete(m.last, id)
		return
	}
	m.answer(i, id)
}

// answer calls a verb that may follow the last event of an ID.
func (m *cmModel) answer(i int, id ib.CMID) {
	var err error
	switch m.last[id] {
	case ib.CMConnectRequest:
		switch m.rng.IntN(6) {
		case 0:
			err = id.Reject(ib.CMReject{})
		case 1:
			err = id.Delay(time.Second)
		default:
			err = id.Accept(m.ends[i].param()) // the second time it is refused
		}
	case ib.CMConnectResponse:
		if m.rng.IntN(6) == 0 {
			err = id.Reject(ib.CMReject{})
		} else {
			err = id.Establish()
		}
	case ib.CMEstablished, ib.CMDisconnected, ib.CMTimewaitExit:
		err = id.Disconnect()
	}
	if err != nil && !isState(err) {
		m.t.Fatalf("seed %d: behind %v: %v, want none but of the state", m.seed, m.last[id], err)
	}
	if m.last[id] == ib.CMConnectResponse && m.rng.IntN(3) == 0 {
		if err := id.Disconnect(); err != nil && !isState(err) {
			m.t.Fatalf("seed %d: disconnect: %v, want none but of the state", m.seed, err)
		}
	}
}

var noAddr netip.AddrPort

func addrPortOf(h *host, port uint16) netip.AddrPort { return netip.AddrPortFrom(h.gid().Addr(), port) }

// isState reports whether a call came too late.
func isState(err error) bool { return errors.Is(err, ib.ErrState) }
