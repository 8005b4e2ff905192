// Whygo is verbs_why.c in Go: `whygo CASE [ADDRESS]` lets a request of one queue pair to another of this program fail,
// in the same ways. It prints the numbers of both, 0 for one that is gone, and ends when its standard input does. What
// cannot be posted is said before that.
package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
)

// world is a device of the daemon, and two connected queue pairs of it.
type world struct {
	dev      ib.Device
	pd       ib.PD
	buf      []byte
	mr       ib.MR
	cqA, cqB ib.CQ
	a, b     ib.QP
	gid      ib.GID
	closed   netip.Addr
	lost     bool // there is no completion of a
}

const (
	page  = 4096
	depth = 16
	all   = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
)

// cases are the ways to fail.
var cases = map[string]func(w *world){
	"wrong_key": func(w *world) { w.write(w.mr.Addr(), w.mr.RKey()^0x1100, 8) },
	"too_far":   func(w *world) { m := w.other(w.pd, all); w.write(m.Addr()+page-6, m.RKey(), 64) },
	"no_right":  func(w *world) { m := w.other(w.pd, ib.RemoteRead); w.write(m.Addr(), m.RKey(), 8) },
	"other_pd":  func(w *world) { m := w.other(must(w.dev.AllocPD()), all); w.write(m.Addr(), m.RKey(), 8) },
	"deregistered": func(w *world) {
		m := w.other(w.pd, all)
		addr, key := m.Addr(), m.RKey()
		check(m.Close())
		w.write(addr, key, 8)
	},
	"too_long": func(w *world) { w.send(ib.SendWR{Opcode: ib.WRSend, SGL: w.sge(0, 100)}) },
	"own_key": func(w *world) {
		sgl := w.sge(0, 8)
		sgl[0].LKey ^= 0x2200
		w.send(ib.SendWR{Opcode: ib.WRWrite, SGL: sgl, RemoteAddr: w.mr.Addr(), RKey: w.mr.RKey()})
	},
	"not_ready": func(w *world) {
		w.connectA(w.gid, 1)
		w.send(ib.SendWR{Opcode: ib.WRSend, SGL: w.sge(0, 8)})
	},
	"misaligned": func(w *world) {
		_, err := w.a.PostSend([]ib.SendWR{{Opcode: ib.WRFetchAdd, SGL: w.sge(8, 8), RemoteAddr: w.mr.Addr() + 4,
			RKey: w.mr.RKey(), Compare: 1}})
		fmt.Println("refused:", err)
		w.lost = true
	},
	"cq_full": func(w *world) {
		w.cqA = must(w.dev.CreateCQ(ib.CQInit{Entries: 1}))
		w.connectA(w.gid, 7)
		for range depth {
			w.write(w.mr.Addr(), w.mr.RKey(), 8)
		}
		for must(w.a.Query()).State != ib.StateErr {
			time.Sleep(time.Millisecond)
		}
		w.lost = true
	},
	"silence": func(w *world) {
		w.closeB()
		w.write(w.mr.Addr(), w.mr.RKey(), 8)
	},
	"port_closed": func(w *world) {
		w.connectA(ib.GIDFromAddr(w.closed), 7)
		w.closeB()
		w.write(w.mr.Addr(), w.mr.RKey(), 8)
	},
}

func main() {
	w := &world{}
	if len(os.Args) > 2 {
		w.closed = must(netip.ParseAddr(os.Args[2]))
	}
	w.open()
	cases[os.Args[1]](w)
	for !w.lost {
		wc, err := ib.WaitOne(context.Background(), w.cqA)
		if err == nil {
			continue
		}
		failed, _, _ := w.a.Failure()
		fmt.Printf("%v: %v\n", wc.Status, failed.Cause)
		break
	}
	var numB ib.QPN
	if w.b != nil {
		numB = w.b.Num()
	}
	fmt.Printf("qp %d %d\n", w.a.Num(), numB)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// open makes all that there is, and posts a receive of 10 bytes.
func (w *world) open() {
	dev, err := client.Dial(context.Background(), client.Options{})
	check(err)
	w.dev, w.pd = dev, must(dev.AllocPD())
	w.buf = must(client.Alloc(4 * page))
	w.mr = must(w.pd.RegMR(ib.MRInit{Buf: w.buf, Access: all}))
	w.cqA, w.cqB = must(dev.CreateCQ(ib.CQInit{Entries: 64})), must(dev.CreateCQ(ib.CQInit{Entries: 64}))
	w.gid = must(dev.GIDs(1))[0].GID
	w.b = w.makeQP(w.cqB)
	w.connectA(w.gid, 7)
	_, err = w.b.PostRecv([]ib.RecvWR{{SGL: w.sge(0, 10)}})
	check(err)
}

func (w *world) makeQP(cq ib.CQ) ib.QP {
	return must(w.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq,
		Cap: ib.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1}}))
}

// connectA makes a, with a peer at an address. If there was one before, its peer b is new, too, and has no receive.
func (w *world) connectA(gid ib.GID, rnrRetry uint8) {
	if w.a != nil {
		check(w.a.Close())
		check(w.b.Close())
		w.b = w.makeQP(w.cqB)
	}
	w.a = w.makeQP(w.cqA)
	attr := ib.QPAttr{Port: 1, Access: all, PathMTU: ib.MTU1024, MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 7, RNRRetry: rnrRetry}
	for _, end := range []struct {
		qp, peer ib.QP
		gid      ib.GID
	}{{w.a, w.b, gid}, {w.b, w.a, w.gid}} {
		attr.AH, attr.DestQPN = ib.AHAttr{DGID: end.gid}, end.peer.Num()
		check(ib.ModifyTo(end.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
	}
}

func (w *world) closeB() {
	check(w.b.Close())
	w.b = nil
}

// other registers a page in a protection domain.
func (w *world) other(pd ib.PD, access ib.Access) ib.MR {
	return must(pd.RegMR(ib.MRInit{Buf: w.buf[2*page : 3*page], Access: access}))
}

func (w *world) sge(off, n int) []ib.SGE {
	return []ib.SGE{{Addr: w.mr.Addr() + uint64(off), Length: uint32(n), LKey: w.mr.LKey()}}
}

func (w *world) write(addr uint64, key ib.Key, n int) {
	w.send(ib.SendWR{Opcode: ib.WRWrite, SGL: w.sge(0, n), RemoteAddr: addr, RKey: key})
}

func (w *world) send(wr ib.SendWR) {
	wr.Flags |= ib.SendSignaled
	_, err := w.a.PostSend([]ib.SendWR{wr})
	check(err)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "whygo:", err)
		os.Exit(1)
	}
}
