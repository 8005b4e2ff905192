package main

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestGroup: on a network in memory, which loses nothing, all members get each datagram, also the sender.
func TestGroup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	network := mem.NewNetwork()
	open := func(addr, group string) *member {
		l := network.Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr(addr))}, mem.Options{})
		dev, err := roce.Open(wrap.Seal(l), roce.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		m, err := join(ctx, dev, netip.MustParseAddr(group))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.close)
		return m
	}
	a, b := open("192.0.2.1", "239.1.2.3"), open("192.0.2.2", "239.1.2.3")
	other, sender := open("192.0.2.3", "239.9.9.9"), open("192.0.2.4", "239.1.2.3")
	texts := []string{"one", "two", "three"}
	for _, text := range texts {
		if err := sender.send(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	for name, m := range map[string]*member{"a": a, "b": b, "sender": sender} {
		receiving, stop := context.WithCancel(ctx)
		n := 0
		err := m.receive(receiving, func(from ib.QPN, text string) {
			if text != texts[n] || from != sender.qp.Num() {
				t.Errorf("%s: datagram %d is %q from QP %#x; want %q and %#x", name, n, text, from, texts[n],
					sender.qp.Num())
			}
			if n++; n == len(texts) {
				stop()
			}
		})
		if n != len(texts) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %d datagrams, %v; want %d and %v", name, n, err, len(texts), context.Canceled)
		}
	}
	if n, err := other.recvCQ.Poll(make([]ib.WC, 1)); n != 0 || err != nil {
		t.Errorf("a member of another group: %d datagrams, %v; want 0", n, err)
	}
}
