package track

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Limits of the tracker's memory.
const (
	maxFlows = 1 << 14
	maxTries = 256 // responses for which a flow looks for its peer
)

// Tracker follows all connections whose packets it is given. The zero value is ready.
type Tracker struct {
	flows map[flowKey]*Flow
	// pairs has the flows between two addresses, which are candidates for pairing.
	pairs map[pairKey][]*Flow
	conns []*Conn
	last  int // the latest number of a connection
	cm    cm

	// Untracked counts packets of flows beyond the first 16,384.
	Untracked int
}

type flowKey struct {
	src     ib.GID
	dst     Endpoint
	service wire.Service
	srcQP   ib.QPN // UD only, where datagrams have it
}

type pairKey struct{ src, dst ib.GID }

// Add handles the next packet: its number, from 1 and rising, its time in nanoseconds since any origin, its outer
// headers, and its contents as [wire.Packet.Decode] leaves them. It keeps neither o nor p. Packets must be in the order
// in which a place on the way has seen them; those of both directions, if possible.
func (t *Tracker) Add(num int, at ib.Instant, o *wire.Outer, p *wire.Packet) Effect {
	f := t.flow(o, p)
	if f == nil {
		t.Untracked++
		return Effect{Kind: Ignored}
	}
	f.Stats.packet(at, p)
	f.learnMTU(p)
	e := Effect{Flow: f}
	switch {
	case p.Opcode == wire.CNP:
		e.Kind = Congestion
		f.Stats.Congestion++
	case p.Opcode == wire.SACKOpcode:
		e.Kind = Selective
	case f.Service == wire.UD:
		e.Kind = Datagram
		f.Stats.datagram(p)
		e.Handshake, e.Active = t.cm.datagram(o, p)
	case p.Opcode.IsRequest():
		e = f.request(num, at, p)
	default:
		e = t.response(f, num, at, p)
	}
	e.Flow = f
	return e
}

// Conns returns the connections in the order of their first packets.
func (t *Tracker) Conns() []*Conn {
	var out []*Conn
	for _, c := range t.conns {
		if len(c.Flows) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// flow returns the flow of a packet, nil if there are too many flows.
func (t *Tracker) flow(o *wire.Outer, p *wire.Packet) *Flow {
	k := flowKey{src: o.Src, dst: Endpoint{o.Dst, p.DestQP}, service: p.Opcode.Service()}
	switch k.service {
	case wire.UD:
		k.srcQP = p.DETH.SrcQP
	case wire.CNPService, wire.Manufacturer:
		k.service = wire.RC // congestion notifications and SACKs belong to connections
	}
	if f := t.flows[k]; f != nil {
		return f
	}
	if len(t.flows) >= maxFlows {
		return nil
	}
	if t.flows == nil {
		t.flows, t.pairs = map[flowKey]*Flow{}, map[pairKey][]*Flow{}
	}
	f := &Flow{Src: o.Src, Dst: k.dst, Service: k.service, srcPort: o.SrcPort}
	t.last++
	f.Conn = &Conn{Num: t.last, Flows: []*Flow{f}, Service: f.Service}
	t.flows[k] = f
	t.conns = append(t.conns, f.Conn)
	pair := pairKey{o.Src, o.Dst}
	t.pairs[pair] = append(t.pairs[pair], f)
	t.pairNew(f, k)
	return f
}

// pairNew pairs a new flow if its packet, or a message of the connection manager, determines the peer. That is so for
// everything but the first packet of an RC connection without CM.
func (t *Tracker) pairNew(f *Flow, k flowKey) {
	if src, ok := t.cm.peerOf(f.Src, f.Dst); ok && f.Service != wire.UD {
		f.src = src
		t.pair(f, t.flows[flowKey{src: f.Dst.Addr, dst: src, service: f.Service}])
		return
	}
	switch f.Service {
	case wire.UD:
		back := flowKey{src: k.dst.Addr, dst: Endpoint{k.src, k.srcQP}, service: wire.UD, srcQP: k.dst.QPN}
		t.pair(f, t.flows[back])
	case wire.UC:
		// There are never any responses. rdma_rxe and NICs compute the source port from both queue pair numbers, so it
		// is the same in both directions.
		var only *Flow
		for _, g := range t.pairs[pairKey{f.Dst.Addr, f.Src}] {
			if g.Service == wire.UC && g.Peer == nil && g.srcPort == f.srcPort {
				if only != nil {
					return
				}
				only = g
			}
		}
		t.pair(f, only)
	}
}

// Conn returns the connection that a handshake has made, nil if no packet of it was seen.
func (t *Tracker) Conn(h *Handshake) *Conn {
	for _, service := range []wire.Service{wire.RC, wire.UC, wire.XRC} {
		for _, way := range [][2]Endpoint{{h.Active, h.Passive}, {h.Passive, h.Active}} {
			if f := t.flows[flowKey{src: way[0].Addr, dst: way[1], service: service}]; f != nil {
				return f.Conn
			}
		}
	}
	return nil
}

// pair makes f and g each other's peer. It does nothing if g is nil.
func (t *Tracker) pair(f, g *Flow) {
	if g == nil || g == f || f.Peer != nil || g.Peer != nil {
		return
	}
	f.Peer, g.Peer = g, f
	mtu := max(f.mtu, g.mtu)
	if mtu > 0 {
		f.setMTU(mtu)
		g.setMTU(mtu)
	}
	if g.Stats.Packets > 0 && (f.Stats.Packets == 0 || g.Stats.First < f.Stats.First) {
		f, g = g, f
	}
	if g.Conn.Num == t.last {
		t.last--
	}
	g.Conn.Flows = nil
	g.Conn = f.Conn
	f.Conn.Flows = []*Flow{f, g}
}

// response handles a packet of flow f that responds to requests of the opposite flow.
func (t *Tracker) response(f *Flow, num int, at ib.Instant, p *wire.Packet) Effect {
	if f.Peer == nil && f.tries < maxTries {
		f.tries++
		t.pair(f, t.asker(f, p.PSN))
	}
	if f.Peer == nil {
		return Effect{Kind: Orphan}
	}
	return f.Peer.response(num, at, p)
}

// asker returns the flow that awaits a response with this PSN, nil if there is none. First PSNs are random, so more
// than one is rare. Then the source port decides, which senders often compute from both queue pair numbers, and after
// that the latest request.
func (t *Tracker) asker(f *Flow, psn ib.PSN) *Flow {
	var best *Flow
	for _, g := range t.pairs[pairKey{f.Dst.Addr, f.Src}] {
		if g.Service != f.Service || g.Peer != nil || g == f || !g.req.awaits(psn) {
			continue
		}
		if best == nil || better(g, best, f.srcPort) {
			best = g
		}
	}
	return best
}

// better reports whether a is more likely than b to have requested a response from port.
func better(a, b *Flow, port uint16) bool {
	if (a.srcPort == port) != (b.srcPort == port) {
		return a.srcPort == port
	}
	return a.req.lastAt > b.req.lastAt
}
