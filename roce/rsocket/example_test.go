package rsocket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/tests/linktest"
)

// Serve net/http over RDMA, and ask it something.
func Example() {
	ctx := context.Background()
	addr := linktest.Loopback() // an address of this host; 192.0.2.1 in real life
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{addr}})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cm.Close()

	// The server: a Listener is a net.Listener.
	l, err := rsocket.Listen(ctx, cm, net.JoinHostPort(addr.String(), "8080"), rsocket.Options{})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s? Yes.", question)
	})}
	served := make(chan error)
	go func() { served <- server.Serve(l) }()

	// The client: a Dialer's method is what http.Transport takes. Here it is the
	// same device, so that the example runs anywhere.
	dialer := rsocket.Dialer{CM: cm}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	resp, err := client.Post("http://"+l.Addr().String(), "text/plain", strings.NewReader("HTTP over RDMA"))
	if err != nil {
		log.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status, string(answer))

	client.CloseIdleConnections()
	server.Close()
	fmt.Println(errors.Is(<-served, http.ErrServerClosed))
	// Output:
	// 200 OK HTTP over RDMA? Yes.
	// true
}
