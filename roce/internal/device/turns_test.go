package device_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// turns is a device under attack in virtual time, one turn of its shard at a time: it counts what each
// turn does. The attacker is a stranger, who sends what it likes, or the application of this process. Beside
// it are two neighbours on the same shard, who have other peers: a tenant, and another QP of this process.
type turns struct {
	*world                 // a is the device; b is the peer of both neighbours
	tenant, peer *tenantQP // on the devices of a and b
	stranger     link.Link // with gidX
	cq           ib.CQ     // of the attacked QPs

	each  func() // what the attacker does before each turn
	turns int
	work  // of this turn
	sum   work

	posted departure            // when the neighbours have posted
	left   map[ib.QPN]departure // of the first frame to each QP since, after posted
}

// departure is how many turns, and frames of these, were before a frame.
type departure struct{ turns, frames int }

// work is what a turn has done.
type work struct {
	frames      int // sent
	bytes       int // of these
	received    int // packets that QPs, or QP 1, have got
	completions int
	timers      int // QPs that have sent again, or asked, for lack of an answer
}

// fields returns the numbers of w, with their names.
func (w *work) fields() []struct {
	name string
	n    *int
} {
	return []struct {
		name string
		n    *int
	}{{"frames sent", &w.frames}, {"bytes sent", &w.bytes}, {"packets received", &w.received},
		{"completions", &w.completions}, {"QPs whose timers ran", &w.timers}}
}

// or returns w with the numbers of v that are not 0.
func (w work) or(v work) work {
	for i, f := range v.fields() {
		if *f.n != 0 {
			*w.fields()[i].n = *f.n
		}
	}
	return w
}

// biggest is the size of the largest frame.
const biggest = 4096 + 64

// turnMost is what no turn exceeds, whatever happens. Rows have tighter bounds where there is one.
var turnMost = work{
	frames:      device.TurnQPs*device.AppTurn + device.TurnDatagrams,
	bytes:       device.TurnBytes + device.AppTurn*biggest + device.TurnDatagrams*512,
	received:    device.TurnFramesMost + device.MaxMcastQPs,
	completions: device.TurnDoorbells*device.FlushMost + device.TurnFramesMost + device.TurnAnswers,
	timers:      device.TurnTimers,
}

var gidX = ib.GIDFromAddr(netip.MustParseAddr("192.0.2.66"))

const (
	strangeQP    ib.QPN = 0x1234 // the stranger's
	firstPSN     ib.PSN = 0xFFFFF0
	attackedSize        = 64 << 20
	longest             = 1 << 15 // entries of the longest queues
)

func newTurns(t *testing.T) *turns {
	network := mem.NewNetwork()
	x := &turns{world: &world{t: t}, tenant: newTenantQP(t, network, gidA), peer: newTenantQP(t, network, gidB),
		each: func() {}}
	connectTenantQPs(t, x.tenant, x.peer)
	x.a, x.b = newHost(t, x.tenant.dev, attackedSize), newHost(t, x.peer.dev, 4096)
	x.connect(ib.MTU4096, nil)
	x.stranger = wrap.Seal(network.Open([]ib.GID{gidX}, mem.Options{QueueBytes: 16 << 20}))
	var err error
	x.cq, err = x.a.dev.CreateCQ(ib.CQInit{Entries: 4 * longest})
	must(t, err)
	x.tenant.link.sent = x.watch
	return x
}

// watch counts a run that leaves.
func (x *turns) watch(r *link.Run) {
	for i := range r.Frames() {
		dest := ib.QPN(binary.BigEndian.Uint32(r.Frame(i)[4:]) & 0xFFFFFF) // BTH
		if _, ok := x.left[dest]; !ok && x.left != nil {
			x.left[dest] = departure{x.turns - x.posted.turns, x.sum.frames + x.frames - x.posted.frames}
		}
		x.frames++
		x.bytes += len(r.Frame(i))
	}
}

// turn takes one turn of the device, and compares what it has done with most.
func (x *turns) turn(most work) {
	x.t.Helper()
	x.each()
	x.now += 1000
	before, looks := x.a.dev.Stats(), x.tenant.looks
	x.work = work{}
	x.a.dev.Step(x.now)
	x.turns++
	after := x.a.dev.Stats()
	if x.tenant.looks != looks+1 {
		x.t.Fatalf("%d looks at the doorbells in a turn, want 1", x.tenant.looks-looks)
	}
	x.received = int(after.RcvdPkts - before.RcvdPkts)
	x.timers = int(after.LocalAckTimeout + after.TailProbes - before.LocalAckTimeout - before.TailProbes)
	x.completions = x.polled()
	for i, f := range x.work.fields() {
		if most := *most.fields()[i].n; *f.n > most {
			x.t.Fatalf("turn %d: %d %s, want %d at most", x.turns, *f.n, f.name, most)
		}
		*x.sum.fields()[i].n += *f.n
	}
	x.b.dev.Step(x.now)
	var in [64]link.Run
	for n := 1; n > 0; {
		n, _ = x.stranger.Recv(x.now, in[:])
	}
}

