package server

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// tell sends a request, and returns the reply and its descriptors.
func tell[Reply, Request any](t *testing.T, c *abi.Conn, op abi.Op, r Request, give ...int) (reply Reply, fds []int,
	err error) {
	t.Helper()
	must(t, c.Send(abi.Header{Op: op, Seq: uint32(op)}, abi.Put(nil, &r), give...))
	h, body, fds, err := c.Receive()
	must(t, err)
	switch {
	case h.Op != op || h.Seq != uint32(op):
		t.Fatalf("answered by %v %d, want %v %[3]d", h.Op, h.Seq, op)
	case h.Status != abi.OK:
		return reply, nil, abi.GetError(body, h.Status)
	}
	reply, err = abi.Get[Reply](body)
	must(t, err)
	t.Cleanup(func() { abi.CloseAll(fds) })
	return reply, fds, nil
}

// ask is tell for a request that must succeed.
func ask[Reply, Request any](t *testing.T, c *abi.Conn, op abi.Op, r Request, give ...int) Reply {
	t.Helper()
	reply, _, err := tell[Reply](t, c, op, r, give...)
	must(t, err)
	return reply
}

// greet says hello.
func greet(t *testing.T, c *abi.Conn) {
	t.Helper()
	ask[abi.HelloReply](t, c, abi.OpHello,
		abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version})
}

// TestQueryDevice checks that a client learns of all devices before it opens one, and the same afterwards.
func TestQueryDevice(t *testing.T) {
	var devices []roce.Device
	network := mem.NewNetwork()
	for _, name := range []string{"blue", "red"} {
		gid := ib.GIDFromAddr(linktest.Loopback())
		dev, err := device.Open(wrap.Seal(watched{network.Open([]ib.GID{gid}, mem.Options{})}), device.Options{
			Name: name})
		must(t, err)
		devices = append(devices, dev)
	}
	s, err := New(devices, Options{})
	must(t, err)
	t.Cleanup(func() {
		for _, dev := range devices {
			must(t, dev.Close())
		}
		must(t, s.Close())
	})
	theirs, session := connect(t, s)
	s.running.Go(func() { s.attend(session) })
	c := abi.NewConn(theirs)
	defer s.running.Wait()
	defer c.Close()

	if _, _, err := tell[abi.DeviceReply](t, c, abi.OpQueryDevice, abi.Open{}); !errors.Is(err, ib.ErrState) {
		t.Errorf("before hello: %v, want %v", err, ib.ErrState)
	}
	greet(t, c)
	for i, dev := range devices {
		r := ask[abi.DeviceReply](t, c, abi.OpQueryDevice, abi.Open{Device: abi.NameOf(dev.Attr().Name)})
		want := s.accounts.promise(dev.Attr())
		if r.Attr() != want || r.Index != uint32(i) || r.CompVectors != 1 {
			t.Errorf("device %d is %+v, want %+v", i, r, want)
		}
	}
	_, _, err = tell[abi.DeviceReply](t, c, abi.OpQueryDevice, abi.Open{Device: abi.NameOf("green")})
	if !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("a device that is not there: %v, want %v", err, ib.ErrInvalid)
	}
	if _, _, err := tell[abi.Object](t, c, abi.OpAllocPD, struct{}{}); !errors.Is(err, ib.ErrState) {
		t.Errorf("a PD of no device: %v, want %v", err, ib.ErrState)
	}
	opened := ask[abi.OpenReply](t, c, abi.OpOpen, abi.Open{Device: abi.NameOf("red")})
	again := ask[abi.DeviceReply](t, c, abi.OpQueryDevice, abi.Open{Device: abi.NameOf("red")})
	if opened.DeviceReply != again || opened.Shards != 1 {
		t.Errorf("opened as %+v, want %+v, as queried, of 1 shard", opened, again)
	}
}

// TestClockOffset checks that a client can tell the device's time from its own clock.
func TestClockOffset(t *testing.T) {
	_, dial := byHand(t, func(*Server) {})
	c := dial()
	begin(t, c)
	offset := ask[abi.DeviceReply](t, c, abi.OpQueryDevice, abi.Open{}).ClockOffset
	before := monotonic()
	now := ask[abi.ClockReply](t, c, abi.OpClock, struct{}{}).Now + offset
	after := monotonic()
	if slack := int64(time.Millisecond); now < before-slack || now > after+slack {
		t.Errorf("the device's time is %d ns, want it between %d and %d", now, before-slack, after+slack)
	}
}

