package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// Connection parameters. The tour has small round numbers, so that packets are easy to follow; real programs use random
// first PSNs.
const (
	clientPSN = 100
	serverPSN = 500
	clientMem = 0x10000 // address of the memory, for SGEs and the peer
	serverMem = 0x20000

	bufSize    = slots*slotSize + slotSize // the slots, and what the tour uses
	tourOffset = slots * slotSize
	retries    = 7

	// The local ACK timeout is 4.096 us * 2^code, 67 ms: long enough that a busy machine does not exhaust the retries,
	// with dropped packets, too, most of which probes find earlier.
	timeoutCode = 14
)

// A wait for a completion polls for spinTime, then with pauses, for at most patience.
const (
	spinTime = 200 * time.Microsecond
	patience = 10 * time.Second
)

// side is one of the two hosts.
type side struct {
	name    string
	addr    netip.Addr
	dev     ib.Device
	link    string            // link that sends its packets
	note    string            // note of the link
	stats   func() roce.Stats // nil if the device is shared with other programs
	pd      ib.PD
	cq      ib.CQ
	mr      ib.MR
	qp      ib.QP
	buf     []byte
	last    ib.PSN // of the last posted request
	dropped atomic.Uint64
}

// pair is the two connected hosts.
type pair struct {
	opts           Options
	rec            *recorder // nil if packets are not recorded
	client, server *side
	capture        *packetStream // nil if there is none
	blind          error         // why there is none; nil if none is needed
	timeout        time.Duration // the local ACK timeout
}

