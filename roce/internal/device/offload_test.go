package device_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// numberings are ways in which a NIC may number the segments of a run other than 0, 1,
// 2 .., for which their ICRCs were computed.
func numberings() map[string]func(ids []uint16) {
	next, runs := uint16(0), 0
	rng := rand.New(rand.NewPCG(1, 1))
	return map[string]func(ids []uint16){
		"right at first": func(ids []uint16) {
			if runs++; runs%100 > 3 {
				each(ids, func(i uint16) uint16 { return 500 + i })
			}
		},
		"all 0":        func(ids []uint16) { clear(ids) },
		"a counter":    func(ids []uint16) { each(ids, func(_ uint16) uint16 { next++; return next }) },
		"from 1000":    func(ids []uint16) { each(ids, func(i uint16) uint16 { return 1000 + i }) },
		"byte-swapped": func(ids []uint16) { each(ids, func(i uint16) uint16 { return i<<8 | i>>8 }) },
		"random":       func(ids []uint16) { each(ids, func(uint16) uint16 { return uint16(rng.Uint32()) | 0x100 }) },
		"backwards":    func(ids []uint16) { each(ids, func(i uint16) uint16 { return uint16(len(ids)) - 1 - i }) },
	}
}

func each(ids []uint16, f func(uint16) uint16) {
	for i := range ids {
		ids[i] = f(ids[i])
	}
}

// segmented makes two hosts whose links number segments by the given function (nil:
// correctly), with faults above.
func segmented(t testing.TB, bufSize int, a, b func([]uint16), bad func(seed uint64, l link.Link) link.Link,
	off func(ib.GID)) *world {
	t.Helper()
	return segmentedAt(t, gidA, gidB, bufSize, a, b, bad, off)
}

// segmentedAt is segmented for hosts with other addresses.
func segmentedAt(t testing.TB, gidA, gidB ib.GID, bufSize int, a, b func([]uint16),
	bad func(seed uint64, l link.Link) link.Link, off func(ib.GID)) *world {
	t.Helper()
	network := mem.NewNetwork()
	open := func(gid ib.GID, seed uint64, number func([]uint16)) *host {
		l := bad(seed, wrap.Seal(linktest.Segment(network.Open([]ib.GID{gid}, mem.Options{}), number)))
		return openHost(t, l, device.Options{Manual: true, Seed: seed, AckDelay: -1, OnOffloadOff: off}, bufSize)
	}
	return &world{t: t, a: open(gidA, 1, a), b: open(gidB, 2, b)}
}

func noFaults(_ uint64, l link.Link) link.Link { return l }

// ends has both ends of one of several connections between the hosts of a world.
type ends struct{ a, b ib.QP }

// connectMany makes n connections.
func (w *world) connectMany(n int, change func(*ib.QPAttr)) []ends {
	list := make([]ends, n)
	for i := range list {
		w.connect(ib.MTU256, change)
		list[i] = ends{w.a.qp, w.b.qp}
	}
	return list
}

// use selects the connection for send, recv and poll.
func (w *world) use(e ends) { w.a.qp, w.b.qp = e.a, e.b }

// exchange transfers size bytes on each connection, all at the same time, and checks them.
func (w *world) exchange(list []ends, op ib.WROpcode, size int, seed byte) {
	w.t.Helper()
	if err := w.tryExchange(list, op, size, seed); err != nil {
		w.t.Fatalf("%v of %d bytes: %v at %d ns", op, size, err, w.now)
	}
}

// tryExchange is exchange for connections that may fail.
func (w *world) tryExchange(list []ends, op ib.WROpcode, size int, seed byte) error {
	w.t.Helper()
	src, dst := w.a, w.b
	if op == ib.WRRead {
		src, dst = w.b, w.a
	}
	fill(src.buf, seed)
	clear(dst.buf)
	for i, e := range list {
		w.use(e)
		if op == ib.WRSend {
			w.recv(w.b, ib.RecvWR{SGL: w.b.sge(i*size, size)})
		}
		w.send(w.a, ib.SendWR{Opcode: op, SGL: w.a.sge(i*size, size), RemoteAddr: w.b.mr.Addr() + uint64(i*size),
			RKey: w.b.mr.RKey()})
	}
	for range list {
		if wc := w.poll(w.a); wc.Err() != nil {
			return wc.Err()
		}
		if op == ib.WRSend {
			if wc := w.poll(w.b); wc.Err() != nil {
				return wc.Err()
			}
		}
	}
	if n := len(list) * size; !bytes.Equal(src.buf[:n], dst.buf[:n]) {
		w.t.Fatalf("%v: data differ", op)
	}
	return nil
}

