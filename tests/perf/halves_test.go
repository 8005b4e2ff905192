package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/linktest"
)

// loopbackMTU is the IP MTU of the loopback interface.
const loopbackMTU = 65536

// TestHalves runs both halves of jobs over loopback, in this process.
func TestHalves(t *testing.T) {
	for _, c := range []struct {
		name    string
		job     Job
		latency bool
	}{
		{"bare loop", Job{Kind: "bare"}, false},
		{"bare loop, 40 bytes", Job{Kind: "bare", Size: 40}, false},
		{"shaped loop, many packets", Job{Kind: "shaped", Size: 64 << 10}, false},
		{"shaped loop, shared runs", Job{Kind: "shaped", Size: 4 << 10}, false},
		{"bare ping-pong", Job{Kind: "bareping"}, true},
		{"WRITE", stream(ib.WRWrite, 4<<10), false},
		{"READ", stream(ib.WRRead, 4<<10), false},
		{"SEND", stream(ib.WRSend, 4<<10), false},
		{"WRITE, 70 QPs", Job{Kind: "stream", Op: ib.WRWrite, Size: 64, Depth: 2, QPs: 70}, false},
		{"WRITE, small buffers", Job{Kind: "stream", Op: ib.WRWrite, Size: 64, Depth: 2, RecvBuffer: userRecv}, false},
		{"WRITE ping-pong", Job{Kind: "pingpong", Op: ib.WRWrite, Size: pingSize, Depth: 16}, true},
		{"WRITE, events", Job{Kind: "stream", Op: ib.WRWrite, Size: 64, Depth: 16, Events: true}, false},
		{"WRITE, daemons, memfd", Job{Kind: "stream", Op: ib.WRWrite, Size: 64, Depth: 16, Events: true, Memory: memfd},
			false},
		{"WRITE, daemons, process memory", Job{Kind: "stream", Op: ib.WRWrite, Size: 64, Depth: 16, Events: true,
			Memory: processMemory}, false},
		{"WRITE ping-pong, daemons", Job{Kind: "pingpong", Op: ib.WRWrite, Size: pingSize, Depth: 16, Memory: memfd},
			true},
		{"looped", Job{Kind: "loop", QPs: 2, Depth: 16}, true},
		{"looped, daemon", Job{Kind: "loop", QPs: 2, Depth: 16, Memory: memfd}, true},
		{"SEND ping-pong", Job{Kind: "pingpong", Op: ib.WRSend, Size: pingSize, Depth: 16}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := measureHere(t, c.job)
			for d := 4 * shortest; r.Messages == 0 && d < longest; d *= 4 { // a busy machine
				c.job.Duration = d
				r = measureHere(t, c.job)
			}
			if r.Messages <= 0 || r.Packets < r.Messages || r.Seconds <= 0 || r.CPU <= 0 {
				t.Errorf("measured %+v, want some, a packet a message or more", r)
			}
			if got := len(r.Latency) == len(quantiles); got != c.latency {
				t.Errorf("has latencies: %v, want %v: %v", got, c.latency, r.Latency)
			}
		})
	}
}

func TestIdle(t *testing.T) {
	if r := measureHere(t, Job{Kind: "idle", QPs: 200, Depth: 1}); r.PerQP < 100 || r.PerQP > 1<<20 {
		t.Errorf("an idle QP takes %v bytes, want 100 to 1 MiB", r.PerQP)
	}
}

func TestIdleDaemon(t *testing.T) {
	if r := measureHere(t, Job{Kind: "idle", QPs: 100, Depth: 1, Memory: memfd}); r.Daemon < 5 || r.Daemon > 1000 {
		t.Errorf("a daemon takes %v MiB, want 5 to 1,000", r.Daemon)
	}
}

// Durations of measurements.
const (
	shortest = 20 * time.Millisecond
	longest  = 10 * time.Second
)

// measureHere runs both halves of a job on two loopback addresses.
func measureHere(t *testing.T, j Job) Result {
	t.Helper()
	j.MTU, j.Duration = loopbackMTU, max(j.Duration, shortest)
	j.Self, j.Peer = linktest.Loopback(), linktest.Loopback()
	other := j
	other.Far, other.Self, other.Peer = true, j.Peer, j.Self
	done := make(chan error)
	var far Result
	go func() {
		var err error
		far, err = other.do()
		done <- err
	}()
	near, err := j.do()
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return merge(near, far)
}

