package main

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/goroce/goroce/tests/linktest"
)

// TestCalls: a call is answered; a stream ends when the client cancels it or its deadline passes, and the server hears
// of one of them at least.
func TestCalls(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ready, served, ended := make(chan string, 1), make(chan error, 1), make(chan error, 4)
	serving, stop := context.WithCancel(ctx)
	streams := grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
		next grpc.StreamHandler) error {
		err := next(srv, s) // the handler waits for a change, or for the end of its context
		ended <- s.Context().Err()
		return err
	})
	go func() {
		served <- serve(serving, linktest.Loopback().String()+":0", func(a string) { ready <- a }, streams)
	}()
	cm, closeAll, err := open(linktest.Loopback().String())
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	var addr string
	select {
	case addr = <-ready:
	case err := <-served:
		t.Fatal(err)
	}
	client, closeConn, err := newClient(cm, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn()
	answer, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil || answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("check: %v, %v; want %v", answer, err, grpc_health_v1.HealthCheckResponse_SERVING)
	}

	cancelled, end := context.WithCancel(ctx)
	short, endShort := context.WithTimeout(ctx, 100*time.Millisecond)
	defer endShort()
	for _, c := range []struct {
		ctx  context.Context
		end  func()
		want codes.Code
	}{{cancelled, end, codes.Canceled}, {short, func() {}, codes.DeadlineExceeded}} {
		stream, err := client.Watch(c.ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			if _, err = stream.Recv(); err == nil {
				c.end()
				_, err = stream.Recv()
			}
		}
		if status.Code(err) != c.want {
			t.Errorf("the client's end: %v, want %v", err, c.want)
		}
	}
	select {
	case err := <-ended: // the deadline may have passed before the server had heard of its stream
		if err == nil {
			t.Error("the handler ended by itself")
		}
	case <-ctx.Done():
		t.Error("the handler never hears that its client gave up")
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
