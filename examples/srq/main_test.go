package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/linktest"
)

// TestSenders: more messages than there are buffers, from several senders: all arrive, each sender's in order.
func TestSenders(t *testing.T) {
	const senders, each = 3, 30
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receiving, stop := context.WithCancel(ctx)
	ready, ended, sent := make(chan string, 1), make(chan error, 1), make(chan error, senders)
	next, left := map[ib.QPN]int{}, senders*each
	go func() {
		at := netip.AddrPortFrom(linktest.Loopback(), 0).String()
		ended <- receive(receiving, at, func(a string) { ready <- a }, func(from ib.QPN, text string) {
			if want := fmt.Sprint("message ", next[from]); text != want {
				t.Errorf("QP %#x: %q, want %q", from, text, want)
			}
			next[from]++
			if left--; left == 0 {
				stop()
			}
		})
	}()
	var addr string
	select {
	case addr = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	var messages []string
	for i := range each {
		messages = append(messages, fmt.Sprint("message ", i))
	}
	for range senders {
		go func() { sent <- send(ctx, linktest.Loopback().String(), addr, messages) }()
	}
	if err := <-ended; !errors.Is(err, context.Canceled) || left != 0 || len(next) != senders {
		t.Errorf("%v, %d messages are missing, %d senders; want %v, none, %d", err, left, len(next), context.Canceled,
			senders)
	}
	for range senders {
		// The receiver leaves as soon as it has the last message, perhaps before its acknowledgement is there.
		if err := <-sent; err != nil && !errors.Is(err, &ib.WCError{Status: ib.WCWRFlushErr}) {
			t.Error(err)
		}
	}
}
