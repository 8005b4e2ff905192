// Command cmpeer implements the peers of librdmacm's example programs on package
// rdmacm. Tests run it against those programs:
//
//	cmpeer ucmatose --addr 10.77.0.1 [-c 5] [HOST]     ucmatose -s 10.77.0.1 -c 5
//	cmpeer udaddy --addr 10.77.0.1 [-c 2] [HOST]       udaddy -s 10.77.0.1 -c 2
//	cmpeer message --addr 10.77.0.1 [HOST]             rdma_client -s 10.77.0.1
//	cmpeer mckey --addr 10.77.0.1 [-s] 224.10.10.10    mckey -m 224.10.10.10 [-s]
//	cmpeer dial --addr 10.77.0.1 [--data TEXT] HOST
//	cmpeer reject --addr 10.77.0.1 [--data TEXT]
//	cmpeer churn --addr 10.77.0.1 -n 1000 [--at-once] [--hold] [HOST]
//
// With HOST it is the client. A server prints "listening" once it listens. At the end
// cmpeer prints "ok", or an error and exits with code 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
)

var commands struct {
	Ucmatose ucmatose `cmd:"" help:"Messages over several connections, as ucmatose."`
	Udaddy   udaddy   `cmd:"" help:"Datagrams to a service found by address, as udaddy."`
	Message  message  `cmd:"" help:"A message each way, as rdma_server and rdma_client."`
	Mckey    mckey    `cmd:"" help:"Datagrams to a multicast group, as mckey."`
	Dial     dial     `cmd:"" help:"Connect, and print what the peer says to it."`
	Reject   reject   `cmd:"" help:"Listen, and reject one request."`
	Churn    churn    `cmd:"" help:"Make and end many connections; fail if anything of them stays."`
}

func main() {
	cli := kong.Parse(&commands)
	if err := cli.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "cmpeer:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

// common are the flags of all subcommands.
type common struct {
	Addr    netip.Addr    `required:"" help:"Own address."`
	Link    string        `default:"udp" help:"udp or rawsock."`
	Timeout time.Duration `default:"30s" help:"Bounds all of it."`
}

// station is a device with its connection manager.
type station struct {
	context.Context
	dev  ib.Device
	cm   *rdmacm.CM
	pd   ib.PD
	addr netip.Addr
}

// with opens a station, calls use and closes the station. Closing its PD fails if a QP or
// a memory region is left.
func (c *common) with(use func(*station) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	s := &station{Context: ctx, addr: c.Addr}
	dev, err := host.Open(host.Options{Link: c.Link, Addrs: []netip.Addr{c.Addr}})
	if err != nil {
		return err
	}
	s.dev = dev
	defer func() { err = errors.Join(err, dev.Close()) }()
	if s.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if s.cm, err = rdmacm.Open(dev, rdmacm.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cm.Close()) }()
	if err := use(s); err != nil {
		return err
	}
	if err := s.pd.Close(); err != nil {
		return fmt.Errorf("left over: %w", err)
	}
	return nil
}

// at returns the address of a port of the host.
func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// listen listens and prints "listening".
func (s *station) listen(port int, service ib.QPType) (*rdmacm.Listener, error) {
	o := rdmacm.ListenConfig{Config: rdmacm.Config{Service: service}, Backlog: 1024}
	l, err := s.cm.Listen(s, at(s.addr.String(), port), o)
	if err == nil {
		fmt.Println("listening")
	}
	return l, err
}

// each runs n calls of f concurrently and returns their errors.
func each(n int, f func(i int) error) error {
	errs := make(chan error)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var all []error
	for range n {
		if err := <-errs; err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
