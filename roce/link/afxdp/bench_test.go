package afxdp

import (
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

const (
	benchRounds = 9
	benchTime   = time.Second / 2 // of a row in a round
	benchPacket = 1056            // bytes from BTH to ICRC, about what path MTU 1024 takes
	benchFrame  = wire.EtherLen + wire.IPv4Len + wire.UDPLen + benchPacket
	benchSize   = 1 << 16
	runFrames   = 61  // as many as Caps.RunBytes allows
	benchAhead  = 512 // frames that the bare sender may be ahead; half of what a ring takes
)

// BenchmarkVeth compares RC WRITEs of 64 KiB between devices, path MTU 1024, with the bare rings: two threads that only
// put descriptors into the rings and take them out. The rows alternate between the same namespaces; figures are
// medians, the ratio is that of pairs.
//
//	go test -run '^$' -bench Veth -benchtime 1x ./roce/link/afxdp
func BenchmarkVeth(b *testing.B) {
	na, nb := linktest.NewVeth(b, 1500)
	for name, o := range map[string]Options{"native": {}, "generic": {Generic: true}} {
		b.Run(name, func(b *testing.B) {
			var bare, device, ratio []float64
			for range benchRounds {
				bare = append(bare, benchRings(b, openBench(b, na, o), openBench(b, nb, o)))
				device = append(device, benchDevice(b, openBench(b, na, o), openBench(b, nb, o)))
				ratio = append(ratio, device[len(device)-1]/bare[len(bare)-1])
			}
			b.ReportMetric(median(bare), "bare-frames/s")
			b.ReportMetric(median(device), "device-frames/s")
			b.ReportMetric(median(ratio), "device/bare")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func openBench(b *testing.B, n *linktest.Namespace, o Options) *conn {
	b.Helper()
	var c *conn
	err := n.Do(func() error {
		l, err := Open([]netip.Addr{n.Addr4}, o)
		if err == nil {
			c = l.(*conn)
		}
		return err
	})
	must(b, err)
	return c
}

// benchRings returns how many frames arrive in a second.
func benchRings(b *testing.B, from, to *conn) float64 {
	b.Helper()
	defer from.Close()
	defer to.Close()
	linktest.Meet(b, from, to)
	prepare(from, to)
	var got atomic.Int64
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q := from.queues[0]
		for sent := int64(0); !stop.Load(); {
			n := min(int(got.Load()+benchAhead-sent), runFrames)
			if n < runFrames {
				yield()
				continue
			}
			q.reclaim()
			for range n {
				addr, _ := q.take()
				q.tx.put(unix.XDPDesc{Addr: addr, Len: benchFrame})
			}
			q.kick(&from.stats)
			sent += int64(n)
		}
	}()
	q := to.queues[0]
	start := time.Now()
	for time.Since(start) < benchTime {
		n := drain(q)
		got.Add(int64(n))
		if n == 0 {
			yield()
		}
	}
	rate := float64(got.Load()) / time.Since(start).Seconds()
	stop.Store(true)
	<-ended
	if lost := from.stats.TxErrors + q.overflow(); lost > 0 {
		b.Logf("%d frames were lost", lost)
	}
	return rate
}

// drain receives all frames that have arrived.
func drain(q *queue) int {
	q.refill()
	n := q.rx.ready()
	for i := range n {
		q.lent = append(q.lent, q.rx.at(i).Addr)
	}
	q.rx.release(n)
	return n
}

// yield lets another thread run if there are more threads than processors.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// prepare fills all chunks to send from with a frame.
func prepare(from, to *conn) {
	var psn uint32
	r := linktest.NewRun(from, to, &psn, 1, benchPacket, 0)
	mac, _ := from.kernel.Neighbour(&r)
	from.kernel.Address(&from.headers.frame, &r, mac)
	from.headers.build(benchPacket)
	for _, addr := range from.queues[0].free {
		chunk := from.mem.bytes(addr, uint32(from.mem.chunk))
		copy(chunk[from.headers.put(chunk, 0):], r.Buf)
	}
}

// benchDevice returns how many packets of WRITEs are acknowledged in a second.
func benchDevice(b *testing.B, from, to *conn) float64 {
	b.Helper()
	near, far := newEnd(b, from, benchSize), newEnd(b, to, benchSize)
	defer near.dev.Close()
	defer far.dev.Close()
	near.connect(b, far, 0)
	far.connect(b, near, 0)
	wrs := make([]ib.SendWR, window)
	for i := range wrs {
		wrs[i] = ib.SendWR{Opcode: ib.WRWrite, RemoteAddr: far.mr.Addr(), RKey: far.mr.RKey(), SGL: near.sge(benchSize)}
	}
	wcs := make([]ib.WC, window)
	done, free := 0, window
	start := time.Now()
	for time.Since(start) < benchTime {
		if free > 0 {
			_, err := near.qp.PostSend(wrs[:free])
			must(b, err)
			free = 0
		}
		n, err := near.cq.Poll(wcs)
		must(b, err)
		for i := range wcs[:n] {
			must(b, wcs[i].Err())
		}
		done, free = done+n, free+n
		if n == 0 {
			runtime.Gosched()
		}
	}
	rate := float64(done*benchSize/1024) / time.Since(start).Seconds()
	if s := near.dev.Stats(); s.CompleterRetry > 0 {
		b.Logf("%d retries, %d of them by timeout", s.CompleterRetry, s.LocalAckTimeout)
	}
	return rate
}

// BenchmarkFrame has one thread do the work of both ends in turn, and reports its
// processor time for a frame, that of the kernel included: what else runs on the
// machine matters less than to BenchmarkVeth. The rows add up: the bare rings, the
// link with its headers and copies, the device with RC WRITEs of 64 KiB.
func BenchmarkFrame(b *testing.B) {
	na, nb := linktest.NewVeth(b, 1500)
	for _, row := range []struct {
		name string
		make func(b *testing.B, from, to *conn) (step func() (frames int))
	}{{"rings", stepRings}, {"link", stepLink}, {"device", stepDevice}} {
		b.Run(row.name, func(b *testing.B) {
			from, to := openBench(b, na, Options{}), openBench(b, nb, Options{})
			defer from.Close()
			defer to.Close()
			step := row.make(b, from, to)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ResetTimer()
			start, frames := threadTime(b), 0
			for frames < b.N {
				frames += step()
			}
			b.ReportMetric(float64(threadTime(b)-start)/float64(frames), "cpu-ns/frame")
		})
	}
}

// threadTime returns the processor time of this thread in nanoseconds.
func threadTime(b *testing.B) int64 {
	var t unix.Timespec
	must(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return t.Nano()
}

// stepRings moves frames with no more than descriptors.
func stepRings(b *testing.B, from, to *conn) func() int {
	linktest.Meet(b, from, to)
	prepare(from, to)
	return func() int {
		q := from.queues[0]
		q.reclaim()
		for range runFrames {
			addr, _ := q.take()
			q.tx.put(unix.XDPDesc{Addr: addr, Len: benchFrame})
		}
		q.kick(&from.stats)
		return drain(to.queues[0])
	}
}

// stepLink moves runs.
func stepLink(b *testing.B, from, to *conn) func() int {
	linktest.Meet(b, from, to)
	var psn uint32
	out := []link.Run{linktest.NewRun(from, to, &psn, runFrames, benchPacket, 0)}
	in := make([]link.Run, rxBatch)
	return func() (frames int) {
		if _, err := from.Send(0, out); err != nil {
			b.Fatal(err)
		}
		for {
			n, err := to.Recv(0, in)
			must(b, err)
			if frames += n; n == 0 {
				return frames
			}
		}
	}
}

// stepDevice keeps a window of WRITEs in flight.
func stepDevice(b *testing.B, from, to *conn) func() int {
	linktest.Meet(b, from, to)
	open := func(c *conn) *end { return newEndWith(b, c, benchSize, roce.Options{Manual: true}) }
	near, far := open(from), open(to)
	near.connect(b, far, 0)
	far.connect(b, near, 0)
	wr := []ib.SendWR{{Opcode: ib.WRWrite, RemoteAddr: far.mr.Addr(), RKey: far.mr.RKey(), SGL: near.sge(benchSize)}}
	free := 8
	start := time.Now()
	return func() int {
		for ; free > 0; free-- {
			_, err := near.qp.PostSend(wr)
			must(b, err)
		}
		now := ib.Instant(time.Since(start))
		near.dev.Step(now)
		far.dev.Step(now)
		var wcs [8]ib.WC
		n, err := near.cq.Poll(wcs[:])
		must(b, err)
		for i := range wcs[:n] {
			must(b, wcs[i].Err())
		}
		free += n
		return n * benchSize / 1024
	}
}
