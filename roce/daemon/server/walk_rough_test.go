package server

import (
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// rough is a client that sends any requests, with any descriptors, reads some of the answers, and
// dies.
func (w *walkWorld) rough() {
	d := w.fork() // the server may drop the client sooner or later
	conn, err := w.dial()
	must(w.t, err)
	for i := range 2 + d.n(10) {
		var fds []int
		h := abi.Header{Op: abi.OpHello, Seq: uint32(i)}
		body := abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version})
		switch {
		case i == 1:
			h.Op, body = abi.OpOpen, abi.Put(nil, &abi.Open{})
		case i == 2 && !d.one(4):
			h.Op, body = abi.OpShareDoorbells, nil
			fds = d.descriptors(w.t)
		case i > 1 || d.one(16):
			h.Op, body = d.request()
			fds = d.descriptors(w.t)
		}
		err := conn.Send(h, body, fds...)
		abi.CloseAll(fds)
		if err != nil {
			break // the server has dropped the client
		}
		if d.one(2) { // each request has one answer, so there is one to read
			_, _, theirs, err := conn.Receive()
			abi.CloseAll(theirs)
			if err != nil {
				break
			}
		}
	}
	must(w.t, conn.Close())
	w.sessions()
}

// request draws a request. Its objects may exist.
func (d *dice) request() (abi.Op, []byte) {
	h := func() abi.Handle { return abi.Handle(d.n(6)) }
	few := func() uint32 { return []uint32{0, 1, 4, 100, math.MaxUint32}[d.n(5)] }
	switch d.n(14) {
	case 0:
		return abi.OpAllocPD, nil
	case 1:
		return abi.OpCreateChannel, nil
	case 2:
		return abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: few(), Channel: h()})
	case 3:
		return abi.OpResizeCQ, abi.Put(nil, &abi.ResizeCQ{CQ: h(), Entries: few()})
	case 4:
		return abi.OpCreateSRQ, abi.Put(nil, &abi.CreateSRQ{PD: h(), MaxWR: few(), MaxSGE: 1 + few()})
	case 5:
		return abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{PD: h(), SendCQ: h(), RecvCQ: h(), Type: uint32(2 + d.n(3)),
			MaxSendWR: few(), MaxSendSGE: 1})
	case 6:
		return abi.OpRegMR, abi.Put(nil, d.region(h()))
	case 7:
		return abi.OpReregMR, abi.Put(nil, &abi.ReregMR{MR: h(), Mask: uint32(d.n(8)) | uint32(d.n(2))*abi.KeepKeys,
			RegMR: *d.region(h())})
	case 8:
		return abi.OpClose, abi.Put(nil, &abi.Close{Handle: h(), Kind: abi.Kind(d.n(int(abi.KindPD) + 2))})
	case 9:
		return abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{Flags: uint32(d.n(4))})
	case 10:
		return abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{XRCD: h(), Type: uint32(ib.XRCTGT)})
	case 11:
		return abi.OpOpenQP, abi.Put(nil, &abi.OpenQP{XRCD: h(), QPN: uint32(d.n(64)), Type: uint32(ib.XRCTGT)})
	case 12:
		return abi.OpShareMemory, nil
	}
	body := make([]byte, d.n(80))
	for i := range body {
		body[i] = byte(d.n(256))
	}
	return abi.Op(1 + d.n(int(abi.OpShareMemory)+1)), body
}

func (d *dice) region(pd abi.Handle) *abi.RegMR {
	lengths := []uint64{0, 1, 4096, 8192, 1 << 40}
	return &abi.RegMR{PD: pd, Access: uint32(d.n(8)), Kind: uint32(1 + d.n(3)), File: abi.Handle(d.n(6)),
		Addr: lengths[d.n(5)], Length: lengths[d.n(5)]}
}

// descriptors draws descriptors to send along: most often one of a memfd.
func (d *dice) descriptors(t *testing.T) (fds []int) {
	for range []int{0, 1, 1, 1, 2, 17}[d.n(6)] {
		fd, err := unix.MemfdCreate("walk", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		must(t, err)
		must(t, unix.Ftruncate(fd, 8192))
		if !d.one(4) {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
			must(t, err)
		}
		fds = append(fds, fd)
	}
	return fds
}
