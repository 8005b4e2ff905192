package device_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// newLiveShards is newLive with several shards, and the CQs on one of them.
func newLiveShards(t testing.TB, shards, home, bufSize int) *world {
	t.Helper()
	open := func() *host {
		links, err := udp.OpenShards([]netip.Addr{linktest.Loopback()}, udp.Options{}, shards)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range links {
			links[i] = wrap.Seal(wrap.Loopback(l))
		}
		return openHostShards(t, links, home, device.Options{}, bufSize)
	}
	return &world{t: t, a: open(), b: open(), timeout: liveTimeout}
}

// sendCQs returns a CQ on each shard.
func (h *host) sendCQs(t testing.TB) []ib.CQ {
	t.Helper()
	cqs := make([]ib.CQ, h.dev.Shards())
	for range cqs {
		cq, err := h.dev.CreateCQ(ib.CQInit{Entries: 1024})
		must(t, err)
		probe, err := h.pd.CreateQP(ib.QPInit{Type: ib.UC, SendCQ: cq, RecvCQ: cq})
		must(t, err)
		cqs[link.ShardOf(probe.Num(), len(cqs))] = cq
		must(t, probe.Close())
	}
	return cqs
}

// TestShardOfQP: a QP is on the shard of its send CQ, whatever else it uses. CQs are spread over
// the shards, and so are QPs without a send CQ.
func TestShardOfQP(t *testing.T) {
	const shards = 4
	w := newWorld(t, 1, 64, stack{above: same, below: same, shards: shards})
	h := w.a
	cqs := h.sendCQs(t)
	for i, cq := range cqs {
		if cq == nil {
			t.Fatalf("no CQ is on shard %d", i)
		}
		for _, recv := range cqs {
			for _, typ := range []ib.QPType{ib.RC, ib.UC, ib.UD, ib.XRCINI} {
				q, err := h.pd.CreateQP(ib.QPInit{Type: typ, SendCQ: cq, RecvCQ: recv})
				must(t, err)
				if got := link.ShardOf(q.Num(), shards); got != i {
					t.Errorf("%v QP %#x is on shard %d, want %d as its send CQ", typ, uint32(q.Num()), got, i)
				}
				must(t, q.Close())
			}
		}
	}
	xrcd, err := h.dev.AllocXRCD()
	must(t, err)
	var targets [shards]int
	for range 2 * shards {
		q, err := h.pd.CreateQP(ib.QPInit{Type: ib.XRCTGT, XRCD: xrcd})
		must(t, err)
		targets[link.ShardOf(q.Num(), shards)]++
	}
	if targets != [shards]int{2, 2, 2, 2} {
		t.Errorf("XRC targets by shard: %v, want 2 on each", targets)
	}
	if _, err := h.pd.CreateQP(ib.QPInit{Type: ib.GSI, SendCQ: cqs[1], RecvCQ: cqs[1]}); !errors.Is(err,
		ib.ErrNotSupported) {
		t.Errorf("a general services QP: %v, want %v; the connection manager has it", err, ib.ErrNotSupported)
	}
}

// TestCompVector: a CQ is on the shard that its completion vector names; without one CQs are dealt in turn.
func TestCompVector(t *testing.T) {
	const shards = 4
	h := newWorld(t, 1, 64, stack{above: same, below: same, shards: shards}).a
	if n := h.dev.Attr().CompVectors; n != shards {
		t.Fatalf("got %d vectors, want one for each of %d shards", n, shards)
	}
	var dealt [shards]int
	for i := range 3 * shards {
		vector := i % shards
		cq, err := h.dev.CreateCQ(ib.CQInit{Entries: 4, CompVector: vector})
		must(t, err)
		q, err := h.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})
		must(t, err)
		on := link.ShardOf(q.Num(), shards)
		if vector > 0 && on != vector {
			t.Errorf("a CQ of vector %d is on shard %d, want %d", vector, on, vector)
		}
		if vector == 0 {
			dealt[on]++
		}
	}
	for shard, n := range dealt {
		if n > 1 {
			t.Errorf("%d of %d CQs without a vector are on shard %d, want at most 1", n, 3, shard)
		}
	}
}

// TestOneShardHasAll: the QPs of a CQ, which are all on its shard, may be most of the device's.
func TestOneShardHasAll(t *testing.T) {
	const shards = link.MaxShards
	w := newWorld(t, 1, 64, stack{above: same, below: same, shards: shards})
	cq := w.a.sendCQs(t)[5]
	for i := range w.a.dev.Attr().MaxQP / 2 {
		if _, err := w.a.pd.CreateQP(ib.QPInit{Type: ib.UC, SendCQ: cq, RecvCQ: cq}); err != nil {
			t.Fatalf("QP %d: %v", i, err)
		}
	}
}

