package forward

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

const (
	messageSize = 64 << 10
	messages    = 16 // in flight

	// fullLen is the IP packet with 1,024 bytes of a message: headers of IP and UDP, BTH, payload, ICRC.
	fullLen = 20 + wire.UDPLen + wire.BTHLen + 1024 + wire.ICRCLen
)

// bottleneck is what a path carries, the same each way.
type bottleneck struct {
	rate  int64         // bits of IP packets in a second; 0 is no limit
	queue time.Duration // longest wait
}

// bytes returns how many bytes of packets the queue holds.
func (b bottleneck) bytes() int64 { return b.rate / 8 * int64(b.queue) / int64(time.Second) }

// path makes a cable carry packets through a bottleneck until end, which returns how many were lost.
type path func(t *testing.T, c *linktest.Cabled, b bottleneck) (end func() (lost uint64))

// byForwarder has a Forwarder carry the packets.
func byForwarder(t *testing.T, c *linktest.Cabled, b bottleneck) (end func() (lost uint64)) {
	t.Helper()
	c.Part(t)
	var f *Forwarder
	must(t, c.Cable.Do(func() (err error) {
		f, err = Open(c.Left, c.Right, wrap.FaultConfig{Rate: b.rate, Buffer: b.queue})
		return err
	}))
	return func() uint64 {
		there, back := f.Counts()
		lost := there.Dropped + back.Dropped + f.Lost()
		must(t, f.Close())
		c.Join(t)
		return lost
	}
}

// byKernel has a bridge carry them. Each of its ports has a token bucket filter. When its timer was late, it makes up
// for a quarter of what the queue holds.
func byKernel(t *testing.T, c *linktest.Cabled, b bottleneck) (end func() (lost uint64)) {
	t.Helper()
	withEther := func(n int64) int64 { return n * (fullLen + wire.EtherLen) / fullLen } // tbf counts frames
	rate := uint64(withEther(b.rate / 8))
	ports := []string{c.Left, c.Right}
	for _, port := range ports {
		err := c.Cable.Do(func() error {
			dev, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			return netlink.QdiscAdd(&netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: dev.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
					Parent: netlink.HANDLE_ROOT},
				Rate: rate, Limit: uint32(withEther(b.bytes())), Buffer: netlink.Xmittime(rate, uint32(b.bytes()/4))})
		})
		if errors.Is(err, unix.ENOENT) {
			require.Missing(t, "the kernel has no token bucket filter (sch_tbf)")
		}
		must(t, err)
	}
	return func() (lost uint64) {
		for _, port := range ports {
			must(t, c.Cable.Do(func() error {
				dev, err := netlink.LinkByName(port)
				if err != nil {
					return err
				}
				list, err := netlink.QdiscList(dev)
				for _, q := range list {
					if q.Type() == "tbf" {
						lost += uint64(q.Attrs().Statistics.Queue.Drops)
						err = errors.Join(err, netlink.QdiscDel(q))
					}
				}
				return err
			}))
		}
		return lost
	}
}

// end is a device at an end of a cable, with a queue pair and memory.
type end struct {
	dev roce.Device
	cq  ib.CQ
	qp  ib.QP
	mr  ib.MR
}

