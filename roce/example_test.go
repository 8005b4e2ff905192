package roce_test

import (
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// Two devices on a network in memory, in virtual time: they do nothing between calls of Step,
// so the same program sends the same packets at the same times, each time it runs.
func Example() {
	network := mem.NewNetwork()
	var devs [2]roce.Device
	var qps [2]ib.QP
	var cqs [2]ib.CQ
	var mrs [2]ib.MR
	bufs := [2][]byte{[]byte("written by RDMA"), make([]byte, 15)}
	gids := [2]ib.GID{ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1")),
		ib.GIDFromAddr(netip.MustParseAddr("192.0.2.2"))}
	for i := range devs {
		dev, err := roce.Open(wrap.Seal(network.Open([]ib.GID{gids[i]}, mem.Options{})),
			roce.Options{Manual: true, Seed: 1})
		check(err)
		defer dev.Close()
		pd, err := dev.AllocPD()
		check(err)
		mrs[i], err = pd.RegMR(ib.MRInit{Buf: bufs[i], Access: ib.LocalWrite | ib.RemoteWrite})
		check(err)
		cqs[i], err = dev.CreateCQ(ib.CQInit{Entries: 16})
		check(err)
		qps[i], err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cqs[i], RecvCQ: cqs[i],
			Cap: ib.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
		check(err)
		devs[i] = dev
	}
	toRTS(qps[0], gids[1], qps[1].Num())
	toRTS(qps[1], gids[0], qps[0].Num())

	_, err := qps[0].PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled,
		SGL:        []ib.SGE{mrs[0].SGE(0, 15)},
		RemoteAddr: mrs[1].Addr(), RKey: mrs[1].RKey()}})
	check(err)
	wcs := make([]ib.WC, 1)
	for now := ib.Instant(0); now < ib.Instant(time.Second); now += ib.Instant(time.Microsecond) {
		for devs[0].Step(now) || devs[1].Step(now) {
		}
		if n, err := cqs[0].Poll(wcs); n == 1 || err != nil {
			check(err)
			break
		}
	}
	fmt.Printf("%v: %s\n", wcs[0].Status, bufs[1])
	// Output: success: written by RDMA
}

// toRTS connects a QP with that of a peer: INIT, RTR (ready to receive), RTS (ready to send).
func toRTS(qp ib.QP, peer ib.GID, num ib.QPN) {
	a := ib.QPAttr{Port: 1, Access: ib.RemoteWrite, AH: ib.AHAttr{DGID: peer}, DestQPN: num, PathMTU: ib.MTU1024,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7}
	check(ib.ModifyTo(qp, a, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