// TestLinksRefused: OpenShards refuses links that cannot serve one device together.
func TestLinksRefused(t *testing.T) {
	network := mem.NewNetwork()
	gid := func(s string) []ib.GID { return []ib.GID{ib.GIDFromAddr(netip.MustParseAddr(s))} }
	three := network.OpenShards(gid("192.0.2.1"), mem.Options{}, 3)
	for _, c := range []struct {
		name  string
		links []link.Link
	}{
		{"none", nil},
		{"three", three},
		{"other addresses", []link.Link{three[0], network.Open(gid("192.0.2.2"), mem.Options{})}},
		{"another MTU", []link.Link{three[0], network.Open(gid("192.0.2.1"), mem.Options{MTU: 1500})}},
		{"other runs", []link.Link{three[0], network.Open(gid("192.0.2.1"), mem.Options{RunFrames: 1})}},
	} {
		var attr *ib.AttrError
		if _, err := device.OpenShards(c.links, device.Options{Manual: true}); !errors.As(err, &attr) {
			t.Errorf("%s: error %v, want an *ib.AttrError", c.name, err)
		}
	}
}

// TestCrossing: a QP gets its messages by whichever link they arrive. Frames that cross to
// another shard are counted; if each arrives by the link of its shard there are none.
func TestCrossing(t *testing.T) {
	for _, c := range []struct {
		name  string
		steer func(*link.Run, int) int
		cross bool
	}{{"by shard", nil, false}, {"all by the first", func(*link.Run, int) int { return 0 }, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1, 1<<17, stack{above: same, below: same, shards: 4, steer: c.steer, home: 2})
			w.connect(ib.MTU1024, nil)
			fill(w.a.buf, 5)
			w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: w.a.sge(0, 1<<17), RemoteAddr: w.b.mr.Addr(),
				RKey: w.b.mr.RKey()})
			if wc := w.poll(w.a); wc.Err() != nil || !bytes.Equal(w.a.buf, w.b.buf) {
				t.Fatalf("%v, or data differ; want %v and the data", wc.Status, ib.WCSuccess)
			}
			st := w.b.dev.Stats()
			if (st.CrossedShards >= 128) != c.cross || (st.CrossedShards == 0) == c.cross ||
				st.DropMailbox+st.DropNoQP+st.OutOfSeqRequest != 0 {
				t.Errorf("%+v;\nwant 128 crossings if %v, else none, and nothing dropped", st, c.cross)
			}
		})
	}
}

// TestMixedRun: frames of one run for QPs of several shards each reach theirs, once.
// Senders assume that a peer has four shards.
func TestMixedRun(t *testing.T) {
	const shards, each = 8, 20
	w := newWorld(t, 1, 8192, stack{above: same, below: same, shards: shards})
	ah, err := w.a.pd.CreateAH(ib.AHAttr{DGID: gidB, FlowLabel: 7}) // one label, one source port: they share runs
	must(t, err)
	sender := w.newQP(w.a, ib.QPInit{Type: ib.UD})
	w.datagramUp(sender)
	var members [shards]ib.QP
	for i, cq := range w.b.sendCQs(t) {
		q, err := w.b.pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: w.b.cq,
			Cap: ib.QPCap{MaxRecvWR: each, MaxRecvSGE: 1}})
		must(t, err)
		w.datagramUp(q)
		for j := range each {
			_, err := q.PostRecv([]ib.RecvWR{{ID: uint64(j), SGL: w.b.sge(0, 100)}})
			must(t, err)
		}
		members[i] = q
	}
	for range each {
		for i := range members {
			q := members[i/2+i%2*shards/2] // QPs whose packets share runs are consecutive
			_, err := sender.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: w.a.sge(0, 8), AH: ah.Num(),
				RemoteQPN: q.Num(), RemoteQKey: qkey}})
			must(t, err)
		}
		w.settle()
	}
	next := map[ib.QPN]uint64{}
	for range shards * each {
		wc := w.poll(w.b)
		if wc.Err() != nil || wc.ID != next[wc.QPN] {
			t.Fatalf("QP %#x: receive %d, %v; want %d", uint32(wc.QPN), wc.ID, wc.Status, next[wc.QPN])
		}
		next[wc.QPN]++
	}
	if st := w.b.dev.Stats(); len(next) != shards || st.DropNoQP != 0 || st.RcvdPkts != shards*each ||
		st.CrossedShards == 0 {
		t.Errorf("%d QPs got datagrams; %+v;\nwant %d QPs, %d packets, some crossings, none dropped", len(next), st,
			shards, shards*each)
	}
}