// TestOffloadLies: however a NIC sets the identifications of segments, all messages
// arrive with any retry count, and offload is given up if frames are lost by it.
func TestOffloadLies(t *testing.T) {
	for name, number := range numberings() {
		for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRSend, ib.WRRead} {
			for _, qps := range []int{1, 20} {
				retries := uint8(1 + len(name)%7)
				t.Run(fmt.Sprintf("%s/%v/%d QPs", name, op, qps), func(t *testing.T) {
					reports, runs := 0, 0
					lie := func(ids []uint16) { runs++; number(ids) }
					w := segmented(t, 1<<18, lie, lie, noFaults, func(ib.GID) { reports++ })
					list := w.connectMany(qps, func(a *ib.QPAttr) { a.RetryCnt = retries })
					liar := w.a
					if op == ib.WRRead {
						liar = w.b
					}
					rounds := 0
					for ; rounds < 500 && liar.dev.Offload() == device.OffloadOn; rounds++ {
						w.exchange(list, op, 10_000, byte(rounds))
					}
					if st := liar.dev.Stats(); liar.dev.Offload() != device.OffloadOff || reports != 1 ||
						st.OffloadOff != 1 || st.OffloadTrials != 1 {
						t.Fatalf("after %d rounds offload is %v, reported %d times, want %v, once: %+v", rounds,
							liar.dev.Offload(), reports, device.OffloadOff, st)
					}
					before := w.a.dev.Stats().CompleterRetry
					for i := range 20 {
						w.exchange(list, op, 10_000, byte(i))
					}
					if n := w.a.dev.Stats().CompleterRetry - before; n != 0 {
						t.Errorf("got %d repetitions with offload off, want none", n)
					}
				})
			}
		}
	}
}

// TestOffloadLiesAndLoss: wrong numbering is detected on a network that also loses a
// packet now and then.
func TestOffloadLiesAndLoss(t *testing.T) {
	for seed := range uint64(20) {
		bad := func(host uint64, l link.Link) link.Link {
			return wrap.Fault(l, wrap.FaultConfig{Seed: 2*seed + host, Drop: 0.005, Duplicate: 0.01, Reorder: 0.005})
		}
		w := segmented(t, 1<<18, func(ids []uint16) { clear(ids) }, nil, bad, nil)
		list := w.connectMany(3, func(a *ib.QPAttr) { a.Timeout = 10 })
		rounds := 0
		for ; rounds < 1000 && w.a.dev.Offload() == device.OffloadOn; rounds++ {
			w.exchange(list, ib.WRWrite, 10_000, byte(rounds))
		}
		if w.a.dev.Offload() != device.OffloadOff || w.b.dev.Offload() != device.OffloadOn {
			t.Errorf("seed %d: after %d rounds offload is %v at the liar, %v at the honest host; want %v, %v", seed,
				rounds, w.a.dev.Offload(), w.b.dev.Offload(), device.OffloadOff, device.OffloadOn)
		}
	}
}

// TestOffloadOffForDestination: when RC traffic has shown that runs do not arrive at a
// destination, UC does not use them there either. Other destinations are not affected, so a lying
// peer slows down no traffic to others.
func TestOffloadOffForDestination(t *testing.T) {
	runs := 0
	w := segmented(t, 1<<18, func(ids []uint16) { runs++; clear(ids) }, nil, noFaults, nil)
	w.giveUp(w.connectMany(1, nil))
	if off := w.a.dev.OffloadOff(); len(off) != 1 || off[0] != gidB {
		t.Errorf("offload is off to %v, want only %v", off, gidB)
	}
	other := gidB
	other[15]++
	for _, c := range []struct {
		dst   ib.GID
		alone bool
	}{{gidB, true}, {other, false}} {
		uc, err := w.a.pd.CreateQP(ib.QPInit{Type: ib.UC, SendCQ: w.a.cq, RecvCQ: w.a.cq,
			Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
		if err != nil {
			t.Fatal(err)
		}
		w.modify(uc, ib.QPAttr{State: ib.StateInit, Port: 1}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess)
		w.modify(uc, ib.QPAttr{State: ib.StateRTR, AH: ib.AHAttr{DGID: c.dst}, PathMTU: ib.MTU256, DestQPN: 77},
			ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN)
		w.modify(uc, ib.QPAttr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN)
		w.a.qp, runs = uc, 0
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10_000)})
		w.wantDone(w.a, 0)
		if (runs == 0) != c.alone {
			t.Errorf("to %v: UC sent several frames at once %d times; each alone: want %v", c.dst.Addr(), runs, c.alone)
		}
	}
}