func newEnd(t *testing.T, ns *linktest.Namespace) *end {
	t.Helper()
	open := func(addrs []netip.Addr) (link.Link, error) { return udp.Open(addrs, udp.Options{}) }
	dev, err := roce.Open(wrap.Seal(linktest.OpenIn(t, ns, open, ns.Addr4)), roce.Options{})
	must(t, err)
	e := &end{dev: dev}
	pd, err := dev.AllocPD()
	must(t, err)
	e.cq, err = dev.CreateCQ(ib.CQInit{Entries: 2 * messages})
	must(t, err)
	e.mr, err = pd.RegMR(ib.MRInit{Buf: make([]byte, messageSize),
		Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead})
	must(t, err)
	e.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq, SigAll: true,
		Cap: ib.QPCap{MaxSendWR: messages, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(t, err)
	return e
}

func (e *end) connect(t *testing.T, peer *end) {
	t.Helper()
	attr := ib.QPAttr{Port: 1, Access: ib.QPAccessMask, AH: ib.AHAttr{DGID: peer.dev.Link().Local[0]},
		PathMTU: ib.MTU1024, DestQPN: peer.qp.Num(), MaxRdAtomic: messages, MaxDestRdAtomic: messages, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7}
	must(t, ib.ModifyTo(e.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

func must(t *testing.T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// goodput returns how many bits of WRITEs by A, or of READs, complete in a second. The congestion window may settle in
// a quarter of the time before.
func goodput(t *testing.T, c *linktest.Cabled, op ib.WROpcode, lasts time.Duration) float64 {
	t.Helper()
	a, b := newEnd(t, c.A), newEnd(t, c.B)
	defer a.dev.Close()
	defer b.dev.Close()
	a.connect(t, b)
	b.connect(t, a)
	wr := []ib.SendWR{{Opcode: op, SGL: []ib.SGE{a.mr.SGE(0, messageSize)}, RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()}}
	post := func() {
		_, err := a.qp.PostSend(wr)
		must(t, err)
	}
	for range messages {
		post()
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts+require.Patience)
	defer cancel()
	started, begins, done := time.Now(), time.Duration(0), 0
	for {
		var wcs [messages]ib.WC
		n, err := a.cq.Wait(ctx, wcs[:])
		must(t, err)
		for i := range wcs[:n] {
			must(t, wcs[i].Err())
			post()
		}
		switch now := time.Since(started); {
		case begins == 0 && now > lasts/4:
			begins = now
		case begins != 0:
			done += n
			if passed := now - begins; passed > lasts {
				return float64(done*messageSize*8) / passed.Seconds()
			}
		}
	}
}

// TestForwarderBottleneck compares what gets through a bottleneck of a Forwarder, in single packets, with what gets
// through one of the kernel: the Forwarder must not flatter. At 1 Gb/s, with GOROCE_FULL=1, both depend on the machine
// and are only printed.
func TestForwarderBottleneck(t *testing.T) {
	c := linktest.NewCable(t, 1500)
	for _, ns := range []*linktest.Namespace{c.A, c.B} {
		ns.Command(t, "ethtool", "-K", ns.IfName, "tso", "off", "gso", "off", "gro", "off",
			"tx-udp-segmentation", "off")
	}
	lasts := time.Duration(require.Rounds(1, 4)) * time.Second
	measure := func(carry path, b bottleneck, op ib.WROpcode) (rate float64, lost uint64) {
		t.Helper()
		end := carry(t, c, b)
		rate = goodput(t, c, op, lasts)
		return rate, end()
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nMb/s\tqueue, KiB\t\tforwarder\tlost\ttbf\tlost")
	for _, row := range []struct {
		bottleneck
		op      ib.WROpcode
		compare bool
	}{
		{bottleneck{1e8, 20 * time.Millisecond}, ib.WRWrite, true},
		{bottleneck{1e8, 20 * time.Millisecond}, ib.WRRead, true},
		{bottleneck{1e9, 2 * time.Millisecond}, ib.WRWrite, false},
		{bottleneck{1e9, 2 * time.Millisecond}, ib.WRRead, false},
		{bottleneck{1e9, 8 * time.Millisecond}, ib.WRWrite, false},
		{bottleneck{1e9, 8 * time.Millisecond}, ib.WRRead, false},
	} {
		if !row.compare && !require.Full() {
			continue
		}
		fmt.Fprintf(w, "%d\t%d\t%v\t", row.rate/1e6, row.bytes()>>10, row.op)
		if free, _ := measure(byForwarder, bottleneck{}, row.op); free < float64(row.rate) {
			fmt.Fprintf(w, "skipped: the forwarder carries only %.0f Mb/s without a bottleneck\n", free/1e6)
			continue
		}
		var forwarder, tbf float64
		var lost, dropped uint64
		alike := func() bool { return forwarder < 1.1*tbf && forwarder > tbf/2 }
		for tries := 0; tries == 0 || row.compare && !alike() && tries < 5; tries++ { // a busy machine holds up either
			if r, n := measure(byForwarder, row.bottleneck, row.op); r > forwarder {
				forwarder, lost = r, n
			}
			if r, n := measure(byKernel, row.bottleneck, row.op); r > tbf {
				tbf, dropped = r, n
			}
		}
		forwarder, tbf = forwarder/float64(row.rate), tbf/float64(row.rate)
		fmt.Fprintf(w, "%.3f\t%d\t%.3f\t%d\n", forwarder, lost, tbf, dropped)
		if row.compare && !alike() {
			t.Errorf("%v at %d Mb/s: got %.3f of the link by the forwarder, want at most a tenth more than the %.3f "+
				"by tbf, and more than half of it", row.op, row.rate/1e6, forwarder, tbf)
		}
	}
	w.Flush()
	t.Log(table.String())
}
