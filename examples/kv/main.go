// Kv is a key-value store whose server does nothing but own the memory.
//
//	go run ./examples/kv -listen 127.0.0.1:7471
//	go run ./examples/kv -from 127.0.0.2 127.0.0.1:7471 put colour green
//	go run ./examples/kv -from 127.0.0.2 127.0.0.1:7471 get colour
//
// It shows one-sided READs for lookups, an atomic compare-and-swap in the server's memory as a lock between writers
// that know nothing of each other, and a checksum by which a reader notices that it has read while another client was
// writing (store.go). The server's program sleeps; its device serves the requests. kv_test.go has a benchmark beside a
// store over TCP:
//
//	go test ./examples/kv -bench .
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

const usage = "usage: kv -listen ADDR:PORT\n" +
	"       kv [-from ADDR] ADDR:PORT get KEY\n" +
	"       kv [-from ADDR] ADDR:PORT put KEY VALUE\n"

func main() {
	listen := flag.String("listen", "", "be the server, at this address and port")
	from := flag.String("from", "127.0.0.2", "address of this host to connect from")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *listen == "" && flag.NArg() < 3 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *from, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, from string, args []string) error {
	if listen != "" {
		at, err := netip.ParseAddrPort(listen)
		if err != nil {
			return err
		}
		return serve(ctx, at, 1<<16, nil)
	}
	addr, err := netip.ParseAddr(from)
	if err != nil {
		return err
	}
	if len(args) < 3 {
		return fmt.Errorf("arguments: ADDRESS:PORT get KEY, or ADDRESS:PORT put KEY VALUE")
	}
	c, err := dial(ctx, addr, args[0])
	if err != nil {
		return err
	}
	defer c.close()
	switch {
	case args[1] == "put" && len(args) == 4:
		return c.put(ctx, args[2], []byte(args[3]))
	case args[1] == "get" && len(args) == 3:
		value, err := c.get(ctx, args[2])
		if err == nil {
			fmt.Printf("%s\n", value)
		}
		return err
	}
	return fmt.Errorf("%q is neither get KEY nor put KEY VALUE", args[1:])
}

// serve offers a table with that many slots to all clients, until ctx ends. ready, if not nil, is called with the
// address when clients may connect.
func serve(ctx context.Context, at netip.AddrPort, slots int, ready func(addr string)) error {
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{at.Addr()}})
	if err != nil {
		return err
	}
	defer dev.Close() // closes all that is made below
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		return err
	}
	defer cm.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	access := ib.LocalWrite | ib.RemoteRead | ib.RemoteWrite | ib.RemoteAtomic
	mr, err := pd.RegMR(ib.MRInit{Buf: ib.Alloc(dev, slots*slotLen), Access: access})
	if err != nil {
		return err
	}
	offer, _ := ib.RemoteBufferOf(mr).MarshalBinary()
	l, err := cm.Listen(ctx, at.String(), rdmacm.ListenConfig{
		Config: rdmacm.Config{PD: pd, Access: access, PrivateData: offer}})
	if err != nil {
		return err
	}
	if ready != nil {
		ready(l.Addr().String())
	}
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		go func() {
			<-conn.Done()
			conn.Close()
		}()
	}
}

// client is a connection to a server.
type client struct {
	store
	close func()
}

func dial(ctx context.Context, from netip.Addr, to string) (_ *client, err error) {
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{from}})
	if err != nil {
		return nil, err
	}
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		dev.Close()
		return nil, err
	}
	c := &client{close: func() { cm.Close(); dev.Close() }}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	conn, err := cm.Dial(ctx, to, rdmacm.Config{})
	if err != nil {
		return nil, err
	}
	var offer ib.RemoteBuffer
	if err = offer.UnmarshalBinary(conn.PrivateData()); err != nil {
		return nil, err
	}
	if offer.Length < slotLen {
		return nil, fmt.Errorf("%s offers %d bytes, which is no table of %d-byte slots", to, offer.Length, slotLen)
	}
	c.mem, err = conn.Memory(offer)
	return c, err
}