// giveUp exchanges messages until offload is off.
func (w *world) giveUp(list []ends) {
	w.t.Helper()
	for i := range 500 {
		if w.a.dev.Offload() == device.OffloadOff {
			return
		}
		w.exchange(list, ib.WRSend, 10_000, byte(i))
	}
	w.t.Fatal("offload is still on")
}

// TestOffloadTriedAgain: after ten minutes runs are on trial again, and trusted when one has
// arrived. Until then no message fails, whether the NIC still numbers segments wrongly or not.
func TestOffloadTriedAgain(t *testing.T) {
	for _, honest := range []bool{false, true} {
		t.Run(fmt.Sprintf("honest=%v", honest), func(t *testing.T) {
			lie, runs, reports := true, 0, 0
			w := segmented(t, 1<<18, func(ids []uint16) {
				if runs++; lie {
					clear(ids)
				}
			}, nil, noFaults, func(ib.GID) { reports++ })
			list := w.connectMany(1, nil)
			w.giveUp(list)
			lie = !honest
			w.now += ib.Instant(10 * time.Minute)
			if w.exchange(list, ib.WRSend, 10_000, 1); w.a.dev.Offload() != device.OffloadOn {
				t.Fatalf("after ten minutes: got offload %v, want %v", w.a.dev.Offload(), device.OffloadOn)
			}
			if !honest {
				w.giveUp(list)
				if reports != 2 {
					t.Errorf("%d reports, want 2", reports)
				}
				return
			}
			w.exchange(list, ib.WRSend, 60_000, 2) // ends the trial
			runs = 0
			w.exchange(list, ib.WRSend, 60_000, 3)
			if st := w.a.dev.Stats(); runs == 0 || st.OffloadOff != 0 || reports != 1 {
				t.Errorf("%d runs of several frames, %d reports, %+v; want some, 1, and offload never off", runs,
					reports, st)
			}
		})
	}
}

// TestOffloadRetryCounts: each retry count that allows one retry is enough, for
// messages of any length.
func TestOffloadRetryCounts(t *testing.T) {
	for name := range numberings() {
		for _, op := range []ib.WROpcode{ib.WRSend, ib.WRRead, ib.WRWrite} {
			for retries := uint8(1); retries <= 7; retries++ {
				number := numberings()[name]
				w := segmented(t, 1<<18, number, number, noFaults, nil)
				list := w.connectMany(1+int(retries-1)%4, func(a *ib.QPAttr) { a.RetryCnt = retries })
				for i, size := range []int{40_000, 600, 1500, 256, 8, 5000, 60_000, 700} {
					w.exchange(list, op, size, byte(i))
				}
				if w.a.dev.Stats().CompleterRetry == 0 {
					t.Errorf("%s, %v: the link told no lie, want some retries", name, op)
				}
			}
		}
	}
}

// TestOffloadLostACKs: a host that only answers does not learn of losses, so lost ACKs
// make the next ACKs go alone. Messages of both directions arrive.
func TestOffloadLostACKs(t *testing.T) {
	w := segmented(t, 1<<18, nil, func(ids []uint16) { each(ids, func(i uint16) uint16 { return 7 * i }) }, noFaults,
		nil)
	w.connect(ib.MTU256, nil)
	for i := range 300 {
		w.recv(w.a, ib.RecvWR{SGL: w.a.sge(0, 64)})
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 64)})
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(64, 64)})
		w.send(w.b, ib.SendWR{Opcode: ib.WRSend, SGL: w.b.sge(64, 64)})
		for _, h := range []*host{w.a, w.b, w.a, w.b} {
			if wc := w.poll(h); wc.Err() != nil {
				t.Fatalf("message %d: %v", i, wc.Err())
			}
		}
	}
	// 32, 64, 128 .. ACKs between one lost ACK and the next.
	if n := w.b.dev.Stats().DuplicateRequest; n == 0 || n > 5 {
		t.Errorf("%d requests repeated for 300 messages, want 1 to 5", n)
	}
	if w.a.dev.Offload() != device.OffloadOn {
		t.Error("the honest host gave offload up")
	}
}

