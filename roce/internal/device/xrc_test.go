//go:build linux

package device_test

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
)

// guardedRings is a tenant that maps each ring separately. When it frees them they become
// inaccessible: a device that still writes to them crashes the test.
type guardedRings struct {
	t    *testing.T
	maps [][]byte
}

func (g *guardedRings) Alloc(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	g.t.Cleanup(func() { _ = unix.Munmap(b) })
	g.maps = append(g.maps, b)
	return b, nil
}

func (g *guardedRings) Notify(*device.CQ)         {}
func (g *guardedRings) QPFailed(device.QPFailure) {}
func (g *guardedRings) Fault(uintptr)             {}
func (g *guardedRings) Event(ib.Event)            {}
func (g *guardedRings) Stage(*device.QP) bool     { return true }

func (g *guardedRings) last() []byte { return g.maps[len(g.maps)-1] }

func (g *guardedRings) free() {
	for _, b := range g.maps {
		must(g.t, unix.Mprotect(b, unix.PROT_NONE))
	}
}

// TestXRCTargetOutlivesSRQ: an XRC target has taken a receive of an SRQ when the SRQ and its CQ
// are closed, and their rings unmapped. Whatever happens to the target afterwards, it writes no
// completion to that ring.
func TestXRCTargetOutlivesSRQ(t *testing.T) {
	fails := func(*xrcPair) {}
	for _, c := range []struct {
		name string
		slow bool // the whole message has come, and waits for its placement; else half of it
		end  func(p *xrcPair)
	}{
		{"target goes to ERR", false, fails},
		{"target is closed", false, func(p *xrcPair) { must(t, p.target.Close()) }},
		{"rest of the message arrives", false, func(p *xrcPair) {
			p.rest.Clear()
			if wc := p.poll(p.a); wc.Status != ib.WCRemInvReqErr {
				t.Errorf("the message ends with %v, want a remote invalid request", wc.Status)
			}
		}},
		{"data is placed", true, func(p *xrcPair) { p.settle() }},
		{"target goes to ERR while data is placed", true, fails},
	} {
		for _, shards := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d shards", c.name, shards), func(t *testing.T) {
				p := newXRCPair(t, shards, c.slow)
				p.receive()
				must(t, p.srq.Close())
				must(t, p.cq.Close())
				p.tenant.free()
				c.end(p)
				_ = p.target.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState) // it may be closed
				p.settle()
			})
		}
	}
}

// TestXRCSRQClosesWhenPlaced: a message that has arrived for an XRC SRQ is being written to slow memory when the SRQ
// is closed. Destroy's channel says when the memory of the receive is the application's again.
func TestXRCSRQClosesWhenPlaced(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			p := newXRCPair(t, shards, true)
			copy(p.a.buf, bytes.Repeat([]byte("written "), 250))
			var gone <-chan struct{}
			p.memory.before = func() {
				p.memory.before = nil
				var err error
				gone, err = p.srq.(*device.SRQ).Destroy()
				must(t, err)
				if isDone(gone) || p.written() {
					t.Error("the SRQ is gone while its message is being placed")
				}
			}
			p.receive()
			if gone == nil || !isDone(gone) || !p.written() {
				t.Error("the message is not placed, or the SRQ is not gone")
			}
			p.settle()
		})
	}
}

// watchedMemory is slow memory that calls before, if it is set, when something is written.
type watchedMemory struct {
	*mrtest.Memory
	before func()
}

func (m *watchedMemory) WriteAt(b []byte, off uint64) error {
	if m.before != nil {
		m.before()
	}
	return m.Memory.WriteAt(b, off)
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// xrcPair is an XRC initiator on host a and a target on host b, with an SRQ of a tenant
// that has one receive.
type xrcPair struct {
	*world
	rest        wrap.Rules // keeps the second packet of the message back, unless memory is slow
	tenant      *guardedRings
	cq          *device.CQ
	srq         ib.SRQ
	ini, target ib.QP
	memory      *watchedMemory // of the receive, if it is slow
}

// written reports whether the message of receive is in slow memory, as a whole.
func (p *xrcPair) written() bool { return bytes.Equal(p.memory.B[:2000], p.a.buf[:2000]) }

func newXRCPair(t *testing.T, shards int, slow bool) *xrcPair {
	p := &xrcPair{tenant: &guardedRings{t: t}}
	if !slow {
		_, err := p.rest.Add(wrap.Rule{Action: wrap.ActDrop, Direction: wrap.DirOut, Class: "send",
			PSN: &wrap.PSNRange{First: 1, Last: 1}})
		must(t, err)
	}
	p.world = newWorld(t, 1, 8192, stack{below: same, shards: shards, above: func(l link.Link) link.Link {
		if l.Caps().Local[0] == gidA {
			return p.rest.Above(l)
		}
		return l
	}})
	worker := p.b.dev.NewWorker(device.WorkerOptions{})
	t.Cleanup(worker.Close)
	pd, err := p.b.dev.AllocPDFor(p.tenant, worker)
	must(t, err)
	p.cq, err = p.b.dev.CreateCQFor(p.tenant, ib.CQInit{Entries: 16})
	must(t, err)
	xrcd, err := p.b.dev.AllocXRCD()
	must(t, err)
	p.srq, err = pd.CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, XRCD: xrcd, CQ: p.cq,
		SRQAttr: ib.SRQAttr{MaxWR: 8, MaxSGE: 1}})
	must(t, err)
	posted, err := ring.OpenRecv(p.tenant.last())
	must(t, err)
	memory := mr.Bytes(make([]byte, 4096))
	if slow {
		p.memory = &watchedMemory{Memory: mrtest.New(4096)}
		memory = p.memory
	}
	region, err := pd.RegMemory(memory, 0, ib.LocalWrite)
	must(t, err)
	must(t, posted.Push(&ib.RecvWR{ID: 1, SGL: []ib.SGE{{Addr: region.Addr(), Length: 4096, LKey: region.LKey()}}}))
	posted.Publish()
	p.ini, err = p.a.pd.CreateQP(ib.QPInit{Type: ib.XRCINI, SendCQ: p.a.cq, Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	must(t, err)
	p.target, err = p.b.pd.CreateQP(ib.QPInit{Type: ib.XRCTGT, XRCD: xrcd})
	must(t, err)
	p.bringUpXRC(p.ini, gidB, p.target.Num())
	p.bringUpXRC(p.target, gidA, p.ini.Num())
	return p
}

// receive sends a message of two packets until the target has taken the receive, and
// has handed slow placements over without an answer yet.
func (p *xrcPair) receive() {
	p.t.Helper()
	_, err := p.ini.PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: p.a.sge(0, 2000),
		RemoteSRQ: p.srq.Num()}})
	must(p.t, err)
	for range 10 {
		p.a.dev.Step(p.now)
	}
	p.b.dev.Step(p.now)
	if got := p.b.dev.Stats().RcvdPkts; got == 0 {
		p.t.Fatal("nothing has come")
	}
}
