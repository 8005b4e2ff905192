// Grpc is a gRPC server and a client, over RDMA.
//
//	cd examples/grpc
//	go run . -listen 127.0.0.1:50051
//	go run . -from 127.0.0.2 127.0.0.1:50051
//
// It shows that gRPC takes rsocket's listener and dialer as they are, and that deadlines and cancellation of calls
// reach the other end. The service is gRPC's own health check, so that nothing has to be generated: one call that is
// answered, and a stream that goes on until the client gives up.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
)

const usage = "usage: grpc -listen ADDR:PORT\n" +
	"       grpc [-from ADDR] ADDR:PORT\n"

func main() {
	listen := flag.String("listen", "", "serve at this address and port")
	from := flag.String("from", "127.0.0.2", "address of this host to connect from")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *listen == "" && flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *listen != "" {
		err = serve(ctx, *listen, nil)
	} else {
		err = watch(ctx, *from, flag.Arg(0))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// open opens a device on an address of this host, and its connection manager.
func open(addr string) (cm *rdmacm.CM, closeAll func(), err error) {
	at, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, nil, err
	}
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{at}})
	if err != nil {
		return nil, nil, err
	}
	if cm, err = rdmacm.Open(dev, rdmacm.Options{}); err != nil {
		dev.Close()
		return nil, nil, err
	}
	return cm, func() { cm.Close(); dev.Close() }, nil
}

// serve answers health checks until ctx ends. ready, if not nil, is called with the address when clients may connect.
func serve(ctx context.Context, addr string, ready func(addr string), o ...grpc.ServerOption) error {
	at, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	cm, closeAll, err := open(at)
	if err != nil {
		return err
	}
	defer closeAll()
	l, err := rsocket.Listen(ctx, cm, addr, rsocket.Options{}) // a net.Listener
	if err != nil {
		return err
	}
	server := grpc.NewServer(o...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if ready != nil {
		ready(l.Addr().String())
	}
	return server.Serve(l)
}

// newClient returns a client of the health service whose connections go over RDMA.
func newClient(cm *rdmacm.CM, addr string) (grpc_health_v1.HealthClient, func() error, error) {
	dialer := rsocket.Dialer{CM: cm}
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return nil, nil, err
	}
	return grpc_health_v1.NewHealthClient(conn), conn.Close, nil
}

// watch asks once, with a deadline, and then prints each change until ctx ends.
func watch(ctx context.Context, from, addr string) error {
	cm, closeAll, err := open(from)
	if err != nil {
		return err
	}
	defer closeAll()
	client, closeConn, err := newClient(cm, addr)
	if err != nil {
		return err
	}
	defer closeConn()
	once, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := client.Check(once, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	fmt.Println("check:", answer.Status)
	stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	for err == nil {
		if answer, err = stream.Recv(); err == nil {
			fmt.Println("watch:", answer.Status)
		}
	}
	return err
}
