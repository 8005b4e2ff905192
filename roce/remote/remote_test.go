package remote_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/remote"
	"github.com/goroce/goroce/roce/simtest"
)

// bad is simulations of networks on which everything happens to packets.
var bad = simtest.Config{Hosts: 3, Seeds: 20, Fault: wrap.FaultConfig{
	Drop: 0.03, Duplicate: 0.03, Reorder: 0.03, Delay: 0.03, Corrupt: 0.01, Truncate: 0.01, MaxDelay: time.Millisecond,
	Latency: 50 * time.Microsecond, Jitter: 10 * time.Microsecond, Rate: 10e9,
}}

// offer lets the last host offer size bytes of memory, to one connection from each of the others.
func offer(t *testing.T, n *simtest.Net, size int) (buf []byte, clients []*remote.Memory) {
	t.Helper()
	ctx, server := t.Context(), n.Hosts[len(n.Hosts)-1]
	pd, err := server.Device().AllocPD()
	must(t, err)
	buf = ib.Alloc(server.Device(), size)
	const access = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: access})
	must(t, err)
	private, err := ib.RemoteBufferOf(mr).MarshalBinary()
	must(t, err)
	l, err := server.CM().Listen(ctx, server.At("7471"), rdmacm.ListenConfig{
		Config: rdmacm.Config{PD: pd, Access: access, PrivateData: private}})
	must(t, err)
	go func() {
		for {
			if _, err := l.Accept(ctx); err != nil {
				return
			}
		}
	}()
	for _, h := range n.Hosts[:len(n.Hosts)-1] {
		conn, err := h.CM().Dial(ctx, server.At("7471"), rdmacm.Config{})
		must(t, err)
		var there ib.RemoteBuffer
		must(t, there.UnmarshalBinary(conn.PrivateData()))
		m, err := conn.Memory(there)
		must(t, err)
		clients = append(clients, m)
	}
	return buf, clients
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pattern is n bytes that no other seed has.
func pattern(seed uint64, n int) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, seed*0x9E3779B97F4A7C15), n/8)
}

// TestLoss: whatever the network does to packets, two hosts read what they wrote, and each of their additions counts
// once.
func TestLoss(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		const area, adders, each = 100_000, 3, 10
		buf, clients := offer(t, n, 16+2*area)
		var done sync.WaitGroup
		for i, m := range clients {
			at := int64(16 + i*area)
			done.Go(func() {
				for round := range uint64(2) {
					want, got := pattern(n.Seed()<<8|round<<4|uint64(i), area), make([]byte, area)
					if k, err := m.WriteAt(t.Context(), want, at); k != area || err != nil {
						t.Errorf("WriteAt: got %d, %v, want %d", k, err, area)
					}
					if k, err := m.ReadAt(t.Context(), got, at); k != area || err != nil || !bytes.Equal(got, want) {
						t.Errorf("ReadAt: got %d, %v, want the %d bytes that were written", k, err, area)
					}
				}
			})
			for range adders {
				done.Go(func() {
					for range each {
						if _, err := m.FetchAdd(t.Context(), 0, 1); err != nil {
							t.Errorf("FetchAdd: got %v, want success", err)
						}
						for before := ^uint64(0); ; {
							was, err := m.CompareSwap(t.Context(), 8, before, before+1)
							if err != nil {
								t.Errorf("CompareSwap: got %v, want success", err)
							}
							if was == before || err != nil {
								break
							}
							before = was
						}
					}
				})
			}
		}
		done.Wait()
		for off := range 2 {
			if got, want := binary.NativeEndian.Uint64(buf[8*off:]), uint64(2*adders*each); got != want {
				t.Errorf("counter %d: got %d, want %d", off, got, want)
			}
		}
	})
}

