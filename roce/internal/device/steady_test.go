package device_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// TestNoAllocation runs each operation in steady state: from posting to polling, both hosts
// and the link between them allocate nothing, even if each packet crosses from one shard to
// another.
func TestNoAllocation(t *testing.T) {
	t.Run("one shard", func(t *testing.T) { testNoAllocation(t, plain, false) })
	t.Run("memory that is not direct", func(t *testing.T) { testNoAllocation(t, plain, true) })
	t.Run("crossing shards", func(t *testing.T) {
		testNoAllocation(t, stack{above: same, below: same, shards: 2, home: 1,
			steer: func(*link.Run, int) int { return 0 }}, false)
	})
}

func testNoAllocation(t *testing.T, s stack, slow bool) {
	w := newWorld(t, 1, 1<<17, s)
	if slow {
		w.a.slow(t)
		w.b.slow(t)
	}
	w.connect(ib.MTU1024, nil)
	remote := func(op ib.WROpcode, n int) []ib.SendWR {
		return []ib.SendWR{{Opcode: op, Flags: ib.SendSignaled, SGL: w.a.sge(0, n), RemoteAddr: w.b.mr.Addr(),
			RKey: w.b.mr.RKey()}}
	}
	recv := []ib.RecvWR{{SGL: w.b.sge(0, 1<<16)}}
	var wcs [4]ib.WC
	for _, c := range []struct {
		name string
		wr   []ib.SendWR
	}{
		{"SEND 64 KiB", remote(ib.WRSend, 1<<16)},
		{"WRITE 64 KiB", remote(ib.WRWrite, 1<<16)},
		{"WRITE 8 B", remote(ib.WRWrite, 8)},
		{"READ 64 KiB", remote(ib.WRRead, 1<<16)},
		{"FETCH & ADD", remote(ib.WRFetchAdd, 8)},
	} {
		one := func() {
			if c.wr[0].Opcode == ib.WRSend {
				if _, err := w.b.qp.PostRecv(recv); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.a.qp.PostSend(c.wr); err != nil {
				t.Fatal(err)
			}
			w.settle()
			n, _ := w.a.cq.Poll(wcs[:])
			if n != 1 || wcs[0].Status != ib.WCSuccess {
				t.Fatalf("%s: %d completions, %v; want 1, %v", c.name, n, wcs[0].Status, ib.WCSuccess)
			}
			w.b.cq.Poll(wcs[:])
			w.now += 1000
		}
		one()
		if n := testing.AllocsPerRun(50, one); n != 0 {
			t.Errorf("%s: got %v allocations, want none", c.name, n)
		}
	}
}