// TestChild: a process that was started as an end prints a Result.
func TestChild(t *testing.T) {
	near := Job{Kind: "bareping", MTU: loopbackMTU, Duration: shortest, Self: linktest.Loopback(),
		Peer: linktest.Loopback()}
	far := near
	far.Far, far.Self, far.Peer = true, near.Peer, near.Self
	done := make(chan error)
	var outNear, outFar bytes.Buffer
	go func() { done <- child([]byte(far.text()), &outFar) }()
	if err := errors.Join(child([]byte(near.text()), &outNear), <-done); err != nil {
		t.Fatal(err)
	}
	for _, out := range []*bytes.Buffer{&outNear, &outFar} {
		var r Result
		if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Seconds <= 0 {
			t.Errorf("a child printed %q (%v), want a measurement", out, err)
		}
	}
}

func TestUnknownKind(t *testing.T) {
	if err := child([]byte(`{"Kind":"none"}`), os.Stdout); err == nil {
		t.Error("a job of no kind was done")
	}
}

// TestPeerGone: when one end dies, the other does not wait for it.
func TestPeerGone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	j := &Job{Self: linktest.Loopback(), Peer: linktest.Loopback()}
	far := &Job{Far: true, Self: j.Peer, Peer: j.Self}
	gone := make(chan error)
	go func() {
		p, err := meet(ctx, far)
		if err == nil {
			err = p.conn.Close()
		}
		gone <- err
	}()
	p, err := meet(ctx, j)
	if err := errors.Join(err, <-gone); err != nil {
		t.Fatal(err)
	}
	if _, err := swap(p, "hello"); err == nil {
		t.Error("swapped values with an end that is gone")
	}
}

// TestPutPacket holds the ring loop's packet against another implementation.
func TestPutPacket(t *testing.T) {
	src, dst := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	const size = 1100
	udp := layers.UDP{SrcPort: loopPort, DstPort: loopPort, Length: size - ethLen - ipLen}
	payload := gopacket.Payload(make([]byte, size-ethLen-ipLen-udpLen))
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")))
	})
	rapid.Check(t, func(t *rapid.T) {
		j := &Job{Self: address.Draw(t, "own address"), Peer: address.Draw(t, "peer's address")}
		got := make([]byte, size)
		putPacket(got, j, src, dst)
		ip := layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: j.Self.AsSlice(),
			DstIP: j.Peer.AsSlice()}
		want := gopacket.NewSerializeBuffer()
		for _, step := range []struct {
			layer gopacket.SerializableLayer
			fix   bool // lengths and checksums; that of UDP stays 0
		}{{payload, false}, {&udp, false}, {&ip, true},
			{&layers.Ethernet{SrcMAC: src, DstMAC: dst, EthernetType: layers.EthernetTypeIPv4}, false}} {
			if err := step.layer.SerializeTo(want, gopacket.SerializeOptions{FixLengths: step.fix,
				ComputeChecksums: step.fix}); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want.Bytes(), got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestRing plays the kernel's side of a ring, across the wrap of its indices.
func TestRing(t *testing.T) {
	const start = 1<<32 - 3*ringEntries
	entries := make([]uint64, ringEntries)
	var producer, consumer atomic.Uint32
	producer.Store(start)
	consumer.Store(start)
	give := xskRing[uint64]{mine: &producer, theirs: &consumer, entries: entries, next: start, limit: start,
		room: ringEntries}
	take := xskRing[uint64]{mine: &consumer, theirs: &producer, entries: entries, next: start, limit: start}
	given, taken := uint64(0), uint64(0)
	for round := range 10 {
		for slot := give.give(); slot != nil; slot = give.give() {
			*slot = given
			given++
		}
		if take.take() != nil {
			t.Fatal("took an entry that was not published")
		}
		give.publish()
		for got := take.take(); got != nil; got = take.take() {
			if *got != taken {
				t.Fatalf("round %d: took %d, want %d", round, *got, taken)
			}
			taken++
		}
		if give.give() != nil {
			t.Fatal("gave an entry that is not free")
		}
		take.publish()
	}
	if want := uint64(10 * ringEntries); given != want || taken != want {
		t.Errorf("gave %d and took %d entries, want %d", given, taken, want)
	}
}
