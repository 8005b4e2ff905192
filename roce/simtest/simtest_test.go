package simtest_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/toolstest"
)

// bad is a network on which everything happens to packets.
var bad = wrap.FaultConfig{Drop: 0.03, Duplicate: 0.02, Reorder: 0.02, Delay: 0.05, Corrupt: 0.01, Truncate: 0.01,
	MaxDelay: time.Millisecond, Latency: 50 * time.Microsecond, Jitter: 10 * time.Microsecond, Rate: 1e9}

// TestRepeats: with one seed all packets are the same, at the same times; with another one they are not.
func TestRepeats(t *testing.T) {
	require.NoRace(t, "the race detector makes the Go scheduler choose at random")
	data := bytes.Repeat([]byte("RDMA anywhere. "), 10_000)
	run := func(seed uint64) string {
		var net *simtest.Net
		simtest.Run(t, simtest.Config{Seed: seed, Fault: bad}, func(t *testing.T, n *simtest.Net) {
			net = n
			toolstest.Echo(t, n.Hosts[0].CM(), n.Hosts[1].CM(), n.Hosts[1].At("7471"), data)
		})
		return net.Digest()
	}
	seen := map[string]uint64{}
	for seed := uint64(1); seed <= 20; seed++ {
		first := run(seed)
		again := run(seed)
		if again != first { // the operating system may have held up one of them
			again = run(seed)
		}
		if again != first {
			t.Errorf("seed %d: the packets of two runs differ: %v, want %v", seed, again, first)
		}
		if other := seen[first]; other != 0 {
			t.Errorf("seeds %d and %d: the packets are the same, want others", other, seed)
		}
		seen[first] = seed
	}
}

// connect returns both ends of a connection from host 0 to host 1.
func connect(t *testing.T, n *simtest.Net, o rdmacm.Config) (client, server *rdmacm.Conn) {
	t.Helper()
	ctx, to := t.Context(), n.Hosts[1]
	l, err := to.CM().Listen(ctx, to.At("0"), rdmacm.ListenConfig{Config: o})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept(ctx)
		accepted <- err
	}()
	if client, err = n.Hosts[0].CM().Dial(ctx, l.Addr().String(), o); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return client, server
}

// ping sends a message from a to b, which takes it, and returns the status of the request.
func ping(t *testing.T, a, b *rdmacm.Conn) ib.WCStatus {
	t.Helper()
	if _, err := b.QP().PostRecv([]ib.RecvWR{{}}); err != nil {
		t.Fatal(err)
	}
	status := send(t, a)
	if status == ib.WCSuccess {
		if _, err := ib.WaitOne(t.Context(), b.RecvCQ()); err != nil {
			t.Fatal(err)
		}
	}
	return status
}

// send sends a message from a, and returns the status of the request.
func send(t *testing.T, a *rdmacm.Conn) ib.WCStatus {
	t.Helper()
	if _, err := a.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendSignaled}}); err != nil {
		t.Fatal(err)
	}
	wc, err := ib.WaitOne(t.Context(), a.SendCQ())
	if err != nil && wc.Err() == nil {
		t.Fatal(err)
	}
	return wc.Status
}

// TestTime: a round trip takes twice the latency, and hardly any time of the machine.
func TestTime(t *testing.T) {
	began := time.Now()
	simtest.Run(t, simtest.Config{Fault: wrap.FaultConfig{Latency: 100 * time.Millisecond}}, func(t *testing.T,
		n *simtest.Net) {
		a, b := connect(t, n, rdmacm.Config{AckTimeout: 20})
		start := n.Now()
		for range 300 {
			if got := ping(t, a, b); got != ib.WCSuccess {
				t.Fatalf("got %v, want success", got)
			}
		}
		if took := time.Duration(n.Now() - start); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("300 round trips took %v, want 200 ms each", took)
		}
	})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the simulation of a minute took %v, want at most %v", took, time.Minute)
	}
}

// TestUnplug: requests to a host that is cut off end when the retries are used up, and not before.
func TestUnplug(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		a, b := connect(t, n, rdmacm.Config{AckTimeout: 14, RetryCount: 3})
		n.Hosts[1].Unplug()
		start := n.Now()
		if got := ping(t, a, b); got != ib.WCRetryExcErr {
			t.Errorf("got %v, want %v", got, ib.WCRetryExcErr)
		}
		const timeout = 4096 * time.Nanosecond << 14
		if took := time.Duration(n.Now() - start); took < 4*timeout || took > 16*timeout {
			t.Errorf("the request failed after %v, want 4 timeouts of at least %v", took, timeout)
		}
		n.Hosts[1].Plug()
		c, d := connect(t, n, rdmacm.Config{})
		if got := ping(t, c, d); got != ib.WCSuccess {
			t.Errorf("plugged in again: got %v, want success", got)
		}
	})
}

