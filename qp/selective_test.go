package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// rxeReads are the READs that a responder remembers, as rdma_rxe does (rxe_resp.c duplicate_request, of Linux 6.12): a
// repeated READ must lie within the original, and not begin before the one that was repeated last.
type rxeReads struct {
	list    []rxeRead
	refused int
}

type rxeRead struct {
	first, end  ib.PSN
	from, until uint64 // addresses
}

// takes reports whether the responder serves the request p.
func (r *rxeReads) takes(p *wire.Packet, mtu int) bool {
	if !p.Opcode.IsRead() {
		return true
	}
	va, until := p.RETH.VA, p.RETH.VA+uint64(p.RETH.Len)
	for i := range r.list {
		switch old := &r.list[i]; {
		case p.PSN.Before(old.first) || !p.PSN.Before(old.end):
		case va < old.from || until > old.until:
			r.refused++
			return false
		default:
			old.from = va
			return true
		}
	}
	r.list = append(r.list, rxeRead{p.PSN, p.PSN.Add(span(p, mtu)), va, until})
	return true
}

// TestHolesInOrder: whatever is lost, requests for parts of a READ are such as rdma_rxe serves, every READ completes,
// and no response that has arrived is asked for again but after a silence.
func TestHolesInOrder(t *testing.T) {
	for _, loss := range []float64{0.01, 0.05, 0.15} {
		t.Run(fmt.Sprint(loss), func(t *testing.T) {
			for seed := range uint64(require.Rounds(3, 100)) {
				x := newDevices(t, network{oneWay: 25_000, drop: loss}, 1, seed)
				p := x.pairs[0]
				reads := &rxeReads{}
				responses := uint64(0)
				x.passes = func(to *host, pkt *wire.Packet) bool {
					if pkt.Opcode.IsReadResp() {
						responses++
					}
					return to != p.b || reads.takes(pkt, int(p.b.q.attr.PathMTU))
				}
				l := load{op: ib.WRRead, size: 64 << 10, depth: 16, n: 100}
				x.run(l)
				needed := uint64(l.n * l.size / int(p.b.q.attr.PathMTU))
				t.Logf("seed %d: %d holes, %d responses for %d", seed, p.a.stats.ImpliedNAK, responses, needed)
				if p.failed != ib.WCSuccess || reads.refused != 0 {
					t.Errorf("seed %d: got %v and %d requests that rdma_rxe refuses, want success and none", seed,
						p.failed, reads.refused)
				}
				if most := needed + needed*uint64(loss*400)/100; responses > most {
					t.Errorf("seed %d: got %d responses for %d, want %d at most", seed, responses, needed, most)
				}
			}
		})
	}
}

// TestHolesAtOnce: where every second response of a READ is lost, another device of this project is asked for all of
// them at once.
func TestHolesAtOnce(t *testing.T) {
	const oneWay, before, each = 25_000, 20, 64
	x := newDevices(t, network{oneWay: oneWay}, 1, 1)
	sacks(x)
	p := x.pairs[0]
	lost := map[ib.PSN]bool{}
	x.passes = func(_ *host, pkt *wire.Packet) bool {
		n := pkt.PSN.Sub(p.a.q.attr.SQPSN)
		if !pkt.Opcode.IsReadResp() || n < before*each || n%2 > 0 || lost[pkt.PSN] {
			return true
		}
		lost[pkt.PSN] = true
		return false
	}
	x.run(load{op: ib.WRRead, size: each << 10, depth: 1, n: before + 1})
	if wait, most := p.longest(), ib.Instant(5*2*oneWay); wait > most || len(lost) != each/2 {
		t.Errorf("%d responses are lost: the READ takes %d ns, want %d at most", len(lost), wait, most)
	}
}