// TestRunsOfOneShard: QPs with one path share runs only if their peers are on the same shard, so
// that no frame has to cross.
func TestRunsOfOneShard(t *testing.T) {
	const shards, qps, size = 4, 32, 4096
	w := newWorld(t, 1, qps*size, stack{above: same, below: same, shards: shards})
	cqs := w.b.sendCQs(t)
	var posting []ib.QP
	for i := range qps {
		w.b.cq = cqs[i%shards]
		w.connect(ib.MTU1024, func(a *ib.QPAttr) { a.AH.FlowLabel = 7 }) // one source port
		posting = append(posting, w.a.qp)
	}
	fill(w.a.buf, 3)
	for i, q := range posting {
		_, err := q.PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: w.a.sge(i*size, size),
			RemoteAddr: w.b.mr.Addr() + uint64(i*size), RKey: w.b.mr.RKey()}})
		must(t, err)
	}
	for range qps {
		if wc := w.poll(w.a); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
	}
	if st := w.b.dev.Stats(); st.CrossedShards != 0 || !bytes.Equal(w.a.buf, w.b.buf) {
		t.Errorf("%d frames crossed shards, want none; or data differ", st.CrossedShards)
	}
	if st := w.a.dev.Stats().Link; st.TxFrames < 4*st.TxRuns {
		t.Errorf("%d frames in %d runs, want 4 or more a run", st.TxFrames, st.TxRuns)
	}
}

// TestGroupOverShards: members on every shard get each datagram that arrives for their group by
// the first link, once each, until they leave.
func TestGroupOverShards(t *testing.T) {
	const shards = 4
	w := newWorld(t, 1, 8192, stack{above: same, below: same, shards: shards})
	gid := ib.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))
	ah, err := w.a.pd.CreateAH(ib.AHAttr{DGID: gid})
	must(t, err)
	w.a.qp = w.newQP(w.a, ib.QPInit{Type: ib.UD})
	w.datagramUp(w.a.qp)
	var members []ib.QP
	for i, cq := range w.b.sendCQs(t) {
		if i == 0 {
			continue // no member is on the first shard, whose link joins the group
		}
		for range 2 {
			q, err := w.b.pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: w.b.cq,
				Cap: ib.QPCap{MaxRecvWR: 8, MaxRecvSGE: 1}})
			must(t, err)
			w.datagramUp(q)
			must(t, q.AttachMulticast(gid))
			for id := range uint64(8) {
				_, err = q.PostRecv([]ib.RecvWR{{ID: id, SGL: w.b.sge(0, 100)}})
				must(t, err)
			}
			members = append(members, q)
		}
	}
	for len(members) > 0 {
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10), AH: ah.Num(), RemoteQPN: ib.QPNMulticast,
			RemoteQKey: qkey})
		w.settle()
		got := map[ib.QPN]int{}
		wcs := make([]ib.WC, 32)
		n, err := w.b.cq.Poll(wcs)
		must(t, err)
		for _, wc := range wcs[:n] {
			got[wc.QPN]++
		}
		for _, q := range members {
			if got[q.Num()] != 1 {
				t.Errorf("QP %#x: got %d copies, want 1", uint32(q.Num()), got[q.Num()])
			}
		}
		if n != len(members) {
			t.Errorf("got %d copies, want one for each of %d members", n, len(members))
		}
		last := len(members) - 1
		must(t, members[last].DetachMulticast(gid))
		members = members[:last]
	}
	w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10), AH: ah.Num(), RemoteQPN: ib.QPNMulticast,
		RemoteQKey: qkey})
	w.settle()
	if st := w.b.dev.Stats(); st.DropAddress != 0 || st.DropMailbox != 0 {
		t.Errorf("dropped: %+v, want none by address or mailbox", st)
	}
}

