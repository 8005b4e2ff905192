// Write is the smallest program that moves data by RDMA: one host offers memory, another one writes to it.
//
//	go run ./examples/write -listen 192.0.2.1:7471                                # on host 192.0.2.1
//	go run ./examples/write -from 192.0.2.2 192.0.2.1:7471 "RDMA anywhere"        # on host 192.0.2.2
//
// On one machine, any two addresses of loopback do: 127.0.0.1 and 127.0.0.2.
//
// It shows how to register memory and to tell the peer where it is (ib.RemoteBuffer, in the private data of the
// connection), how to connect by address (rdmacm), and that a WRITE needs nothing from the program it writes to: the
// server only waits until the client is gone, and then looks.
package main

import (
	"bytes"
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

const usage = "usage: write -listen ADDR:PORT\n" +
	"       write [-from ADDR] ADDR:PORT TEXT\n"

func main() {
	listen := flag.String("listen", "", "offer memory at this address and port")
	from := flag.String("from", "127.0.0.2", "address of this host to connect from")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *listen == "" && flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *listen != "" {
		at, err := netip.ParseAddrPort(*listen)
		if err == nil {
			err = serve(ctx, at, func(text []byte) { fmt.Printf("%s\n", text) })
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	addr, err := netip.ParseAddr(*from)
	if err == nil {
		err = write(ctx, addr, flag.Arg(0), []byte(flag.Arg(1)))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve offers memory to one client, and calls got with what it has written.
func serve(ctx context.Context, at netip.AddrPort, got func([]byte)) error {
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{at.Addr()}})
	if err != nil {
		return err
	}
	defer dev.Close()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		return err
	}
	defer cm.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	buf := make([]byte, 64)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.RemoteWrite})
	if err != nil {
		return err
	}
	offer, _ := ib.RemoteBufferOf(mr).MarshalBinary()
	l, err := cm.Listen(ctx, at.String(), rdmacm.ListenConfig{
		Config: rdmacm.Config{PD: pd, Access: ib.RemoteWrite, PrivateData: offer}})
	if err != nil {
		return err
	}
	conn, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	select {
	case <-conn.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	got(bytes.TrimRight(buf, "\x00"))
	return nil
}

// write connects to a server and writes text into its memory.
func write(ctx context.Context, from netip.Addr, to string, text []byte) error {
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{from}})
	if err != nil {
		return err
	}
	defer dev.Close()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		return err
	}
	defer cm.Close()
	conn, err := cm.Dial(ctx, to, rdmacm.Config{})
	if err != nil {
		return err
	}
	defer conn.Close()
	var offer ib.RemoteBuffer
	if err := offer.UnmarshalBinary(conn.PrivateData()); err != nil {
		return err
	}
	mem, err := conn.Memory(offer)
	if err != nil {
		return err
	}
	_, err = mem.WriteAt(ctx, text, 0)
	return err
}
