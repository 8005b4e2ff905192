package qp

import (
	"bytes"
	"flag"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

var longestAll = flag.Bool("longest.all", false,
	"send the longest messages with every MTU, operation and loss: minutes")

// widePiece is the size of the memory that wide memory repeats.
const widePiece = 1 << 20

// wides are the wide memories of two hosts. Tests share them: to touch all pages of one takes seconds.
var wides = [2]func() ([]byte, error){
	sync.OnceValues(func() ([]byte, error) { return wide(maxMessage) }),
	sync.OnceValues(func() ([]byte, error) { return wide(maxMessage) }),
}

// wide returns n bytes of address space that maps the same piece of memory repeatedly: messages of gigabytes need only
// little memory. It is there until the process ends.
func wide(n int) ([]byte, error) {
	fd, err := unix.MemfdCreate("wide", unix.MFD_CLOEXEC)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Ftruncate(fd, widePiece)
	}
	var at unsafe.Pointer
	if err == nil {
		at, err = unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_NONE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	}
	for off := 0; err == nil && off < n; off += widePiece {
		const how = unix.MAP_SHARED | unix.MAP_FIXED
		_, err = unix.MmapPtr(fd, 0, unsafe.Add(at, off), widePiece, unix.PROT_READ|unix.PROT_WRITE, how)
	}
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), n), nil
}

// longest transfers one message of the greatest length, followed by a short one.
type longest struct {
	*exchange
	memory [2][]byte // of a and b
	first  [2][]byte // pieces that these repeat
	region [2]*mr.Region
	lose   map[ib.PSN]bool // requests, or responses to READs, that are lost once
}

func newLongest(t *testing.T, typ ib.QPType, mtu ib.MTU) *longest {
	x := &longest{exchange: &exchange{t: t}, lose: map[ib.PSN]bool{}}
	x.a, x.b = newServiceHost(t, typ, ourNum, false), newServiceHost(t, typ, peerNum, false)
	for i, h := range []*host{x.a, x.b} {
		h.q.cfg.Trains, h.q.cfg.Probe = true, true
		attr := [2]ib.QPAttr{goodAttr(peerNum, ourPSN, peerPSN), goodAttr(ourNum, peerPSN, ourPSN)}[i]
		attr.PathMTU = mtu
		h.up(ib.StateRTS, attr)
		memory, err := wides[i]()
		h.must(err)
		x.memory[i], x.first[i] = memory, memory[:widePiece]
		for k := range x.first[i] {
			x.first[i][k] = byte(k*7+k>>11) ^ byte(h.q.Num())
		}
		x.region[i], err = h.table.Register(h.pd, mr.Bytes(x.memory[i]), memAddr, allAccess)
		h.must(err)
	}
	return x
}

// move moves packets like exchange.move, with losses.
func (x *longest) move(now ib.Instant, from, to *host) (packets int) {
	n := from.q.NextPackets(now, x.tx[:])
	got := x.rx[:0]
	for i := range x.tx[:n] {
		for tx := &x.tx[i]; ; tx.Advance(1) {
			packets++
			p := tx.Packet
			p.Payload = x.bufs[len(got)][:tx.Len]
			if err := mr.Gather(p.Payload, tx.SGL, tx.Off); err != nil {
				x.t.Fatal(err)
			}
			if data := tx.Len > 0 || p.Opcode.IsRead(); data && x.lose[p.PSN] {
				delete(x.lose, p.PSN)
			} else {
				got = append(got, p)
			}
			if tx.Train == 0 {
				break
			}
		}
	}
	from.q.Sent(now)
	to.q.HandlePackets(now, got)
	from.effects()
	to.effects()
	return packets
}