// TestStop: a host that stands still for less than all retries take costs time, and nothing else.
func TestStop(t *testing.T) {
	const pause = 200 * time.Millisecond
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		a, b := connect(t, n, rdmacm.Config{})
		n.Hosts[1].Stop()
		time.AfterFunc(pause, n.Hosts[1].Continue)
		start := n.Now()
		if got := ping(t, a, b); got != ib.WCSuccess {
			t.Errorf("got %v, want success", got)
		}
		if took := time.Duration(n.Now() - start); took < pause || took > 2*pause {
			t.Errorf("the request took %v, want little more than the %v that the host stood still", took, pause)
		}
	})
}

// TestReboot: after a reboot a host knows nothing of its connections, and accepts new ones.
func TestReboot(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		a, b := connect(t, n, rdmacm.Config{AckTimeout: 14})
		before := n.Hosts[1].Device()
		n.Hosts[1].Reboot()
		if _, err := before.AllocPD(); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("the old device: got %v, want %v", err, ib.ErrClosed)
		}
		if err := b.Err(); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("the old connection of the host: got %v, want %v", err, ib.ErrClosed)
		}
		if got := send(t, a); got != ib.WCRetryExcErr {
			t.Errorf("a request to the old connection: got %v, want %v", got, ib.WCRetryExcErr)
		}
		c, d := connect(t, n, rdmacm.Config{})
		if got := ping(t, c, d); got != ib.WCSuccess {
			t.Errorf("after the reboot: got %v, want success", got)
		}
	})
}

// gather sends size bytes from each of these hosts to host 0, over a stream each, and returns when all have arrived.
func gather(t *testing.T, n *simtest.Net, from []*simtest.Host, size int64) {
	t.Helper()
	to := n.Hosts[0]
	l, err := rsocket.Listen(t.Context(), to.CM(), to.At("7471"), rsocket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, h := range from {
		go func() {
			conn, err := rsocket.Dial(t.Context(), h.CM(), to.At("7471"), rsocket.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = conn.Write(make([]byte, size))
		}()
	}
	received := make(chan int64)
	for range from {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			got, _ := io.Copy(io.Discard, conn)
			received <- got
		}()
	}
	for range from {
		if got := <-received; got != size {
			t.Errorf("received %d bytes, want %d", got, size)
		}
	}
}

// TestManyQPs: QPs that share the congestion window of their destination all get through, each in its turn.
func TestManyQPs(t *testing.T) {
	c := simtest.Config{Seeds: 3, Fault: wrap.FaultConfig{Drop: 0.01}}
	simtest.Run(t, c, func(t *testing.T, n *simtest.Net) {
		gather(t, n, slices.Repeat(n.Hosts[1:2], 16), 200_000)
	})
}

// TestInbound: senders share the bottleneck in front of a host.
func TestInbound(t *testing.T) {
	const rate, size = 100e6, 1 << 20
	c := simtest.Config{Hosts: 3, Inbound: wrap.FaultConfig{Rate: rate, Buffer: 5 * time.Millisecond}}
	simtest.Run(t, c, func(t *testing.T, n *simtest.Net) {
		start := n.Now()
		gather(t, n, n.Hosts[1:], size)
		least := time.Duration(2 * size * 8 * float64(time.Second) / rate)
		if took := time.Duration(n.Now() - start); took < least || took > 2*least {
			t.Errorf("two senders took %v, want %v to twice that", took, least)
		}
	})
}

// TestForgets: a simulation that has ended keeps nothing of its test, though somebody still has a device.
func TestForgets(t *testing.T) {
	freed := make(chan struct{})
	var net *simtest.Net
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		net = n
		large := new([1 << 20]byte)
		runtime.AddCleanup(large, func(c chan struct{}) { close(c) }, freed)
		t.Cleanup(func() { large[0] = 1 })
	})
	runtime.GC()
	select {
	case <-freed:
	case <-time.After(30 * time.Second):
		t.Error("memory of a cleanup function is still kept 30 s after the test, want it free")
	}
	runtime.KeepAlive(net)
}
