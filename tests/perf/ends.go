package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
)

// end is a device with RC QPs that are connected to those of the other end.
type end struct {
	dev    ib.Device
	pd     ib.PD
	cq     ib.CQ // of all QPs, for sends and receives
	mem    []byte
	mr     ib.MR
	qps    []ib.QP
	sleeps bool // waits for completions when there is nothing to poll

	remote place
}

// place is what an end tells the other end about itself.
type place struct {
	GID  ib.GID
	QPNs []ib.QPN
	Addr uint64
	RKey ib.Key
}

// maxReads is the number of READs that a QP keeps in flight.
const maxReads = 16

// openAny opens the device of j, which may be a daemon's.
func openAny(j *Job) (ib.Device, error) {
	if j.Memory != "" {
		return openServed(j)
	}
	return openDevice(j)
}

// openDevice opens the device of j in this process. If the machine cannot have a link other than udp, the row is
// skipped.
func openDevice(j *Job) (roce.Device, error) {
	addrs := []netip.Addr{j.Self}
	if j.RecvBuffer > 0 {
		l, err := udp.Open(addrs, udp.Options{RecvBuffer: j.RecvBuffer})
		if err != nil {
			return nil, err
		}
		return roce.Open(wrap.Seal(wrap.Loopback(l)), roce.Options{})
	}
	if j.Link == "" || j.Link == "udp" {
		return host.Open(host.Options{Link: "udp", Addrs: addrs})
	}
	dev, err := host.Open(host.Options{Link: j.Link, Addrs: addrs})
	if err != nil {
		return nil, &SkipError{err.Error()}
	}
	return dev, nil
}

// connected opens an end whose QPs are connected. The caller closes the device.
func connected(j *Job, p *peer) (*end, error) {
	e, err := openQPs(j)
	if err != nil {
		return nil, err
	}
	if err := e.connect(p); err != nil {
		_ = e.dev.Close()
		return nil, err
	}
	return e, nil
}

// openQPs opens an end with its QPs. The caller closes the device.
func openQPs(j *Job) (*end, error) {
	e, err := openEnd(j)
	if err != nil {
		return nil, err
	}
	if err := e.addQPs(j); err != nil {
		_ = e.dev.Close()
		return nil, err
	}
	return e, nil
}

// openEnd opens a device and the queues and memory for j. The caller closes the
// device.
func openEnd(j *Job) (*end, error) {
	dev, err := openAny(j)
	if err != nil {
		return nil, err
	}
	e := &end{dev: dev, mem: make([]byte, max(j.Size, 64))}
	if j.Memory == memfd {
		e.mem, err = client.Alloc(len(e.mem)) // freed when the process ends
	}
	if err == nil {
		err = e.open(j)
	}
	if err != nil {
		_ = dev.Close()
		return nil, err
	}
	return e, nil
}

func (e *end) open(j *Job) (err error) {
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return err
	}
	init := ib.CQInit{Entries: 2 * max(j.QPs, 1) * j.Depth}
	e.sleeps = j.Events
	if e.cq, err = e.dev.CreateCQ(init); err != nil {
		return err
	}
	e.mr, err = e.pd.RegMR(ib.MRInit{Buf: e.mem, Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead})
	return err
}

// addQPs makes the QPs.
func (e *end) addQPs(j *Job) error {
	for range max(j.QPs, 1) {
		qp, err := e.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: j.qpCap()})
		if err != nil {
			return err
		}
		e.qps = append(e.qps, qp)
	}
	return nil
}

// qpCap is the capacity of the job's QPs.
func (j *Job) qpCap() ib.QPCap {
	return ib.QPCap{MaxSendWR: j.Depth, MaxRecvWR: j.Depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: pingSize}
}

// connect exchanges places with the other end and takes all QPs to RTS.
func (e *end) connect(p *peer) error {
	mine := place{Addr: e.mr.Addr(), RKey: e.mr.RKey()}
	gids, err := e.dev.GIDs(1)
	if err != nil {
		return err
	}
	mine.GID = gids[0].GID
	for _, qp := range e.qps {
		mine.QPNs = append(mine.QPNs, qp.Num())
	}
	if e.remote, err = swap(p, mine); err != nil {
		return err
	}
	if len(e.remote.QPNs) != len(e.qps) {
		return fmt.Errorf("connect: the other end has %d QPs, this one %d", len(e.remote.QPNs), len(e.qps))
	}
	port, err := e.dev.QueryPort(1)
	if err != nil {
		return err
	}
	for i, qp := range e.qps {
		if err := connectQP(qp, e.remote.GID, e.remote.QPNs[i], port.ActiveMTU); err != nil {
			return err
		}
	}
	return nil
}

func connectQP(qp ib.QP, gid ib.GID, peer ib.QPN, mtu ib.MTU) error {
	attr := ib.QPAttr{Port: 1, Access: ib.QPAccessMask, AH: ib.AHAttr{DGID: gid}, PathMTU: mtu, DestQPN: peer,
		MaxDestRdAtomic: maxReads, MinRNRTimer: 12, MaxRdAtomic: maxReads, Timeout: 14, RetryCnt: 7, RNRRetry: 7}
	return ib.ModifyTo(qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS)
}

// sge returns the SGE of the first n bytes of the end's memory.
func (e *end) sge(n int) []ib.SGE {
	return []ib.SGE{e.mr.SGE(0, n)}
}

// poll polls the CQ. A failed completion is an error.
func (e *end) poll(wcs []ib.WC) (int, error) {
	n, err := e.cq.Poll(wcs)
	if n == 0 && err == nil && e.sleeps {
		n, err = e.await(wcs)
	}
	for i := range wcs[:n] {
		if err == nil {
			err = wcs[i].Err()
		}
	}
	return n, err
}

// await is poll for a queue that was empty: it waits for a short time.
func (e *end) await(wcs []ib.WC) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pingPatience)
	defer cancel()
	n, err := e.cq.Wait(ctx, wcs)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, nil
	}
	return n, err
}
