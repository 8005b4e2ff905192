// Package perf measures goroce beside what else the same wire can carry.
//
//	go test -run '^$' -bench . -benchtime 1x ./tests/perf
//
// needs root and iperf3. It makes two network namespaces joined by veth, takes
// all rows in turn, several rounds, and prints the median and the spread of each.
// There is no bar here: machines differ, rows of one run compare.
package perf

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/linktest"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/require"
)

const (
	rounds   = 5
	duration = time.Second // of a row in a round; iperf3 takes whole seconds
	window   = 128         // requests in flight
)

// measure is one row: a figure, and what it counts.
type measure struct {
	name string
	unit string
	run  func(b *testing.B, w *wire) float64
}

var measures = []measure{
	{"TCP, one stream, cubic (iperf3)", "Gb/s", func(b *testing.B, w *wire) float64 { return w.tcp(b, "cubic") }},
	{"TCP, one stream, bbr (iperf3)", "Gb/s", func(b *testing.B, w *wire) float64 { return w.tcp(b, "bbr") }},
	{"RC WRITE 64 KiB", "Gb/s", func(b *testing.B, w *wire) float64 { return w.write(b, 1<<16) * 8 * (1 << 16) / 1e9 }},
	{"RC WRITE 8 B", "M msg/s", func(b *testing.B, w *wire) float64 { return w.write(b, 8) / 1e6 }},
	{"rdma_cm connections, in a row", "1/s", func(b *testing.B, w *wire) float64 { return w.connect(b, 1) }},
	{"rdma_cm connections, 16 at once", "1/s", func(b *testing.B, w *wire) float64 { return w.connect(b, 16) }},
}

func BenchmarkWire(b *testing.B) {
	require.Root(b)
	require.Command(b, "iperf3")
	for _, mtu := range []int{1500, 9000} {
		w := newWire(b, mtu)
		figures := make([][]float64, len(measures))
		for range rounds {
			for i := range measures {
				figures[i] = append(figures[i], measures[i].run(b, w))
			}
		}
		w.close()
		report(mtu, figures)
	}
	b.ReportMetric(0, "ns/op")
}

func report(mtu int, figures [][]float64) {
	fmt.Printf("\ntwo namespaces, veth, MTU %d; median of %d rounds (least to most)\n", mtu, rounds)
	for i, m := range measures {
		f := figures[i]
		slices.Sort(f)
		fmt.Printf("  %-32s %8.2f %-8s (%.2f to %.2f)\n", m.name, f[len(f)/2], m.unit, f[0], f[len(f)-1])
	}
}

// wire is two namespaces with a device and a connected QP in each.
type wire struct {
	a, b *linktest.Namespace
	near *end // writes
	far  *end
}

type end struct {
	dev *roce.Device
	cq  ib.CQ
	qp  ib.QP
	mr  ib.MR
}

func newWire(b *testing.B, mtu int) *wire {
	b.Helper()
	w := &wire{}
	w.a, w.b = linktest.NewVeth(b, mtu)
	w.near, w.far = newEnd(b, w.a), newEnd(b, w.b)
	w.near.connect(b, w.far)
	w.far.connect(b, w.near)
	return w
}

func (w *wire) close() {
	w.near.dev.Close()
	w.far.dev.Close()
}

// must ends the benchmark on an error.
func must(b *testing.B, err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

func newEnd(b *testing.B, n *linktest.Namespace) *end {
	b.Helper()
	e := &end{}
	err := n.Do(func() error {
		l, err := udp.Open([]netip.Addr{n.Addr4}, udp.Options{})
		if err != nil {
			return err
		}
		e.dev, err = roce.Open(wrap.Seal(wrap.Turn(l)), roce.Options{})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	pd, err := e.dev.AllocPD()
	must(b, err)
	e.cq, err = e.dev.CreateCQ(ib.CQInit{Entries: 2 * window})
	must(b, err)
	e.mr, err = pd.RegMR(ib.MRInit{Buf: make([]byte, 1<<16), Access: ib.LocalWrite | ib.RemoteWrite})
	must(b, err)
	e.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: ib.QPCap{MaxSendWR: window, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(b, err)
	return e
}

func (e *end) connect(b *testing.B, peer *end) {
	b.Helper()
	port, err := e.dev.QueryPort(1)
	must(b, err)
	attr := ib.QPAttr{State: ib.Init, Port: 1, Access: ib.QPAccessMask}
	must(b, e.qp.Modify(attr, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess))
	attr = ib.QPAttr{State: ib.RTR, AH: ib.AHAttr{DGID: peer.dev.Link().Local[0]}, PathMTU: port.ActiveMTU, DestQPN: peer.qp.Num(),
		MaxDestRdAtomic: 16, MinRNRTimer: 12, MaxRdAtomic: 16, Timeout: 14, RetryCnt: 7, RNRRetry: 7}
	must(b, e.qp.Modify(attr, ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer))
	attr.State = ib.RTS
	must(b, e.qp.Modify(attr, ib.AttrState|ib.AttrSQPSN|ib.AttrMaxRdAtomic|ib.AttrTimeout|ib.AttrRetryCnt|ib.AttrRNRRetry))
}

// write keeps a window of WRITEs in flight for a while and returns messages per
// second.
func (w *wire) write(b *testing.B, size int) float64 {
	b.Helper()
	wrs := make([]ib.SendWR, window)
	for i := range wrs {
		wrs[i] = ib.SendWR{Opcode: ib.WRWrite, Flags: ib.SendSignaled, RemoteAddr: w.far.mr.Addr(), RKey: w.far.mr.RKey(),
			SGL: []ib.SGE{{Addr: w.near.mr.Addr(), Length: uint32(size), LKey: w.near.mr.LKey()}}}
	}
	wcs := make([]ib.WC, window)
	done, free := 0, window
	start := time.Now()
	for stop := start.Add(duration); time.Now().Before(stop); {
		if free > 0 {
			_, err := w.near.qp.PostSend(wrs[:free])
			must(b, err)
			free = 0
		}
		n, err := w.near.cq.Poll(wcs)
		must(b, err)
		for i := range wcs[:n] {
			must(b, wcs[i].Err())
		}
		done, free = done+n, free+n
		if n == 0 {
			runtime.Gosched() // the devices' loops need the processors too
		}
	}
	elapsed := time.Since(start)
	for left := window - free; left > 0; {
		n, err := w.near.cq.Poll(wcs)
		must(b, err)
		for i := range wcs[:n] {
			must(b, wcs[i].Err())
		}
		left -= n
	}
	return float64(done) / elapsed.Seconds()
}

// tcp measures one iperf3 stream.
func (w *wire) tcp(b *testing.B, congestion string) float64 {
	b.Helper()
	server := exec.Command("iperf3", "-s", "-1", "--forceflush")
	pipe, err := server.StdoutPipe()
	must(b, err)
	must(b, w.b.Do(server.Start))
	defer server.Wait()
	if _, err := pipe.Read(make([]byte, 1)); err != nil { // it prints when it listens
		b.Fatalf("iperf3 -s: %v", err)
	}
	go io.Copy(io.Discard, pipe)
	text := w.a.Command(b, "iperf3", "-J", "-c", w.b.Addr4.String(), "-C", congestion, "-t", fmt.Sprint(int(duration.Seconds())))
	var result struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	must(b, json.Unmarshal([]byte(text), &result))
	return result.End.Received.Rate / 1e9
}
