package script

import (
	"fmt"
	"strconv"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
)

// host holds what the QPs of a side share: memory, protection domains, shared
// receive queues and address handles.
type host struct {
	name            string
	table           *mr.Table
	pd, other       *mr.PD
	xrcd, otherXRCD qp.XRCD
	srqs            []*srq
	ahs             map[ib.AHNum]*qp.AH
	teller          *endpoint // the first QP, which collects the outputs of the SRQs
}

// srq is both ends of a shared receive queue. Number 0 is that of all QPs of the
// host; XRC SRQs have other numbers, and a completion queue each.
type srq struct {
	num    uint32
	pd     *mr.PD
	device *qp.SRQ
	app    *ring.Recv
	cq     completions
}

// newHost makes a host without memory. Each host has another variant, so that their
// keys differ.
func newHost(name string, variant uint8) (*host, error) {
	h := &host{name: name, ahs: map[ib.AHNum]*qp.AH{}}
	h.table = mr.NewTable(256, mr.CountedKeys(func() uint8 { variant++; return variant }))
	var err error
	if h.pd, err = h.table.NewPD(); err != nil {
		return nil, err
	}
	h.other, err = h.table.NewPD()
	return h, err
}

// domain returns the protection domain of a step: the other one for pd=other.
func (h *host) domain(a *args) *mr.PD {
	switch v, ok := a.value("pd"); {
	case v == "other":
		return h.other
	case ok:
		a.wrong("pd=other is the only one to ask for")
	}
	return h.pd
}

// newSRQ makes a shared receive queue; cq is that of an XRC SRQ.
func (h *host) newSRQ(num uint32, entries int, pd *mr.PD, cq completions, xrcd *qp.XRCD) error {
	const maxSGE = 4
	b := ring.Alloc(ring.RecvSize(entries, maxSGE))
	device, err := ring.NewRecv(b, entries, maxSGE)
	if err != nil {
		return err
	}
	app, err := ring.OpenRecv(b)
	if err != nil {
		return err
	}
	s := &srq{num: num, pd: pd, app: app, cq: cq, device: qp.NewSRQ(device, pd, cq.device, xrcd, nil)}
	h.srqs = append(h.srqs, s)
	return nil
}

// srq returns the shared receive queue of a number; nil if there is none.
func (h *host) srq(num uint32) *srq {
	for _, s := range h.srqs {
		if s.num == num {
			return s
		}
	}
	return nil
}

// SRQ finds the XRC SRQ that a request names (qp.SRQs).
func (h *host) SRQ(num uint32) *qp.SRQ {
	if s := h.srq(num); s != nil && num != 0 {
		return s.device
	}
	return nil
}

// AH finds an address handle (qp.AHs).
func (h *host) AH(num ib.AHNum) *qp.AH { return h.ahs[num] }

// register allocates the memory of an area and registers it as a region.
func (h *host) register(a *area, access ib.Access, late bool, pd *mr.PD) error {
	var m mr.Memory
	if late {
		a.slow = mrtest.New(a.size)
		m, a.mem = a.slow, a.slow.B
	} else {
		a.mem = ring.Alloc(a.size) // aligned, for atomics
		m = mr.Bytes(a.mem)
	}
	var err error
	if a.region, err = h.table.Register(pd, m, a.addr, access); err != nil {
		return err
	}
	a.key = a.region.Key()
	return nil
}

// addSRQ makes an XRC SRQ.
func (r *runner) addSRQ(e *endpoint, a *args) error {
	num, err := strconv.ParseUint(a.next(), 0, 24)
	if err != nil || num == 0 || e.srq(uint32(num)) != nil {
		return fmt.Errorf("an XRC SRQ has a number of its own, of 24 bits and not 0")
	}
	xrcd := &e.xrcd
	if v, ok := a.value("xrcd"); ok {
		if v != "other" {
			return fmt.Errorf("xrcd=other is the only one to ask for")
		}
		xrcd = &e.otherXRCD
	}
	cq := completions{name: fmt.Sprintf("srq=%d", num)}
	if err := cq.make(e.cfg.cq); err != nil {
		return err
	}
	return e.newSRQ(uint32(num), 16, e.domain(a), cq, xrcd)
}

// limit arms the limit event of a shared receive queue.
func (r *runner) limit(e *endpoint, a *args) error {
	n, err := strconv.Atoi(a.next())
	if err != nil {
		return fmt.Errorf("a limit is a number of receives")
	}
	s := e.srq(uint32(a.num("srq", 0, 24)))
	if s == nil {
		return fmt.Errorf("there is no such shared receive queue")
	}
	s.device.SetLimit(n, nil)
	e.dirty = true
	return nil
}

// addAH makes an address handle.
func (r *runner) addAH(e *endpoint, a *args) error {
	num, err := strconv.ParseUint(a.next(), 0, 8)
	if err != nil || num == 0 || e.ahs[ib.AHNum(num)] != nil {
		return fmt.Errorf("an address handle has a number of its own, and not 0")
	}
	e.ahs[ib.AHNum(num)] = &qp.AH{
		PD: e.domain(a), Owner: ib.AHNum(num),
		Attr: ib.AHAttr{DGID: ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: byte(num)}, Port: 1},
	}
	return nil
}
