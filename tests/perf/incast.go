package perf

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/goroce/goroce/ib"
)

// Containers on one machine: each has a network namespace and a daemon of its own, and many of them send to one. They
// share the machine's processors, and a bottleneck.

const (
	incastRate  = 1e9      // of the bottleneck, in bits per second
	incastQueue = 1 << 20  // of the bottleneck, in bytes
	incastBurst = 15 << 10 // less than a run, which the kernel so cuts into packets
	incastDepth = 32

	incastPackets = 64 // of a message
)

// incasts are the numbers of senders.
var incasts = []int{1, 16, 64}

func incastName(senders int) string {
	return fmt.Sprintf("RC WRITE 64 KiB, %d into one, daemons", senders)
}

// incastTable has the rows of many senders.
func incastTable() (list []Row) {
	for _, n := range incasts {
		list = append(list, Row{Name: incastName(n), Unit: gbps, On: incastRows, Measure: incastOf(n, false)},
			Row{Name: "CPU of " + incastName(n), Unit: cpuPerGB, On: incastRows, Measure: incastOf(n, false)},
			Row{Name: "system calls of " + incastName(n), Unit: callsEach, On: incastRows, Measure: incastOf(n, true)},
			Row{Name: "wake-ups of " + incastName(n), Unit: wakesEach, On: incastRows, Measure: incastOf(n, true)})
	}
	last := list[len(list)-4:]
	last[0].Bars = []Bar{least(0.8*incastRate/1e9, "")}
	last[1].Bars = []Bar{most(1.5, list[1].Name)}
	last[2].Bars, last[3].Bars = []Bar{most(4*incastPackets, "")}, []Bar{most(incastPackets, "")}
	return list
}

// newIncast creates a wire with a receiver at the near end, and a namespace for each sender. The bottleneck is the port
// of their bridge that leads to the receiver.
func newIncast(id WireID) (_ *wire, err error) {
	var all []*namespace
	defer func() {
		if err != nil {
			closeAll(all...)
			err = &SkipError{fmt.Sprintf("make a bridge with a bottleneck: %v", err)}
		}
	}()
	for range 2 + incasts[len(incasts)-1] {
		n, err := newNamespace()
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	middle, ends := all[0], all[1:]
	if err := middle.do(func() error { return addBridge(id.MTU) }); err != nil {
		return nil, err
	}
	addr := netip.MustParseAddr("10.99.1.0")
	for i, n := range ends {
		addr = addr.Next()
		port := fmt.Sprintf("port%d", i)
		err := middle.do(func() error {
			err := addPort(port, n.handle, id.MTU)
			if err == nil && i == 0 {
				err = limitRate(port)
			}
			return err
		})
		if err == nil {
			err = n.configure(netip.PrefixFrom(addr, 24), id.MTU)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, n := range ends {
		if err := n.waitUp(); err != nil {
			return nil, err
		}
	}
	return &wire{WireID: id, near: ends[0], far: ends[1], senders: ends[1:], close: func() { closeAll(all...) }}, nil
}

// limitRate makes an interface a bottleneck.
func limitRate(name string) error {
	itf, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: itf.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
			Parent: netlink.HANDLE_ROOT},
		Rate: incastRate / 8, Limit: incastQueue, Buffer: netlink.Xmittime(incastRate/8, incastBurst),
	})
}

// incastOf measures n senders. If counted, it counts what all processes have the kernel do.
func incastOf(n int, counted bool) measure {
	return func(ctx context.Context, w *wire, o *Options) (Result, error) {
		j := stream(ib.WRWrite, 64<<10)
		j.Depth, j.Events, j.Memory, j.RecvBuffer, j.User = incastDepth, true, memfd, userRecv, true
		j.MTU, j.Duration = w.MTU, 4*o.Duration // windows have to settle
		receiver := j
		receiver.Kind, receiver.Far, receiver.QPs = gatherKind, true, n
		tasks := []task{{w.near, w.far, receiver}}
		for _, s := range w.senders[:n] {
			tasks = append(tasks, task{s, w.near, j})
		}
		sum := Result{Seconds: 1}
		var kernel *watch
		if counted {
			var err error
			if kernel, err = startWatch(); err != nil {
				return Result{}, err
			}
		}
		results, err := together(ctx, o, tasks...)
		if counted {
			kernel.stop()
		}
		if err != nil {
			return Result{}, err
		}
		if counted {
			r := results[0]
			calls, wakes := kernel.between(r.Began, r.Began.Add(time.Duration(r.Seconds*float64(time.Second))))
			sum.Calls, sum.Wakes = calls/r.Seconds, wakes/r.Seconds
		}
		for _, r := range results { // the intervals of the processes differ a little
			sum.Bytes += r.Bytes / r.Seconds
			sum.Packets += r.Packets / r.Seconds
			sum.Messages += r.Messages / r.Seconds
			sum.CPU += r.CPU / r.Seconds
		}
		return sum, nil
	}
}

// gatherKind is the job of a receiver of many senders.
const gatherKind = "gather"

// gather is the passive end of the WRITEs of as many senders as the job has QPs.
func gather(j *Job) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.timeout())
	defer cancel()
	e, err := openQPs(j)
	if err != nil {
		return Result{}, err
	}
	defer e.dev.Close()
	peers, err := meetAll(ctx, j)
	for i, p := range peers {
		defer p.conn.Close()
		if err == nil {
			err = (&end{dev: e.dev, mr: e.mr, qps: e.qps[i : i+1]}).connect(p)
		}
	}
	var m *meter
	for _, p := range peers { // all are there: the senders start at one instant
		if err == nil {
			m, err = p.start(j)
		}
	}
	if err != nil {
		return Result{}, err
	}
	m.sleep()
	for _, p := range peers {
		p.finish()
	}
	return m.result(), nil
}