// TestCreateCQ checks that a client's CQ is on the shard that it names, and has exactly the entries that it
// asks for.
func TestCreateCQ(t *testing.T) {
	const shards = 2
	s, _ := newShardedServer(t, shards)
	c := newBareSession(t, s)
	pd := c.make(abi.OpAllocPD, nil)
	for range 3 {
		cq := c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 5, CompVector: 1}))
		if n := c.objects[cq].value.(*device.CQ).Entries(); n != 5 {
			t.Errorf("5 entries became %d, want 5", n)
		}
		qp := c.make(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{PD: pd, SendCQ: cq, RecvCQ: cq, Type: uint32(ib.RC)}))
		if on := c.objects[qp].value.(*device.QP).Shard(); on != 1 {
			t.Errorf("a QP of completion vector 1 is on shard %d, want 1", on)
		}
	}
	for _, vector := range []uint32{shards, math.MaxUint32} {
		_, err := createCQ(c.session, &abi.CreateCQ{Entries: 5, CompVector: vector})
		if !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("completion vector %d: %v, want %v", vector, err, ib.ErrInvalid)
		}
	}
}

// TestQueryPort checks that the reply describes the port as a process that has the device sees it.
func TestQueryPort(t *testing.T) {
	s, dial := byHand(t, func(*Server) {})
	dev := s.units[0].dev
	dev.SetPhys(ib.PhysPolling, 25000)
	c := dial()
	begin(t, c)
	r := ask[abi.PortReply](t, c, abi.OpQueryPort, abi.Port{Port: 1})
	if r.PhysState != uint32(ib.PhysPolling) || r.Speed != 25000 || r.CapFlags != 1<<16|1<<26 || r.MaxMTU != 4096 {
		t.Errorf("the port is %+v, want %v, 25 Gbit/s, capabilities %#x, MTU 4096", r, ib.PhysPolling, 1<<16|1<<26)
	}
}

// TestCounters checks that a client reads what the device has counted.
func TestCounters(t *testing.T) {
	s, device := newStepped(t)
	theirs, session := connect(t, s)
	s.running.Go(func() { s.attend(session) })
	dev, err := client.New(t.Context(), theirs, "")
	must(t, err)
	defer s.running.Wait()
	defer dev.Close()
	c := newBareSession(t, s)
	read := func() map[string]uint64 {
		const size = 80
		body := c.ask(abi.OpCounters, abi.Put(nil, &abi.Port{Port: 1}))
		list := map[string]uint64{}
		for ; len(body) > 0; body = body[size:] {
			n, err := abi.Get[abi.Counter](body[:size])
			must(t, err)
			list[[]string{"counters/", "hw_counters/"}[n.HW]+n.Name.String()] = n.Value
		}
		if len(list) > abi.MaxCounters {
			t.Errorf("%d counters, want at most %d", len(list), abi.MaxCounters)
		}
		return list
	}
	n := newNeighbour(t, dev)
	before := read()
	const messages = 3
	for range messages {
		n.exchange(t, device)
	}
	after := read()
	const words = (12 + 8 + 64 + 4) / 4 // BTH, DETH, payload and ICRC of a datagram
	for name, want := range map[string]uint64{"counters/port_xmit_packets": messages,
		"counters/port_rcv_packets": messages, "counters/port_xmit_data": words * messages,
		"counters/port_rcv_data": words * messages, "counters/link_downed": 0, "counters/port_rcv_errors": 0,
		"hw_counters/rdma_sends": messages, "hw_counters/rdma_recvs": messages, "hw_counters/sent_pkts": messages,
		"hw_counters/duplicate_request": 0} {
		if _, ok := after[name]; !ok || after[name]-before[name] != want {
			t.Errorf("%s: %d, %d before, want %d more", name, after[name], before[name], want)
		}
	}
	if _, err := c.answer(abi.OpCounters, abi.Put(nil, &abi.Port{Port: 2}), nil); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("port 2: %v, want %v", err, ib.ErrInvalid)
	}
}
