package rdmacm_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
)

// The smallest WRITE between two hosts. The server's program does nothing while its memory is written.
func ExampleConn_Memory() {
	ctx, at := context.Background(), linktest.Loopback() // 192.0.2.1 in real life

	// One host offers 64 bytes of memory to whoever connects.
	server := try(host.Open(host.Options{Addrs: []netip.Addr{at}}))
	defer server.Close()
	buf, pd := make([]byte, 64), try(server.AllocPD())
	mr := try(pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.RemoteWrite}))
	offer := try(ib.RemoteBufferOf(mr).MarshalBinary())
	l := try(try(rdmacm.Open(server, rdmacm.Options{})).Listen(ctx, netip.AddrPortFrom(at, 0).String(),
		rdmacm.ListenConfig{Config: rdmacm.Config{PD: pd, Access: ib.RemoteWrite, PrivateData: offer}}))
	go l.Accept(ctx)

	// The other one connects and writes.
	client := try(host.Open(host.Options{Addrs: []netip.Addr{linktest.Loopback()}}))
	defer client.Close()
	conn := try(try(rdmacm.Open(client, rdmacm.Options{})).Dial(ctx, l.Addr().String(), rdmacm.Config{}))
	var there ib.RemoteBuffer
	check(there.UnmarshalBinary(conn.PrivateData()))
	n := try(try(conn.Memory(there)).WriteAt(ctx, []byte("RDMA anywhere"), 0))

	fmt.Printf("%d bytes: %s\n", n, bytes.TrimRight(buf, "\x00"))
	// Output: 13 bytes: RDMA anywhere
}

func try[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