// run moves packets until both messages are complete, and returns the completions of the
// requester.
func (x *longest) run(most int) (wcs []ib.WC) {
	now := ib.Instant(0)
	for packets, silences := 0, 0; len(wcs) < 2; {
		n := x.move(now, x.a, x.b) + x.move(now, x.b, x.a)
		packets += n
		wcs = append(wcs, x.wcs[:x.a.sendCQ.Poll(x.wcs[:2])]...)
		if n > 0 && packets <= most {
			now += 1000
			continue
		}
		now = min(x.a.q.Deadline(), x.b.q.Deadline())
		if silences++; now == driver.Never || packets > most || silences > 100 {
			x.t.Fatalf("after %d packets nothing moves: requester una %d nxt %d, %d in flight by the flow's account, "+
				"responder expects %d",
				packets, x.a.q.req.win.una, x.a.q.req.win.nxt, x.a.flow.packets, x.b.q.resp.epsn)
		}
		x.a.q.HandleTimeout(now)
		x.b.q.HandleTimeout(now)
	}
	return wcs
}

// TestLongestMessage checks that messages of 2^31 bytes, the maximum (IBTA C9-4), and of one
// byte less arrive whole, and the next message too. At an MTU of 256 they have 2^23 packets,
// the limit within which PSNs can be compared. The first, the middle and the last packet are
// lost once. Without -longest.all it is the READ that has so many: its request and its responses
// take the same PSNs.
func TestLongestMessage(t *testing.T) {
	require.NoRace(t, "millions of packets")
	if !*longestAll {
		require.FullRun(t, "millions of packets")
	}
	for _, c := range []struct {
		typ  ib.QPType
		op   ib.WROpcode
		loss bool
	}{{ib.RC, ib.WRWrite, false}, {ib.RC, ib.WRWrite, true}, {ib.RC, ib.WRRead, false}, {ib.RC, ib.WRRead, true},
		{ib.RC, ib.WRSend, false}, {ib.RC, ib.WRSend, true}, {ib.UC, ib.WRWrite, false}} {
		for _, mtu := range []ib.MTU{ib.MTU256, ib.MTU512, ib.MTU1024, ib.MTU2048, ib.MTU4096} {
			for _, size := range []int{maxMessage - 1, maxMessage} {
				usual := mtu == ib.MTU256 && c.op == ib.WRRead || mtu == ib.MTU4096 && c.op != ib.WRRead
				usual = usual && size == maxMessage && c.loss
				if !usual && !*longestAll {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/MTU %d/%d/loss %v", c.typ, c.op, mtu, size, c.loss), func(t *testing.T) {
					longestMessage(t, c.typ, c.op, mtu, size, c.loss)
				})
			}
		}
	}
}

func longestMessage(t *testing.T, typ ib.QPType, op ib.WROpcode, mtu ib.MTU, size int, loss bool) {
	x := newLongest(t, typ, mtu)
	packets := (size + int(mtu) - 1) / int(mtu)
	if loss {
		for _, n := range []int{0, packets / 2, packets - 1} {
			x.lose[ourPSN.Add(n)] = true
		}
	}
	if op == ib.WRSend {
		for id, n := range []int{size, 1} {
			x.b.postRecv(&ib.RecvWR{ID: uint64(id), SGL: x.halves(1, n)})
		}
	}
	for id, n := range []int{size, 1} {
		wr := ib.SendWR{ID: uint64(id), Opcode: op, Flags: ib.SendSignaled, RemoteAddr: memAddr,
			RKey: x.region[1].Key(), SGL: x.halves(0, n)}
		x.a.post(&wr)
	}
	for i, wc := range x.run(3*packets + 1000) {
		if wc.ID != uint64(i) || wc.Status != ib.WCSuccess || op == ib.WRRead &&
			wc.ByteLen != []uint32{uint32(size), 1}[i] {
			t.Errorf("got completion %+v, want the success of request %d, of its whole length", wc, i)
		}
	}
	if op == ib.WRSend {
		var wcs [3]ib.WC
		if n := x.b.recvCQ.Poll(wcs[:]); n != 2 || wcs[0].ByteLen != uint32(size) || wcs[1].ByteLen != 1 {
			t.Errorf("got %d receives, %+v, want 2, of %d bytes and of 1", n, wcs[:n], size)
		}
	}
	if !bytes.Equal(x.first[0], x.first[1]) {
		t.Error("the bytes are not those that were sent")
	}
	if len(x.lose) > 0 {
		t.Errorf("packets %v never left", x.lose)
	}
	if n := x.a.flow.packets; n != 0 {
		t.Errorf("%d packets are in flight when all is complete, want 0", n)
	}
}

