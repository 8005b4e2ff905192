package afxdp

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// twoQueues returns two namespaces whose interfaces have two queues, which is as many
// as every machine can have.
func twoQueues(t testing.TB) (na, nb *linktest.Namespace) {
	t.Helper()
	na, nb = linktest.NewVeth(t, 1500)
	for _, n := range []*linktest.Namespace{na, nb} {
		n.Command(t, "ethtool", "-L", n.IfName, "rx", "2", "tx", "2")
	}
	return na, nb
}

func openShards(t testing.TB, ns *linktest.Namespace, o Options, shards int) []link.Link {
	t.Helper()
	var links []link.Link
	err := ns.Do(func() (err error) {
		links, err = OpenShards([]netip.Addr{ns.Addr4}, o, shards)
		return err
	})
	must(t, err)
	t.Cleanup(func() { closeLinks(links) })
	return links
}

func closeLinks(links []link.Link) {
	for _, l := range links {
		_ = l.Close()
	}
}

// arrivals receives until so many frames have come by the links together, and returns
// how many each had.
func arrivals(t testing.TB, links []link.Link, n int) []int {
	t.Helper()
	got := make([]int, len(links))
	in := make([]link.Run, rxBatch)
	for end := time.Now().Add(patience); n > 0; runtime.Gosched() {
		for i, l := range links {
			k, err := l.Recv(0, in)
			must(t, err)
			for _, r := range in[:k] {
				got[i] += r.Frames()
				n -= r.Frames()
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d frames are missing of those that links got: %v", n, got)
		}
	}
	return got
}

// TestShards: links divide the queues of an interface up. Each sends by its own, and
// receives what comes by it; what is to groups, and what waits for a MAC address,
// goes through the kernel from and to where it should.
func TestShards(t *testing.T) {
	na, nb := twoQueues(t)
	a, b := openShards(t, na, Options{}, 2), openShards(t, nb, Options{}, 2)
	for _, links := range [][]link.Link{a, b} {
		for i, l := range links {
			if c := l.(*conn); len(c.queues) != 1 || c.senders != 1 || c.queues[0].id != i || c.main != (i == 0) {
				t.Fatalf("link %d: queues %v, %d send, main: %v; want queue %d, 1, %v", i, c.queues, c.senders, c.main,
					i, i == 0)
			}
		}
	}
	var next uint32
	run := func(from link.Link, port uint16) []link.Run {
		r := linktest.NewRun(from, b[0], &next, 10, 1040, 0)
		r.SrcPort = port
		return []link.Run{r}
	}
	for i := range a { // nobody knows MAC addresses yet
		linktest.SendAll(t, a[i], run(a[i], 0xC000))
		for end := time.Now().Add(patience); ; {
			if _, known := a[0].(*conn).kernel.Neighbour(&run(a[0], 0)[0]); known || time.Now().After(end) {
				break
			}
			must(t, a[0].Wait(10*time.Millisecond, false))
			_, err := a[0].Recv(0, make([]link.Run, 1)) // sends what was held
			must(t, err)
		}
		arrivals(t, b, 10)
	}
	for i := range a {
		for port := range uint16(2) {
			linktest.SendAll(t, a[i], run(a[i], 0xC000+port))
			if got := arrivals(t, b, 10); got[i] != 10 { // veth keeps the number of the queue
				t.Errorf("sent by link %d, received by the links: %v; want all 10 by that", i, got)
			}
		}
	}

	group := linktest.NewGroup(b[0])
	must(t, b[0].Join(group))
	for i := range a {
		linktest.SendAll(t, a[i], []link.Run{linktest.NewDatagram(a[i], group, 64)})
		if got := arrivals(t, b, 1); got[0] != 1 {
			t.Errorf("what is to a group came by the links: %v, want it by the first", got)
		}
	}
	var rx uint64
	for _, l := range b {
		rx += l.Stats().RxFrames
	}
	if rx != 2*10+4*10+2 {
		t.Errorf("%d frames received, want %d", rx, 2*10+4*10+2)
	}
}

// TestShardsClose: links close one by one, in any order; the others go on. With the
// last one everything is gone.
func TestShardsClose(t *testing.T) {
	na, _ := twoQueues(t)
	before := descriptors(t)
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		links := openShards(t, na, Options{}, 2)
		stays := links[order[1]]
		woken := make(chan error, 1)
		go func() { woken <- links[order[0]].Wait(-1, false) }()
		must(t, links[order[0]].Close())
		if err := <-woken; !errors.Is(err, link.ErrClosed) {
			t.Errorf("Wait on a closed link: %v, want %v", err, link.ErrClosed)
		}
		links[order[0]].Wake()
		_, err := stays.Recv(0, make([]link.Run, 4))
		must(t, err)
		stays.Wake()
		must(t, stays.Wait(-1, false))
		if hooked(t, na) == 0 {
			t.Error("the program is gone while a link is open")
		}
		must(t, stays.Close())
		if id := hooked(t, na); id != 0 {
			t.Errorf("program %d is left, want none", id)
		}
		noMore(t, before)
	}
}

// TestShardsRefused: more links than queues, and numbers that cannot be.
func TestShardsRefused(t *testing.T) {
	na, _ := twoQueues(t)
	before := descriptors(t)
	open := func(o Options, shards int) error {
		return na.Do(func() error {
			_, err := OpenShards([]netip.Addr{na.Addr4}, o, shards)
			return err
		})
	}
	var refused *Error
	for _, err := range []error{open(Options{}, 4), open(Options{Queues: 1}, 2)} {
		if !errors.As(err, &refused) || !errors.Is(err, errors.ErrUnsupported) ||
			!strings.Contains(err.Error(), "ethtool") {
			t.Errorf("error %v, want an *Error that says what to do", err)
		}
	}
	var attr *ib.AttrError
	if err := open(Options{}, 3); !errors.As(err, &attr) {
		t.Errorf("3 shards: error %v, want an *ib.AttrError", err)
	}
	noMore(t, before)
}

// TestDeviceOfShards plays SENDs between devices of two shards, whose QPs are on
// either: packets come by any queue and find their QP.
func TestDeviceOfShards(t *testing.T) {
	na, nb := twoQueues(t)
	device := func(ns *linktest.Namespace, o Options) roce.Device {
		links := openShards(t, ns, o, 2)
		for i, l := range links {
			links[i] = wrap.Seal(wrap.Loopback(l))
		}
		dev, err := roce.OpenShards(links, roce.Options{})
		must(t, err)
		t.Cleanup(func() { _ = dev.Close() })
		return dev
	}
	for _, o := range []Options{{}, {Generic: true}} {
		devA, devB := device(na, o), device(nb, o)
		for i := range 4 {
			a, b := newEndOn(t, devA, 1<<16), newEndOn(t, devB, 1<<16)
			if i%2 == 0 { // the next CQ of this one is on the other shard
				_, err := devB.CreateCQ(ib.CQInit{Entries: 1})
				must(t, err)
			}
			a.connect(t, b, 0)
			b.connect(t, a, 0)
			for range 20 {
				b.post(t, 1<<16)
				_, err := a.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: a.sge(1 << 16)}})
				must(t, err)
				a.wait(t, 1)
				b.wait(t, 1)
			}
		}
		must(t, devA.Close())
		must(t, devB.Close())
	}
}