// TestSharedHandles: an address handle and an XRC SRQ serve the QPs of every shard.
func TestSharedHandles(t *testing.T) {
	const shards = 2
	w := newWorld(t, 1, 8192, stack{above: same, below: same, shards: shards})
	wrong, right := ib.AHAttr{DGID: gidA}, ib.AHAttr{DGID: gidB}
	ah, err := w.a.pd.CreateAH(wrong)
	must(t, err)
	must(t, ah.Modify(right))
	receiver := w.newQP(w.b, ib.QPInit{Type: ib.UD})
	w.datagramUp(receiver)
	xrcd, err := w.b.dev.AllocXRCD()
	must(t, err)
	srq, err := w.b.pd.CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, XRCD: xrcd, CQ: w.b.cq,
		SRQAttr: ib.SRQAttr{MaxWR: 8, MaxSGE: 1}})
	must(t, err)
	for i, cq := range w.a.sendCQs(t) {
		q, err := w.a.pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: cq,
			Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
		must(t, err)
		w.datagramUp(q)
		_, err = receiver.PostRecv([]ib.RecvWR{{ID: uint64(i), SGL: w.b.sge(0, 100)}})
		must(t, err)
		_, err = q.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: w.a.sge(0, 10), AH: ah.Num(),
			RemoteQPN: receiver.Num(), RemoteQKey: qkey}})
		must(t, err)
		if wc := w.poll(w.b); wc.Err() != nil || wc.ID != uint64(i) || wc.SrcQP != q.Num() {
			t.Errorf("datagram from shard %d: %+v, want ID %d from QP %v", i, wc, i, q.Num())
		}

		ini, err := w.a.pd.CreateQP(ib.QPInit{Type: ib.XRCINI, SendCQ: cq, Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
		must(t, err)
		target, err := w.b.pd.CreateQP(ib.QPInit{Type: ib.XRCTGT, XRCD: xrcd})
		must(t, err)
		w.bringUpXRC(ini, gidB, target.Num())
		w.bringUpXRC(target, gidA, ini.Num())
		_, err = srq.PostRecv([]ib.RecvWR{{ID: uint64(10 + i), SGL: w.b.sge(0, 100)}})
		must(t, err)
		_, err = ini.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: w.a.sge(0, 10), RemoteSRQ: srq.Num()}})
		must(t, err)
		if wc := w.poll(w.b); wc.Err() != nil || wc.ID != uint64(10+i) || wc.QPN != target.Num() {
			t.Errorf("XRC message to QP %#x: %+v, want ID %d", uint32(target.Num()), wc, 10+i)
		}
	}
}

// bringUpXRC takes an XRC QP to RTS.
func (w *world) bringUpXRC(q ib.QP, peer ib.GID, dest ib.QPN) {
	w.t.Helper()
	attr := ib.QPAttr{Port: 1, AH: ib.AHAttr{DGID: peer}, PathMTU: ib.MTU1024, DestQPN: dest,
		MinRNRTimer: 1, Timeout: liveTimeout, RetryCnt: 7, RNRRetry: 7}
	must(w.t, ib.ModifyTo(q, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

// TestQueuesOverShards: QPs of all shards take receives from one SRQ, complete to one
// CQ, and raise the events of both.
func TestQueuesOverShards(t *testing.T) {
	const shards, each = 4, 500
	w := newLiveShards(t, shards, 0, 1<<16)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cq, err := w.b.dev.CreateCQ(ib.CQInit{Entries: 2 * shards * each})
	must(t, err)
	srq, err := w.b.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: shards * each, MaxSGE: 1}})
	must(t, err)
	for id := range shards * each / 2 {
		_, err := srq.PostRecv([]ib.RecvWR{{ID: uint64(id), SGL: w.b.sge(16*id, 16)}})
		must(t, err)
	}
	must(t, srq.Modify(ib.SRQAttr{Limit: shards * each / 4}, ib.SRQLimit))
	must(t, cq.Resize(4*shards*each))

	var senders sync.WaitGroup
	sendCQs, recvCQs := w.a.sendCQs(t), w.b.sendCQs(t)
	for i := range shards {
		q := w.connectOn(sendCQs[i], recvCQs[(i+1)%shards], cq, srq)
		senders.Go(func() { sendCounted(t, w.a, q, sendCQs[i], each) })
	}
	if ev, err := w.b.dev.NextEvent(ctx); err != nil || ev.Type != ib.EventSRQLimit {
		t.Fatalf("event %v, %v, want %v", ev.Type, err, ib.EventSRQLimit)
	}
	must(t, srq.Modify(ib.SRQAttr{MaxWR: 2 * shards * each}, ib.SRQMaxWR))
	for id := shards * each / 2; id < shards*each; id++ {
		_, err := srq.PostRecv([]ib.RecvWR{{ID: uint64(id), SGL: w.b.sge(16*id, 16)}})
		must(t, err)
	}
	next := map[ib.QPN]uint64{}
	seen := make([]bool, shards*each)
	for got := 0; got < shards*each; {
		wcs := make([]ib.WC, 64)
		n, err := cq.Wait(ctx, wcs)
		if err != nil {
			t.Fatalf("%d of %d messages: %v", got, shards*each, err)
		}
		for _, wc := range wcs[:n] {
			count := binary.NativeEndian.Uint64(w.b.buf[16*wc.ID:])
			if wc.Err() != nil || seen[wc.ID] || count != next[wc.QPN] {
				t.Fatalf("QP %#x: receive %d, %v, holds message %d; want %d", uint32(wc.QPN), wc.ID, wc.Status, count,
					next[wc.QPN])
			}
			seen[wc.ID] = true
			next[wc.QPN]++
		}
		got += n
	}
	senders.Wait()
}