// halves returns two SGEs for the first n bytes of a host's wide memory: an SGE has less than
// 2^32 bytes, a message may have more than one SGE.
func (x *longest) halves(host, n int) []ib.SGE {
	key := x.region[host].Key()
	half := n / 2
	return []ib.SGE{{Addr: memAddr, Length: uint32(half), LKey: key},
		{Addr: memAddr + uint64(half), Length: uint32(n - half), LKey: key}}
}

// TestLongestReadOfOthers checks that a READ of 2^31 bytes at an MTU of 256 that arrives as one
// request, as rdma_rxe sends it, is answered whole, and that its end is answered again.
func TestLongestReadOfOthers(t *testing.T) {
	x := newLongest(t, ib.RC, ib.MTU256)
	const packets = maxMessage / 256
	p := request(wire.RCReadRequest, peerPSN, nil)
	p.RETH = wire.RETH{VA: memAddr, RKey: x.region[0].Key(), Len: maxMessage}
	x.a.handle(0, p)
	answer := func(want int) {
		t.Helper()
		for n := 0; n < want; {
			used := x.a.q.NextPackets(0, x.tx[:])
			if used == 0 {
				t.Fatalf("%d responses, want %d", n, want)
			}
			for _, tx := range x.tx[:used] {
				if at := peerPSN.Add(packets - want + n); tx.PSN != at || tx.Off != uint64(packets-want+n)*256 {
					t.Fatalf("response %d has PSN %d and offset %d, want PSN %d", n, tx.PSN, tx.Off, at)
				}
				if n += 1 + tx.Train; (tx.Opcode == wire.RCReadRespLast) != (n == want) {
					t.Fatalf("response %d is %v; want the last one as packet %d", n, tx.Opcode, want)
				}
			}
			x.a.q.Sent(0)
		}
		if used := x.a.q.NextPackets(0, x.tx[:]); used != 0 {
			t.Fatalf("got %d packets behind the last response, the first %v, want none", used, x.tx[0].Opcode)
		}
	}
	answer(packets)
	x.a.handle(0, p) // all of it was lost
	answer(packets)
	p.PSN, p.RETH.VA, p.RETH.Len = peerPSN.Add(packets-2), memAddr+maxMessage-512, 512
	x.a.handle(0, p)
	answer(2)
}

// TestSpan checks that a request whose data is not placed keeps its PSNs, and that requests
// behind it do not begin if there would be more PSNs than can be compared.
func TestSpan(t *testing.T) {
	x := newLongest(t, ib.RC, ib.MTU256)
	h := x.a
	h.post(&ib.SendWR{ID: 1, Opcode: ib.WRRead, Flags: ib.SendSignaled, RKey: 1,
		SGL: []ib.SGE{{Addr: slowAddr, Length: 8, LKey: h.slowReg.Key()}}})
	if n := len(h.emit(0, 8)); n != 1 {
		t.Fatalf("%d packets, want the READ", n)
	}
	p := request(wire.RCReadRespOnly, ourPSN, make([]byte, 8))
	p.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: 1}
	h.handle(0, p)
	h.post(&ib.SendWR{ID: 2, Opcode: ib.WRWrite, Flags: ib.SendSignaled, RKey: 1, SGL: x.halves(0, maxMessage)})
	if out := h.emit(0, 8); len(out) != 0 {
		t.Errorf("a WRITE of 2^23 packets begins behind a READ that is not complete: %v", out[0].Opcode)
	}
	late := h.placements()
	if len(late) != 1 {
		t.Fatalf("got %d placements, want 1", len(late))
	}
	h.q.Placed(0, late[0].ID, 0, nil)
	if out := h.emit(0, 8); len(out) == 0 {
		t.Error("it does not begin when the READ is complete")
	}
}
