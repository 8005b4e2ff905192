package device_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/roce/internal/device"
)

// dyingMemory is slow memory that fails all writes after a given number of them.
type dyingMemory struct {
	*mrtest.Memory
	writes int
}

func (m *dyingMemory) WriteAt(p []byte, off uint64) error {
	if m.writes--; m.writes < 0 {
		return errors.New("the memory is gone")
	}
	return m.Memory.WriteAt(p, off)
}

// TestFailingMemory: A sends and writes to slow memory of B, which fails at some time, over
// a bad network. When a request completes with success at A, its data is in B's memory. The
// failed request completes before the flushed ones, and the receives of B complete in order.
func TestFailingMemory(t *testing.T) {
	seeds := max(*modelSeeds/5, 20)
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { failMemory(t, seed) }) {
			return
		}
	}
}

func failMemory(t *testing.T, seed uint64) {
	const most, space = 30, 4096
	rng := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(t, seed, most*space, faultyStack(seed, rng))
	memory := &dyingMemory{&mrtest.Memory{B: w.b.buf}, rng.IntN(100)}
	region, err := w.b.pd.(*device.PD).RegMemory(memory, 0x100000, ib.LocalWrite|ib.RemoteWrite)
	must(t, err)
	w.b.mr = region
	w.connect([]ib.MTU{256, 1024}[rng.IntN(2)], func(a *ib.QPAttr) { a.Timeout, a.MinRNRTimer = 10, 1 })
	for i := range w.a.buf {
		w.a.buf[i] = byte(rng.Uint32()) | 1 // B's memory is zero before
	}
	sizes := make([]int, most)
	for i := range most {
		sizes[i] = 1 + rng.IntN(3000)
		at := i * space
		wr := ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: w.a.sge(at, sizes[i]), RemoteAddr: region.Addr() +
			uint64(at), RKey: region.RKey()}
		switch n := rng.IntN(16); {
		case n == 0:
			wr.RKey++ // B refuses it
		case n < 8:
			wr.Opcode = ib.WRSend
			w.recv(w.b, ib.RecvWR{ID: uint64(i), SGL: w.b.sge(at, space)})
		}
		w.send(w.a, wr)
	}
	failed := false
	for i := range most {
		wc := w.poll(w.a)
		at := i * space
		switch {
		case wc.ID != uint64(i):
			t.Fatalf("request %d completes, want %d, whose turn it is", wc.ID, i)
		case failed && wc.Status != ib.WCWRFlushErr, !failed && wc.Status == ib.WCWRFlushErr:
			t.Fatalf("request %d: %v; one before it failed: %v; want %v only then", i, wc.Status, failed,
				ib.WCWRFlushErr)
		case wc.Status == ib.WCSuccess && !bytes.Equal(w.a.buf[at:][:sizes[i]], w.b.buf[at:][:sizes[i]]):
			t.Fatalf("request %d succeeds, and its data is not there", i)
		}
		failed = failed || wc.Status != ib.WCSuccess
	}
	checkReceives(t, w)
}

// checkReceives checks the completions of B's receives.
func checkReceives(t *testing.T, w *world) {
	t.Helper()
	var wcs [64]ib.WC
	w.settle()
	n, err := w.b.cq.Poll(wcs[:])
	must(t, err)
	for i := 1; i < n; i++ {
		if wcs[i].ID <= wcs[i-1].ID || wcs[i-1].Status != ib.WCSuccess && wcs[i].Status != ib.WCWRFlushErr {
			t.Fatalf("receive %d: %v behind receive %d: %v; want them in order, %v behind a failure", wcs[i].ID,
				wcs[i].Status, wcs[i-1].ID, wcs[i-1].Status, ib.WCWRFlushErr)
		}
	}
}