// polled takes the completions of the attacked QPs.
func (x *turns) polled() (n int) {
	var wcs [256]ib.WC
	for {
		got, err := x.cq.Poll(wcs[:])
		must(x.t, err)
		if n += got; got == 0 {
			return n
		}
	}
}

// neighbours post a request each.
func (x *turns) neighbours() {
	x.left, x.posted = map[ib.QPN]departure{}, departure{x.turns, x.sum.frames}
	x.peer.recv(ib.RecvWR{SGL: []ib.SGE{{Addr: 0x1000, Length: 8, LKey: x.peer.mr.LKey()}}})
	x.tenant.send(ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: 0x1000, Length: 8, LKey: x.tenant.mr.LKey()}}})
	x.send(x.a, ib.SendWR{Opcode: ib.WRWrite, SGL: x.a.sge(0, 8), RemoteAddr: x.b.mr.Addr(), RKey: x.b.mr.RKey()})
}

// attacked makes QPs of this process that are connected to the stranger, with queues of the given length.
func (x *turns) attacked(n int, typ ib.QPType, wrs int) []ib.QP {
	x.t.Helper()
	list := make([]ib.QP, n)
	for i := range list {
		q, err := x.a.pd.CreateQP(ib.QPInit{Type: typ, SendCQ: x.cq, RecvCQ: x.cq,
			Cap: ib.QPCap{MaxSendWR: wrs, MaxRecvWR: wrs, MaxSendSGE: 1, MaxRecvSGE: 1}})
		must(x.t, err)
		list[i] = q
		if typ == ib.UD {
			x.datagramUp(q)
			continue
		}
		x.bringUp(&host{qp: q}, gidX, strangeQP, ib.MTU4096, func(a *ib.QPAttr) { a.MaxDestRdAtomic = 16 })
	}
	return list
}

// post posts n requests on a QP.
func (x *turns) post(q ib.QP, n int, wr ib.SendWR) {
	x.t.Helper()
	wr.Flags |= ib.SendSignaled
	wr.RKey = 1
	for range n {
		_, err := q.PostSend([]ib.SendWR{wr})
		must(x.t, err)
	}
}

// hit makes the stranger send copies of a packet to a QP.
func (x *turns) hit(q ib.QPN, copies int, p wire.Packet) {
	x.t.Helper()
	x.hitAt(gidA, slices.Repeat([]ib.QPN{q}, copies), p, false)
}

// hitEach makes the stranger send a packet to each of the QPs.
func (x *turns) hitEach(list []ib.QP, p wire.Packet) {
	x.t.Helper()
	var nums []ib.QPN
	for _, q := range list {
		nums = append(nums, q.Num())
	}
	x.hitAt(gidA, nums, p, false)
}

// hitAt makes the stranger send a packet to each of the QPs at an address, in runs that are as long as possible:
// all with the same PSN, or with one after the other.
func (x *turns) hitAt(to ib.GID, list []ib.QPN, p wire.Packet, count bool) {
	x.t.Helper()
	p.PKey, p.PadCnt = ib.DefaultPKey, uint8(-len(p.Payload)&3)
	for part := range slices.Chunk(list, mem.DefaultRunFrames) {
		r := link.Run{Src: gidX, Dst: to, SrcPort: 0xC000, HopLimit: 64}
		for _, p.DestQP = range part {
			r.Buf = append(p.AppendHeaders(r.Buf), p.Payload...)
			r.Buf = append(r.Buf, make([]byte, int(p.PadCnt)+wire.ICRCLen)...)
			if count {
				p.PSN = p.PSN.Add(1)
			}
		}
		r.Size = len(r.Buf) / len(part)
		_, err := x.stranger.Send(x.now, []link.Run{r})
		must(x.t, err)
	}
}

// readOf is a READ of n bytes of the device's memory.
func (x *turns) readOf(n int) wire.Packet {
	return wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRequest, PSN: firstPSN, AckReq: true},
		RETH: wire.RETH{VA: x.a.mr.Addr(), RKey: x.a.mr.RKey(), Len: uint32(n)}}
}

func response(syndrome wire.Syndrome, psn ib.PSN) wire.Packet {
	return wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: psn}, AETH: wire.AETH{Syndrome: syndrome}}
}
