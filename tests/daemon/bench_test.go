package daemon

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// BenchmarkBesideHostile measures a stream of 64 KiB WRITEs through two daemons, in turn
// alone and beside a client that attacks the first of them. "ratio" is that of the medians.
// The attacker runs at the lowest priority, so that the ratio shows the processor time that
// it makes the daemon use, and not its own.
func BenchmarkBesideHostile(b *testing.B) {
	for _, attack := range []string{"requests", "rings", "torn", "storm", "connections", "pages"} {
		b.Run(attack, func(b *testing.B) { besideHostile(b, attack) })
	}
}

const (
	sliceMessages = 1000
	slicePairs    = 9
)

func besideHostile(b *testing.B, attack string) {
	near, far := startDaemon(b, small...), startDaemon(b)
	from, err := newTenant(near.socket, shape{size: piece, qps: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer from.close()
	to, err := newTenant(far.socket, shape{size: piece, qps: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer to.close()
	if err := from.connect(to.card(), steadily); err != nil {
		b.Fatal(err)
	}
	if err := to.connect(from.card(), steadily); err != nil {
		b.Fatal(err)
	}
	c := startChild(b, "hostile", job{Socket: near.socket, Seed: newSeed(b), Attack: attack})
	c.standBack()
	var begins string
	c.hear(&begins)
	signal := func(s syscall.Signal) {
		if err := c.cmd.Process.Signal(s); err != nil {
			b.Fatal(err)
		}
	}
	var alone, beside []float64
	b.SetBytes(2 * slicePairs * sliceMessages * piece)
	for b.Loop() {
		for range slicePairs {
			signal(syscall.SIGSTOP)
			alone = append(alone, stream(b, from, to))
			signal(syscall.SIGCONT)
			beside = append(beside, stream(b, from, to))
		}
	}
	b.ReportMetric(median(alone)/1e6, "alone-MB/s")
	b.ReportMetric(median(beside)/1e6, "beside-MB/s")
	b.ReportMetric(median(beside)/median(alone), "ratio")
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// stream WRITEs messages, waiting for events, and returns bytes per second.
func stream(b *testing.B, from, to *tenant) float64 {
	b.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	wr := []ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: from.sge(0, piece), RemoteAddr: to.mr.Addr(),
		RKey: to.mr.RKey()}}
	var wcs [16]ib.WC
	for posted, done := 0, 0; done < sliceMessages; {
		for ; posted < sliceMessages && posted-done < len(wcs); posted++ {
			if _, err := from.qps[0].PostSend(wr); err != nil {
				b.Fatal(err)
			}
		}
		n, err := from.next(ctx, wcs[:])
		if err != nil {
			b.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			if wc.Err() != nil {
				b.Fatal(fmt.Errorf("a WRITE beside an attack: %w", wc.Err()))
			}
		}
		done += n
	}
	return sliceMessages * piece / time.Since(start).Seconds()
}
