package main

import (
	"context"
	"net/netip"
	"testing"
	"time"

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
		t.Errorf("%q, %v", got, err)
	}
}
