package host_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
)

// Connect two queue pairs and write: a device for each end, on loopback, over UDP sockets and
// without privileges. Here both ends are in one program; in real life they tell each other
// their address, QP number, memory address and R_Key, or leave that to package rdmacm.
func Example() {
	a, b := open(make([]byte, 64)), open(make([]byte, 64))
	defer a.dev.Close()
	defer b.dev.Close()
	a.connect(b)
	b.connect(a)

	n := copy(a.buf, "RDMA anywhere")
	_, err := a.qp.PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled,
		SGL:        []ib.SGE{a.mr.SGE(0, n)},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}})
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wc, err := ib.WaitOne(ctx, a.cq) // fails unless the status is success
	check(err)
	fmt.Printf("%v: %s\n", wc.Status, b.buf[:n])
	// Output: success: RDMA anywhere
}

// end is a device with what a connection takes.
type end struct {
	addr netip.Addr
	buf  []byte
	dev  ib.Device
	cq   ib.CQ
	mr   ib.MR
	qp   ib.QP
}

func open(buf []byte) *end {
	e := &end{addr: linktest.Loopback(), buf: buf} // an address of this host; 192.0.2.1 in real life
	dev, err := host.Open(host.Options{Link: "udp", Addrs: []netip.Addr{e.addr}})
	check(err)
	e.dev = dev
	e.cq, err = dev.CreateCQ(ib.CQInit{Entries: 16})
	check(err)
	pd, err := dev.AllocPD()
	check(err)
	e.mr, err = pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.RemoteWrite})
	check(err)
	e.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: ib.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	check(err)
	return e
}

// connect takes e's QP to INIT, RTR (ready to receive) and RTS (ready to send).
func (e *end) connect(peer *end) {
	a := ib.QPAttr{Port: 1, Access: ib.RemoteWrite, AH: ib.AHAttr{DGID: ib.GIDFromAddr(peer.addr)},
		DestQPN: peer.qp.Num(), PathMTU: ib.MTU1024, MinRNRTimer: 12, Timeout: 19, RetryCnt: 7, RNRRetry: 7}
	check(ib.ModifyTo(e.qp, a, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
