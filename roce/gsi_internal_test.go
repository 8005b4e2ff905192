package roce

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/wire"
)

// check fails unless the lists, the counts and the map of t agree and keep the bounds.
func (t *idTable) check(tb testing.TB) {
	tb.Helper()
	listed := 0
	for q, l := range t.byQP {
		n := 0
		for stage := range l.stages {
			for e := l.stages[stage].Front(); e != nil; e = e.Next() {
				r := e.Value.(*idRecord)
				if r.qp != q || int(r.stage) != stage || t.records[r.id] != r {
					tb.Fatalf("record %+v in list %d", r, stage)
				}
				n++
			}
		}
		if n != l.n || l.stages[idAsked].Len() > maxAsked {
			tb.Fatalf("%d records, counted as %d; %d of requests", n, l.n, l.stages[idAsked].Len())
		}
		listed += n
	}
	if listed != len(t.records) || listed > maxIDs {
		tb.Fatalf("%d records in lists, %d in the map", listed, len(t.records))
	}
}

// TestIDTable does whatever may be done, in any order.
func TestIDTable(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ids idTable
		var forgotten uint64
		ids.init(&forgotten)
		qps := [4]*QP{{}, {}, {}, {}}
		for now := ib.Instant(0); now < 2000; now++ {
			at := now * (idRest / 100)
			q := qps[rng.IntN(len(qps))]
			m := message{attr: wire.AttrREQ + wire.CMAttr(rng.IntN(11)), local: 1 + rng.Uint32N(20), remote: rng.Uint32N(20)}
			id := commID{id: m.local, theirs: rng.IntN(4) == 0}
			r := ids.get(at, id)
			switch {
			case rng.IntN(200) == 0:
				ids.drop(q)
			case id.theirs && r == nil:
				ids.add(at, id, q, idAsked)
			case id.theirs:
				ids.answered(at, r, &m)
			case r != nil && rng.IntN(2) == 0:
				ids.heard(at, r, &m)
			case r == nil || r.qp == q:
				ids.said(at, r, id, q, &m)
			}
			ids.check(t)
		}
		if forgotten != 0 {
			t.Errorf("seed %d: %d forgotten, without need", seed, forgotten)
		}
	}
}

// TestIDTableIsFull: who has most gives up, first what matters least; requests do so
// before their own bound is passed.
func TestIDTableIsFull(t *testing.T) {
	var ids idTable
	var forgotten uint64
	ids.init(&forgotten)
	small, big := &QP{}, &QP{}
	say := func(q *QP, id uint32, attr wire.CMAttr) {
		key := commID{id: id}
		ids.said(0, ids.get(0, key), key, q, &message{attr: attr, local: id})
	}
	has := func(id uint32) bool { return ids.get(0, commID{id: id}) != nil }
	say(small, 1, wire.AttrREQ)
	say(big, 2, wire.AttrRTU) // established
	say(big, 3, wire.AttrREQ)
	say(big, 4, wire.AttrREQ)
	say(big, 4, wire.AttrDREP) // over
	next := uint32(5)
	for ; len(ids.records) < maxIDs; next++ {
		say(big, next, wire.AttrREQ)
	}
	say(big, next, wire.AttrREQ)
	if has(4) || !has(3) || forgotten != 0 {
		t.Errorf("what is over was kept, %d others forgotten", forgotten)
	}
	say(small, next+1, wire.AttrREQ)
	say(small, next+2, wire.AttrREQ)
	if has(3) || has(5) || !has(1) || !has(2) || forgotten != 2 {
		t.Errorf("%d forgotten; half open ones of the other QP: %v, %v; established: %v; own: %v", forgotten, has(3), has(5), has(2), has(1))
	}
	for id := range uint32(maxAsked + 1) {
		ids.add(0, commID{id: id, theirs: true}, small, idAsked)
	}
	if ids.get(0, commID{id: 0, theirs: true}) != nil || ids.get(0, commID{id: 1, theirs: true}) == nil || !has(1) {
		t.Error("a request more than the bound cost something else than the oldest request")
	}
	ids.check(t)
}

