// Http is a web server and a client, over RDMA.
//
//	go run ./examples/http -listen 127.0.0.1:8080
//	go run ./examples/http -from 127.0.0.2 -timeout 2s http://127.0.0.1:8080/wait?for=1s
//
// It shows that rsocket's listener and connections are those of package net, so net/http takes them as they are, with
// keep-alive, deadlines and cancellation: a request whose context ends returns at once, and the handler at the other
// end sees its own context end, too. The wire protocol is that of librdmacm's rsockets.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
)

const usage = "usage: http -listen ADDR:PORT\n" +
	"       http [-from ADDR] URL\n"

func main() {
	listen := flag.String("listen", "", "serve at this address and port")
	from := flag.String("from", "127.0.0.2", "address of this host to connect from")
	timeout := flag.Duration("timeout", 10*time.Second, "of the request")
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
		err = serve(ctx, *listen)
	} else {
		err = get(ctx, *from, flag.Arg(0), *timeout)
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

func serve(ctx context.Context, addr string) error {
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
	server := &http.Server{Handler: handler(log.Printf)}
	context.AfterFunc(ctx, func() { server.Close() })
	return server.Serve(l)
}

// handler answers /wait?for=DURATION after that time, unless the client leaves before.
func handler(logf func(string, ...any)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /wait", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		logf("%s waits", r.RemoteAddr)
		select {
		case <-time.After(d):
			fmt.Fprintf(w, "waited %v\n", d)
		case <-r.Context().Done():
			logf("%s has left", r.RemoteAddr)
		}
	})
	return mux
}

// newClient returns a client whose connections go over RDMA.
func newClient(cm *rdmacm.CM) *http.Client {
	dialer := rsocket.Dialer{CM: cm}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
}

// get prints the answer to a request.
func get(ctx context.Context, from, url string, timeout time.Duration) error {
	cm, closeAll, err := open(from)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := newClient(cm).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
