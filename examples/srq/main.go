// Srq is a receiver for many senders, with one pool of buffers for all of them, that sleeps while nothing comes.
//
//	go run ./examples/srq -listen 127.0.0.1:7471
//	go run ./examples/srq -from 127.0.0.2 127.0.0.1:7471 "one message" "another"
//
// It shows a shared receive queue: the receiver's memory grows with the messages that may be under way, not with the
// number of connections. One CQ serves all connections, and one loop over ib.Completions is the whole event loop. A
// sender that is faster than the receiver is held back by RNR NAKs, and none of its messages is lost.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
)

const (
	buffers = 32 // for all senders
	maxLen  = 256
)

const usage = "usage: srq -listen ADDR:PORT\n" +
	"       srq [-from ADDR] ADDR:PORT TEXT...\n"

func main() {
	listen := flag.String("listen", "", "receive at this address and port")
	from := flag.String("from", "127.0.0.2", "address of this host to connect from")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *listen == "" && flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *listen != "" {
		err = receive(ctx, *listen, nil, func(_ ib.QPN, text string) { fmt.Println(text) })
	} else {
		err = send(ctx, *from, flag.Arg(0), flag.Args()[min(1, flag.NArg()):])
	}
	if err != nil {
		log.Fatal(err)
	}
}

func open(addr string) (dev ib.Device, cm *rdmacm.CM, err error) {
	at, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, nil, err
	}
	if dev, err = host.Open(host.Options{Addrs: []netip.Addr{at}}); err != nil {
		return nil, nil, err
	}
	if cm, err = rdmacm.Open(dev, rdmacm.Options{}); err != nil {
		dev.Close()
	}
	return dev, cm, err
}

// receive calls got for each message of all senders, with the queue pair that it came on, until ctx ends. ready, if not
// nil, is called with the address when senders may connect.
func receive(ctx context.Context, listen string, ready func(string), got func(ib.QPN, string)) error {
	at, err := netip.ParseAddrPort(listen)
	if err != nil {
		return err
	}
	dev, cm, err := open(at.Addr().String())
	if err != nil {
		return err
	}
	defer dev.Close()
	defer cm.Close()
	p, err := newPool(dev)
	if err != nil {
		return err
	}
	l, err := cm.Listen(ctx, listen, rdmacm.ListenConfig{Config: rdmacm.Config{PD: p.pd, SRQ: p.srq, RecvCQ: p.cq}})
	if err != nil {
		return err
	}
	if ready != nil {
		ready(l.Addr().String())
	}
	go func() {
		for {
			conn, err := l.Accept(ctx)
			if err != nil {
				return
			}
			go func() {
				<-conn.Done()
				conn.Close()
			}()
		}
	}()
	for wc, err := range ib.Completions(ctx, p.cq) {
		if err != nil {
			return err
		}
		got(wc.QPN, string(p.buf[wc.ID*maxLen:][:wc.ByteLen]))
		if err := p.post(wc.ID); err != nil {
			return err
		}
	}
	return nil
}

// pool is the buffers that all connections receive into.
type pool struct {
	pd  ib.PD
	cq  ib.CQ
	srq ib.SRQ
	buf []byte
	mr  ib.MR
}

func newPool(dev ib.Device) (p *pool, err error) {
	p = &pool{buf: ib.Alloc(dev, buffers*maxLen)}
	if p.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if p.cq, err = dev.CreateCQ(ib.CQInit{Entries: buffers}); err != nil {
		return nil, err
	}
	if p.srq, err = p.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: buffers, MaxSGE: 1}}); err != nil {
		return nil, err
	}
	if p.mr, err = p.pd.RegMR(ib.MRInit{Buf: p.buf, Access: ib.LocalWrite}); err != nil {
		return nil, err
	}
	for id := range uint64(buffers) {
		if err := p.post(id); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// post gives a buffer to the SRQ. Its number is the ID of the completion.
func (p *pool) post(id uint64) error {
	_, err := p.srq.PostRecv([]ib.RecvWR{{ID: id, SGL: []ib.SGE{p.mr.SGE(int(id)*maxLen, maxLen)}}})
	return err
}

// send sends messages, each when the one before has arrived.
func send(ctx context.Context, from, addr string, messages []string) error {
	dev, cm, err := open(from)
	if err != nil {
		return err
	}
	defer dev.Close()
	defer cm.Close()
	conn, err := cm.Dial(ctx, addr, rdmacm.Config{Cap: ib.QPCap{MaxSendWR: 1, MaxInline: maxLen}})
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, m := range messages {
		wr := ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, Inline: []byte(m)}
		if _, err := conn.QP().PostSend([]ib.SendWR{wr}); err != nil {
			return err // says so if the message is too long
		}
		if _, err := ib.WaitOne(ctx, conn.SendCQ()); err != nil {
			return err
		}
	}
	return nil
}