// connectOn makes a connected pair of QPs on the shards of the CQs, of which the one on
// b receives by a shared queue, and returns the one on a.
func (w *world) connectOn(cqA, cqB, recvCQ ib.CQ, srq ib.SRQ) ib.QP {
	w.t.Helper()
	cap := ib.QPCap{MaxSendWR: 16, MaxSendSGE: 1}
	qa, err := w.a.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cqA, RecvCQ: cqA, Cap: cap, SigAll: true})
	must(w.t, err)
	qb, err := w.b.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cqB, RecvCQ: recvCQ, SRQ: srq, Cap: cap})
	must(w.t, err)
	gidA, gidB := w.a.gid(), w.b.gid()
	a, b := *w.a, *w.b
	a.qp, b.qp = qa, qb
	w.bringUp(&a, gidB, qb.Num(), ib.MTU1024, nil)
	w.bringUp(&b, gidA, qa.Num(), ib.MTU1024, nil)
	return qa
}

// sendCounted sends n messages, each with its number, one after the other.
func sendCounted(t *testing.T, h *host, q ib.QP, cq ib.CQ, n int) {
	var wcs [1]ib.WC
	for i := range n {
		at := 16 * int(q.Num()&0xFFF)
		binary.NativeEndian.PutUint64(h.buf[at:], uint64(i))
		if _, err := q.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: h.sge(at, 8)}}); err != nil {
			t.Errorf("message %d: %v", i, err)
			return
		}
		for end := time.Now().Add(60 * time.Second); ; runtime.Gosched() {
			k, err := cq.Poll(wcs[:])
			if err != nil || k == 1 && wcs[0].Err() != nil || time.Now().After(end) {
				t.Errorf("message %d: %v, %v; want %v", i, err, wcs[0].Status, ib.WCSuccess)
				return
			}
			if k == 1 {
				break
			}
		}
	}
}

// TestOwnAddressOverShards: two QPs of one device on different shards.
func TestOwnAddressOverShards(t *testing.T) {
	w := newLiveShards(t, 2, 0, 1<<16)
	cqs := w.a.sendCQs(t)
	w.b = &host{dev: w.a.dev, pd: w.a.pd, cq: cqs[1], buf: w.a.buf, mr: w.a.mr}
	w.a.cq = cqs[0]
	w.connectTo(w.a.gid(), w.a.gid(), ib.MTU1024, nil)
	for i := range 50 {
		fill(w.a.buf[:1<<15], byte(i))
		from, to := w.a, w.b
		if i%2 == 1 {
			from, to = w.b, w.a
		}
		w.send(from, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: from.sge(0, 1<<15), RemoteAddr: to.mr.Addr() + 1<<15,
			RKey: to.mr.RKey()})
		if wc := w.wait(from); wc.Err() != nil || !bytes.Equal(w.a.buf[:1<<15], w.a.buf[1<<15:]) {
			t.Fatalf("round %d: %v, want %v and the data", i, wc.Status, ib.WCSuccess)
		}
	}
	if st := w.a.dev.Stats(); st.CrossedShards == 0 {
		t.Error("nothing crossed")
	}
}

// TestPollerOfShard: an application that polls a CQ drives the CQ's home shard.
func TestPollerOfShard(t *testing.T) {
	w := newLiveShards(t, 2, 1, 4096)
	w.connectTo(w.a.gid(), w.b.gid(), ib.MTU1024, nil)
	for i := range 50 {
		var wcs [1]ib.WC
		for end := time.Now().Add(20 * time.Second); !w.a.dev.ShardStandsAside(1); {
			if n, err := w.a.cq.Poll(wcs[:]); n != 0 || err != nil || time.Now().After(end) {
				t.Fatalf("the shard's goroutine does not stand aside for the polling application: "+
					"%d completions, %v", n, err)
			}
		}
		w.send(w.a, ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: w.a.sge(0, 3000), RemoteAddr: w.b.mr.Addr(),
			RKey: w.b.mr.RKey()})
		if wc := w.wait(w.a); wc.Err() != nil || wc.ID != uint64(i) {
			t.Fatalf("completion %+v, want success of request %d", wc, i)
		}
	}
	if w.a.dev.StandsAside() {
		t.Error("the other shard stands aside, too")
	}
}
