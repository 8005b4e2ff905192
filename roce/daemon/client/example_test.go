package client_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
)

// This program uses a device of the daemon. Its queue pair is connected to itself, so that it
// needs no peer: it writes from one half of its memory to the other.
func Example() {
	socket, stop := daemon() // normally `goroced serve` runs, and Options may be empty
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	dev, err := client.Dial(ctx, client.Options{Socket: socket})
	check(err)
	defer dev.Close()
	pd, err := dev.AllocPD()
	check(err)
	buf, err := client.Alloc(4096) // memory that the daemon maps
	check(err)
	defer client.Free(buf)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.RemoteWrite})
	check(err)
	defer mr.Close() // before the memory is freed
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 16})
	check(err)
	qp, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq, Cap: ib.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	check(err)
	gids, err := dev.GIDs(1)
	check(err)
	connect(qp, gids[0].GID, qp.Num())

	n := copy(buf, "through the daemon")
	_, err = qp.PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled,
		SGL:        []ib.SGE{mr.SGE(0, n)},
		RemoteAddr: mr.Addr() + 2048, RKey: mr.RKey()}})
	check(err)
	wc, err := ib.WaitOne(ctx, cq)
	check(err)
	fmt.Printf("%v: %s\n", wc.Status, buf[2048:2048+n])
	// Output: success: through the daemon
}

// connect takes a QP to INIT, RTR (ready to receive) and RTS (ready to send).
func connect(qp ib.QP, peer ib.GID, num ib.QPN) {
	a := ib.QPAttr{Port: 1, Access: ib.RemoteWrite, AH: ib.AHAttr{DGID: peer}, DestQPN: num, PathMTU: ib.MTU1024,
		MinRNRTimer: 12, Timeout: 19, RetryCnt: 7, RNRRetry: 7}
	check(ib.ModifyTo(qp, a, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

// daemon serves a device on loopback, and returns the socket and a function that ends it.
func daemon() (socket string, stop func()) {
	dev, err := host.Open(host.Options{Link: "udp", Addrs: []netip.Addr{linktest.Loopback()}})
	check(err)
	s, err := server.New([]roce.Device{dev}, server.Options{})
	check(err)
	dir, err := os.MkdirTemp("", "goroce")
	check(err)
	socket = filepath.Join(dir, "socket")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: socket})
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- s.Serve(ctx, l) }()
	return socket, func() {
		cancel()
		check(<-served)
		check(dev.Close())
		check(s.Close())
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
