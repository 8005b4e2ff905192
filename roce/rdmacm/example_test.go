package rdmacm_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
)

// A server and a client, each with a device of its own on loopback. The client
// sends a message, over a connected queue pair.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, client := linktest.Loopback(), linktest.Loopback()
	listening := make(chan netip.AddrPort)
	received := make(chan string)
	go func() { received <- receive(ctx, server, listening) }()

	dev, err := host.Open(host.Options{Addrs: []netip.Addr{client}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cm.Close()
	conn, err := cm.Dial(ctx, (<-listening).String(), rdmacm.Config{
		Cap:         ib.QPCap{MaxSendWR: 1, MaxInline: 64},
		PrivateData: []byte("an example"),
	})
	if err != nil {
		fmt.Println(err) // says what got no answer, or why the peer refused
		return
	}
	defer conn.Close()
	if _, err := conn.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline,
		Inline: []byte("hello")}}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-received)
	<-conn.Done()
	fmt.Println("client:", conn.Err())
	// Output:
	// server: an example says hello
	// client: disconnected by the peer
}

// receive accepts a connection and returns what came over it.
func receive(ctx context.Context, addr netip.Addr, listening chan<- netip.AddrPort) string {
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{addr}})
	if err != nil {
		return err.Error()
	}
	defer dev.Close()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		return err.Error()
	}
	defer cm.Close()
	buf := make([]byte, 64)
	pd, err := dev.AllocPD()
	if err != nil {
		return err.Error()
	}
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite})
	if err != nil {
		return err.Error()
	}
	l, err := cm.Listen(ctx, netip.AddrPortFrom(addr, 0).String(), rdmacm.ListenConfig{Config: rdmacm.Config{
		PD: pd,
		Prepare: func(c *rdmacm.Conn) error { // the receive is there before the peer can send
			_, err := c.QP().PostRecv([]ib.RecvWR{{SGL: []ib.SGE{mr.SGE(0, 64)}}})
			return err
		},
	}})
	if err != nil {
		return err.Error()
	}
	listening <- l.Addr()
	conn, err := l.Accept(ctx)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	wc, err := ib.WaitOne(ctx, conn.RecvCQ())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("server: %.10s says %s", conn.PrivateData(), buf[:wc.ByteLen])
}