// TestOffloadStaysOn: on a network that loses, duplicates, reorders or delays packets,
// offload is not given up for a link that numbers segments correctly.
func TestOffloadStaysOn(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c := wrap.FaultConfig{Drop: []float64{0.01, 0.1, 0.2, 0.3}[rng.IntN(4)], MaxDelay: 100 * time.Microsecond}
		switch rng.IntN(3) {
		case 0:
			c.Reorder = 0.2
		case 1:
			c.Delay, c.Duplicate = 0.2, 0.1
		}
		bad := func(host uint64, l link.Link) link.Link {
			c.Seed = 2*seed + host
			return wrap.Fault(l, c)
		}
		w := segmented(t, 1<<18, nil, nil, bad, func(ib.GID) { t.Errorf("seed %d: %+v turned offload off", seed, c) })
		list := w.connectMany(1+rng.IntN(4), func(a *ib.QPAttr) { a.Timeout = 10; a.RetryCnt = 7 })
		for i := range 12 {
			op := []ib.WROpcode{ib.WRSend, ib.WRRead, ib.WRWrite}[rng.IntN(3)]
			if w.tryExchange(list, op, 500+rng.IntN(8000), byte(i)) != nil {
				break // retries were exhausted by that many losses in a row
			}
		}
		if w.a.dev.Offload() != device.OffloadOn || w.b.dev.Offload() != device.OffloadOn {
			t.Errorf("seed %d: offload is %v and %v with %+v, want %v", seed, w.a.dev.Offload(), w.b.dev.Offload(), c,
				device.OffloadOn)
		}
	}
}

// TestOffloadIPv6: IPv6 has no identification, so a NIC cannot number segments wrongly.
func TestOffloadIPv6(t *testing.T) {
	a, b := ib.GID{0: 0xFD, 15: 1}, ib.GID{0: 0xFD, 15: 2}
	runs := 0
	lie := func(ids []uint16) { runs++; clear(ids) }
	w := segmentedAt(t, a, b, 1<<18, lie, lie, noFaults, nil)
	w.connectTo(a, b, ib.MTU256, nil)
	for i := range 20 {
		w.exchange([]ends{{w.a.qp, w.b.qp}}, ib.WRWrite, 10_000, byte(i))
	}
	if st := w.a.dev.Stats(); st.CompleterRetry != 0 || st.OffloadTrials != 0 || runs == 0 {
		t.Errorf("%d runs of several frames, %+v; want some, and nothing repeated", runs, st)
	}
}

// TestOffloadSilence: peers that die, temporarily or permanently, and peers without a
// posted receive do not cause offload to be given up.
func TestOffloadSilence(t *testing.T) {
	const qps = 30
	var silence wrap.Rules
	die := func() {
		_, err := silence.Add(wrap.Rule{Action: wrap.ActDrop, Direction: wrap.DirOut})
		must(t, err)
	}
	gate := func(_ uint64, l link.Link) link.Link { return silence.Above(l) }
	w := segmented(t, 1<<19, nil, nil, gate, func(ib.GID) { t.Error("offload went off") })
	list := w.connectMany(qps, nil)
	for i := range 20 { // each message is sent into the silence, which ends before the retries
		die()
		for _, e := range list {
			w.use(e)
			w.send(w.a, ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(0, 10_000), RemoteAddr: w.b.mr.Addr(),
				RKey: w.b.mr.RKey()})
		}
		for end := w.now + 150e6; w.now < end && w.advance(); {
		}
		silence.Clear()
		for range list {
			w.wantDone(w.a, 0)
		}
		if i%4 == 3 { // no receive is posted in time
			w.use(list[0])
			w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10_000)})
			for range 5 {
				w.advance()
			}
			w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 10_000)})
			w.wantDone(w.a, 0)
			w.wantDone(w.b, 0)
		}
	}
	die()
	for _, e := range list {
		w.use(e)
		w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: w.a.sge(0, 10_000), RemoteAddr: w.b.mr.Addr(),
			RKey: w.b.mr.RKey()})
	}
	for range list {
		if wc := w.poll(w.a); wc.Status != ib.WCRetryExcErr {
			t.Fatalf("from a dead peer: got completion %+v, want %v", wc, ib.WCRetryExcErr)
		}
	}
	if w.a.dev.Offload() != device.OffloadOn || w.b.dev.Offload() != device.OffloadOn {
		t.Error("offload is not on")
	}
}