// openPair opens two devices and connects a QP of each.
func openPair(ctx context.Context, o Options, rec *recorder, pcap io.Writer) (*pair, error) {
	p := &pair{opts: o, rec: rec, client: &side{name: "client"}, server: &side{name: "server"}}
	if rec != nil {
		rec.init(int(o.MTU))
	}
	if o.Memory {
		o.network = mem.NewNetwork()
	}
	err := p.client.open(ctx, o, o.Client, rec, clientMem, pcap)
	if err == nil {
		err = p.server.open(ctx, o, o.Server, rec, serverMem, nil)
	}
	if err == nil {
		err = p.connect()
	}
	if err == nil && rec != nil && o.Daemon != nil {
		p.capture, p.blind = p.captureInto(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// open opens a device and creates everything on it; the QP is not connected yet.
func (s *side) open(ctx context.Context, o Options, addr netip.Addr, rec *recorder, iova uint64,
	pcap io.Writer) (err error) {
	switch {
	case o.Daemon != nil:
		err = s.dial(ctx, o.Daemon)
	case o.Memory:
		err = s.inMemory(o.network, addr, s.stack(o, rec, iova, pcap))
	default:
		err = s.onSockets(addr, s.stack(o, rec, iova, pcap))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return err
	}
	if s.cq, err = s.dev.CreateCQ(ib.CQInit{Entries: 4 * slots}); err != nil {
		return err
	}
	s.buf = ib.Alloc(s.dev, bufSize)
	access := ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	if s.mr, err = s.pd.RegMR(ib.MRInit{Buf: s.buf, IOVA: iova, Access: access}); err != nil {
		return err
	}
	cap := ib.QPCap{MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 64}
	s.qp, err = s.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: s.cq, RecvCQ: s.cq, Cap: cap, SigAll: true})
	return err
}

// stack is what is put around a host's link, and the device above it.
type stack struct {
	fault  wrap.FaultConfig
	trace  func(*wrap.Event) // nil if nobody looks
	pcap   io.Writer         // nil if nothing is captured
	device roce.Options
}

// stack returns a stack that records and drops packets.
func (s *side) stack(o Options, rec *recorder, seed uint64, pcap io.Writer) stack {
	// The tour shows segmentation, so it uses no trains. It needs no tail probes if nothing can be lost, and on a busy
	// machine these would add packets to the ladders.
	st := stack{pcap: pcap, device: roce.Options{Name: "goroce_" + s.name, NoTrains: true, NoProbes: o.Drop == 0}}
	st.fault = wrap.FaultConfig{Seed: o.Seed + seed, Drop: o.Drop,
		OnDrop: func(now ib.Instant, _ *link.Run, frame []byte) {
			s.dropped.Add(1)
			rec.lost(s.name, now, frame)
		}}
	if rec != nil {
		st.trace = func(ev *wrap.Event) { rec.passed(s.name, ev) }
	}
	return st
}

// inMemory opens a device on a network in memory.
func (s *side) inMemory(network *mem.Network, addr netip.Addr, st stack) (err error) {
	var l link.Link = network.Open([]ib.GID{ib.GIDFromAddr(addr)}, mem.Options{})
	if st.trace != nil {
		l = wrap.Trace(l, st.trace)
	}
	if st.pcap != nil {
		if l, err = wrap.Pcap(l, st.pcap, time.Time{}); err != nil {
			return err
		}
	}
	if l = wrap.Seal(l); !st.fault.Perfect() {
		l = wrap.Fault(l, st.fault)
	}
	dev, err := roce.Open(l, st.device)
	if err != nil {
		return err
	}
	s.use(dev, addr)
	return nil
}

// use makes dev the device of s.
func (s *side) use(dev roce.Device, addr netip.Addr) {
	s.dev, s.addr, s.link, s.note, s.stats = dev, addr, dev.Link().Name, dev.Link().Note, dev.Stats
}

// connect takes both QPs from RESET to RTS. Two programs would exchange QP numbers, first PSNs, addresses, memory
// addresses and R_Keys over TCP or with the connection manager; here both ends are in one process.
func (p *pair) connect() error {
	p.timeout = 4096 * time.Nanosecond << timeoutCode
	for _, e := range []struct {
		local, remote      *side
		localPSN, firstPSN ib.PSN
	}{{p.client, p.server, clientPSN, serverPSN}, {p.server, p.client, serverPSN, clientPSN}} {
		attr := ib.QPAttr{
			Port: 1, Access: ib.QPAccessMask,
			AH: ib.AHAttr{DGID: ib.GIDFromAddr(e.remote.addr), Port: 1}, PathMTU: p.opts.MTU,
			DestQPN: e.remote.qp.Num(), RQPSN: e.firstPSN,
			MaxDestRdAtomic: slots, MinRNRTimer: 12,
			SQPSN: e.localPSN, MaxRdAtomic: slots, Timeout: timeoutCode, RetryCnt: retries, RNRRetry: 7,
		}
		e.local.last = e.localPSN.Add(-1)
		if err := ib.ModifyTo(e.local.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS); err != nil {
			return err
		}
	}
	return nil
}

// close ends the capture and both devices.
func (p *pair) close() error {
	p.capture.close()
	var errs []error
	for _, s := range []*side{p.client, p.server} {
		if s.dev != nil {
			errs = append(errs, s.dev.Close())
		}
	}
	return errors.Join(errs...)
}

// sge returns the SGL of n bytes of the host's memory at an offset.
func (s *side) sge(off, n int) []ib.SGE {
	return []ib.SGE{s.mr.SGE(off, n)}
}

// remote sets the address and R_Key with which the other host reaches memory of s.
func (s *side) remote(wr ib.SendWR, off int) ib.SendWR {
	wr.RemoteAddr, wr.RKey = s.mr.Addr()+uint64(off), s.mr.RKey()
	return wr
}

// post posts a request. It uses a PSN for each packet of its data, at least one.
func (p *pair) post(s *side, wr ib.SendWR) error {
	n := len(wr.Inline)
	for _, sge := range wr.SGL {
		n += int(sge.Length)
	}
	mtu := int(p.opts.MTU)
	s.last = s.last.Add(max((n+mtu-1)/mtu, 1))
	_, err := s.qp.PostSend([]ib.SendWR{wr})
	return err
}

func (s *side) postRecv(off, n int) error {
	_, err := s.qp.PostRecv([]ib.RecvWR{{SGL: s.sge(off, n)}})
	return err
}

// wait polls for the next completion; an unsuccessful one is an error. After a while it polls with pauses, to leave the
// processor to the devices.
func (s *side) wait(ctx context.Context) (ib.WC, error) {
	var wc [1]ib.WC
	for start := time.Now(); ; {
		n, err := s.cq.Poll(wc[:])
		if n == 1 {
			err = wc[0].Err()
		}
		if err != nil {
			return wc[0], fmt.Errorf("%s: %w", s.name, err)
		}
		if n == 1 {
			return wc[0], nil
		}
		if err := ctx.Err(); err != nil {
			return wc[0], err
		}
		took := time.Since(start)
		if took < spinTime {
			runtime.Gosched()
			continue
		}
		if took > patience {
			return wc[0], fmt.Errorf("%s: no completion for %v", s.name, patience)
		}
		time.Sleep(spinTime / 4)
	}
}