// TestRequestsEnd: what becomes of the record of a request, and of the connection's.
func TestRequestsEnd(t *testing.T) {
	const service, other = 7, 8
	q := &QP{pd: &PD{dev: &Device{}}, typ: ib.GSI}
	asks := message{attr: wire.AttrREQ, local: 100, service: service}
	accepts := message{attr: wire.AttrREP, local: 1, remote: 100, answers: true}
	const none = numIDStages
	for _, c := range []struct {
		name         string
		do           func(g *gsiTable)
		theirs, ours idStage
	}{
		{"asked", func(*gsiTable) {}, idAsked, none},
		{"asked for something else", func(g *gsiTable) {
			g.request(0, ib.GID{}, ib.GID{}, &message{attr: wire.AttrREQ, local: 100, service: other})
		}, idAsked, none},
		{"rejected", func(g *gsiTable) {
			g.speaks(0, q, ib.GID{}, &message{attr: wire.AttrREJ, remote: 100, answers: true})
		}, idOver, none},
		{"delayed", func(g *gsiTable) {
			g.speaks(0, q, ib.GID{}, &message{attr: wire.AttrMRA, local: 1, remote: 100, answers: true})
		}, idAsked, idOpen},
		{"accepted", func(g *gsiTable) { g.speaks(0, q, ib.GID{}, &accepts) }, idAsked, idOpen},
		{"established", func(g *gsiTable) {
			g.speaks(0, q, ib.GID{}, &accepts)
			g.ids.heard(0, g.ids.get(0, commID{id: 1}), &message{attr: wire.AttrRTU, local: 100, remote: 1})
		}, idOver, idFirm},
	} {
		g := &gsiTable{shard: &shard{}, qps: []*QP{q}}
		g.init(g.shard)
		must(t, g.services.add(q, service, maskID, ib.GID{}))
		must(t, g.services.add(q, other, maskID, ib.GID{}))
		g.request(0, ib.GID{}, ib.GID{}, &asks)
		c.do(g)
		g.ids.check(t)
		stage := func(id commID) idStage {
			if r := g.ids.get(0, id); r != nil {
				return r.stage
			}
			return none
		}
		if theirs, ours := stage(commID{id: 100, theirs: true}), stage(commID{id: 1}); theirs != c.theirs || ours != c.ours {
			t.Errorf("%s: request in stage %d, connection in %d; want %d, %d", c.name, theirs, ours, c.theirs, c.ours)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestServiceTable does whatever may be done, in any order, and compares with a list of
// what is announced.
func TestServiceTable(t *testing.T) {
	type entry struct {
		id, mask uint64
		gid      ib.GID
	}
	spaceOf := func(e entry) uint64 { return e.id & maskSpace }
	overlap := func(a, b entry) bool {
		ids := spaceOf(a) == spaceOf(b) && (a.id == b.id || a.mask == maskSpace || b.mask == maskSpace)
		return ids && (a.gid == b.gid || a.gid == ib.GID{} || b.gid == ib.GID{})
	}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var table serviceTable
		table.init()
		qps := [3]*QP{{}, {}, {}}
		model := map[*QP][]entry{}
		for step := range 500 {
			q := qps[rng.IntN(len(qps))]
			e := entry{id: rng.Uint64N(2)<<16 | rng.Uint64N(3), mask: maskID, gid: ib.GID{15: byte(rng.IntN(3))}}
			if rng.IntN(4) == 0 {
				e.id, e.mask = e.id&maskSpace, maskSpace
			}
			owner := func(e entry, but *QP) (qp *QP) {
				for other, list := range model {
					if other != but && slices.ContainsFunc(list, func(o entry) bool { return overlap(o, e) }) {
						qp = other
					}
				}
				return qp
			}
			switch n := rng.IntN(40); {
			case n == 0:
				table.drop(q)
				delete(model, q)
			case n < 20:
				busy := owner(e, q) != nil
				if err := table.add(q, e.id, e.mask, e.gid); errors.Is(err, ib.ErrBusy) != busy {
					t.Fatalf("seed %d, step %d: add %+v: %v, want it taken: %v", seed, step, e, err, busy)
				}
				if !busy {
					model[q] = append(model[q], e)
				}
			default:
				i := slices.Index(model[q], e)
				if ok := table.take(q, e.id, e.mask, e.gid); ok != (i >= 0) {
					t.Fatalf("seed %d, step %d: take %+v: %v", seed, step, e, ok)
				}
				if i >= 0 {
					model[q] = slices.Delete(model[q], i, i+1)
				}
			}
			for range 4 {
				e := entry{id: rng.Uint64N(2)<<16 | rng.Uint64N(3), mask: maskID, gid: ib.GID{15: byte(1 + rng.IntN(3))}}
				if got, want := table.find(e.id, e.gid), owner(e, nil); got != want {
					t.Fatalf("seed %d, step %d: %+v is served by %p, want %p", seed, step, e, got, want)
				}
			}
		}
		for _, q := range qps {
			table.drop(q)
		}
		if len(table.spaces) != 0 || len(table.counts) != 0 {
			t.Errorf("seed %d: %v, %v are left", seed, table.spaces, table.counts)
		}
	}
}

// TestTenantsAcceptWhatTheyServe: a tenant that gets a request which nobody serves, as the
// first QP does, can refuse it only; a service may end while a request for it is answered.
func TestTenantsAcceptWhatTheyServe(t *testing.T) {
	const service, other = 7, 8
	type answer struct {
		what string
		m    message
	}
	rep := answer{"REP", message{attr: wire.AttrREP, local: 1, remote: 100, answers: true, accepts: true}}
	sidr := answer{"SIDR_REP", message{attr: wire.AttrSIDRREP, remote: 100, answers: true, accepts: true}}
	rej := answer{"REJ", message{attr: wire.AttrREJ, remote: 100, answers: true}}
	for _, c := range []struct {
		asked  uint64 // 0 for nothing
		tenant bool
		answer
		want bool
	}{
		{service, true, rep, true}, {service, true, sidr, true}, {service, true, rej, true},
		{other, true, rep, false}, {other, true, sidr, false}, {other, true, rej, true},
		{0, true, rep, false}, {0, true, sidr, false},
		{other, false, rep, true}, {other, false, sidr, true},
	} {
		q := &QP{pd: &PD{dev: &Device{}}, core: new(qp.QP), typ: ib.GSI}
		if c.tenant {
			q.pd.tenant = nobody{}
		}
		g := &gsiTable{shard: &shard{}, qps: []*QP{q}}
		g.init(g.shard)
		must(t, g.services.add(q, service, maskID, ib.GID{}))
		if c.asked != 0 {
			g.request(0, ib.GID{}, ib.GID{}, &message{attr: wire.AttrREQ, local: 100, service: c.asked})
		}
		g.services.take(q, service, maskID, ib.GID{})
		if got := g.speaks(0, q, ib.GID{}, &c.m); got != c.want {
			t.Errorf("asked for %d, %s, tenant %v: %v, want %v", c.asked, c.what, c.tenant, got, c.want)
		}
	}
}

// nobody is a tenant.
type nobody struct{ Tenant }
