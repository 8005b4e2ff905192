package main

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
)

func TestWrite(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := netip.AddrPortFrom(linktest.Loopback(), 7471)
	served := make(chan error, 1)
	var got string
	go func() { served <- serve(ctx, at, func(text []byte) { got = string(text) }) }()
	// Until the server listens, its host has no device or rejects the request.
	for write(ctx, linktest.Loopback(), at.String(), []byte("RDMA anywhere")) != nil && ctx.Err() == nil {
	}
	if err := <-served; err != nil || got != "RDMA anywhere" {
		t.Errorf("%q, %v; want RDMA anywhere", got, err)
	}
}

// TestInterrupted: the server ends when it is told to, also while a client is connected.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	serving, interrupt := context.WithCancel(ctx)
	defer interrupt()
	at := netip.AddrPortFrom(linktest.Loopback(), 7471)
	served := make(chan error, 1)
	go func() { served <- serve(serving, at, func([]byte) {}) }()
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{linktest.Loopback()}})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cm.Close()
	conn, err := cm.Dial(ctx, at.String(), rdmacm.Config{})
	for err != nil && ctx.Err() == nil { // until the server listens
		conn, err = cm.Dial(ctx, at.String(), rdmacm.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	var offer ib.RemoteBuffer
	if err := offer.UnmarshalBinary(conn.PrivateData()); err != nil {
		t.Fatal(err)
	}
	mem, err := conn.Memory(offer)
	for i := range 100 { // meanwhile the server learns of the connection
		if err == nil {
			_, err = mem.WriteAt(ctx, []byte("RDMA"), int64(i%8))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	interrupt()
	select {
	case err = <-served:
	case <-ctx.Done():
		t.Fatal("the server goes on")
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the server: %v, want %v", err, context.Canceled)
	}
}