// TestContext: calls end with their context, in the middle and while they wait for their turn. Their requests complete
// when the network is back, and the memory is as good as before.
func TestContext(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		const size = 320 << 10 // more than a quarter of all that can be under way
		_, clients := offer(t, n, size)
		m, server := clients[0], n.Hosts[2]
		server.Unplug()
		began, reason := n.Now(), errors.New("reason")
		after, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, reason)
		defer cancel()
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				p := make([]byte, size)
				if k, err := m.ReadAt(after, p, 0); k != 0 || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("ReadAt: got %d, %v, want 0 and %v", k, err, context.DeadlineExceeded)
				}
				clear(p) // a race if something still wrote there
			})
		}
		calls.Wait()
		if took := time.Duration(n.Now() - began); took != 10*time.Millisecond {
			t.Errorf("the calls took %v, want 10ms", took)
		}
		server.Plug()
		want, got := pattern(n.Seed(), size), make([]byte, size)
		if k, err := m.WriteAt(t.Context(), want, 0); k != size || err != nil {
			t.Errorf("WriteAt: got %d, %v, want %d", k, err, size)
		}
		if k, err := m.ReadAt(t.Context(), got, 0); k != size || err != nil || !bytes.Equal(got, want) {
			t.Errorf("ReadAt: got %d, %v, want the %d bytes that were written", k, err, size)
		}
	})
}

// TestVanish: when the peer vanishes in the middle of a WriteAt, that says how much is certain to have arrived. Calls
// that follow fail, too.
func TestVanish(t *testing.T) {
	for name, vanish := range map[string]func(*simtest.Host){
		"unplugged": (*simtest.Host).Unplug, "stopped": (*simtest.Host).Stop, "rebooted": (*simtest.Host).Reboot,
	} {
		t.Run(name, func(t *testing.T) {
			some := 0
			slow := bad
			slow.Fault.Rate = 2e9 // bits a second: size bytes take 8.4 ms at least, and the host vanishes before
			simtest.Run(t, slow, func(t *testing.T, n *simtest.Net) {
				const size = 2 << 20
				buf, clients := offer(t, n, size)
				m, data := clients[0], pattern(n.Seed(), size)
				time.AfterFunc(time.Duration(n.Seed()%20)*400*time.Microsecond, func() { vanish(n.Hosts[2]) })
				k, err := m.WriteAt(t.Context(), data, 0)
				if !errors.Is(err, &ib.WCError{Status: ib.WCRetryExcErr}) && !errors.Is(err, &ib.WCError{
					Status: ib.WCWRFlushErr}) {
					t.Errorf("WriteAt: got %d, %v, want an error for lack of an answer", k, err)
				}
				if !bytes.Equal(buf[:k], data[:k]) {
					t.Errorf("WriteAt: got %d bytes as written, want those to have arrived", k)
				}
				if _, err := m.FetchAdd(t.Context(), 0, 1); !errors.Is(err, &ib.WCError{Status: ib.WCWRFlushErr}) {
					t.Errorf("FetchAdd: got %v, want %v", err, ib.WCWRFlushErr)
				}
				some += k
			})
			if some == 0 {
				t.Errorf("with no seed a part arrived: the hosts vanish too early to show anything")
			}
		})
	}
}

// TestClose: Close ends calls that wait, at once.
func TestClose(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		const size = 320 << 10
		_, clients := offer(t, n, size)
		m := clients[0]
		n.Hosts[2].Unplug()
		var calls sync.WaitGroup
		closed := func(op string, err error) {
			if !errors.Is(err, ib.ErrClosed) {
				t.Errorf("%s: got %v, want %v", op, err, ib.ErrClosed)
			}
		}
		calls.Go(func() { _, err := m.FetchAdd(t.Context(), 0, 1); closed("FetchAdd", err) })
		for range 2 {
			calls.Go(func() { _, err := m.ReadAt(t.Context(), make([]byte, size), 0); closed("ReadAt", err) })
			calls.Go(func() { _, err := m.WriteAt(t.Context(), make([]byte, size), 0); closed("WriteAt", err) })
		}
		time.Sleep(time.Duration(n.Seed()%20) * time.Millisecond)
		began := n.Now()
		for range 2 {
			if err := m.Close(); err != nil {
				t.Errorf("Close: got %v, want success", err)
			}
		}
		calls.Wait()
		if took := n.Now() - began; took != 0 {
			t.Errorf("Close took %v, want no time", took)
		}
		_, err := m.ReadAt(t.Context(), make([]byte, 1), 0)
		closed("ReadAt afterwards", err)
	})
}
