package host_test

import (
	"log"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
)

// Open a device on this machine's network and make a queue pair.
func ExampleOpen() {
	dev, err := host.Open(host.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.RemoteWrite})
	if err != nil {
		log.Fatal(err)
	}
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 64})
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq, Cap: ib.QPCap{MaxSendWR: 64, MaxSendSGE: 1}})
	if err != nil {
		log.Fatal(err)
	}
	// Tell the peer qp.Num(), mr.Addr() and mr.RKey(), take the QP to RTS with
	// what the peer tells (qp.Modify), post with qp.PostSend, look with cq.Poll.
	log.Print(qp.Num(), mr.Addr(), mr.RKey())
}
