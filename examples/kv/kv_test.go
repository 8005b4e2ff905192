package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/linktest"
)

// start runs a server, and returns its address.
func start(t testing.TB, slots int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- serve(ctx, netip.AddrPortFrom(linktest.Loopback(), 0), slots, func(addr string) { ready <- addr })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	select {
	case addr := <-ready:
		return addr
	case err := <-served:
		served <- err
		t.Fatal(err)
	}
	return ""
}

func open(t testing.TB, addr string) *client {
	t.Helper()
	c, err := dial(t.Context(), linktest.Loopback(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func TestStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := open(t, start(t, 1<<10))
	if _, err := c.get(ctx, "colour"); !errors.Is(err, errNotFound) {
		t.Errorf("before put: %v, want %v", err, errNotFound)
	}
	for _, value := range []string{"green", "", "blue"} {
		if err := c.put(ctx, "colour", []byte(value)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.get(ctx, "colour"); err != nil || string(got) != value {
			t.Errorf("%q, %v; want %q", got, err, value)
		}
	}
	if err := c.put(ctx, "long", make([]byte, slotLen)); err == nil {
		t.Error("a value that does not fit was taken")
	}
}

// TestClients: clients that share nothing but the server's memory put the same keys, and each value that is read is
// one that was written, whole.
func TestClients(t *testing.T) {
	const clients, rounds = 3, 30
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr := start(t, probes) // all keys meet in a few slots
	var done sync.WaitGroup
	for id := range clients {
		c := open(t, addr)
		done.Go(func() {
			for n := range rounds {
				key := fmt.Sprint("key ", n%3)
				if err := c.put(ctx, key, fmt.Appendf(nil, "%060d of %s", id, key)); err != nil {
					t.Error(err)
					return
				}
				var writer int
				got, err := c.get(ctx, key)
				_, bad := fmt.Sscanf(string(got), "%060d of "+key, &writer)
				if err != nil || bad != nil || writer >= clients {
					t.Errorf("%s is %q, %v, %v; want it of one of %d writers", key, got, err, bad, clients)
					return
				}
			}
		})
	}
	done.Wait()
}

// TestFull: a table without a free slot says so.
func TestFull(t *testing.T) {
	c := open(t, start(t, 2))
	var err error
	for i := 0; err == nil && i < 3; i++ {
		err = c.put(t.Context(), fmt.Sprint(i), nil)
	}
	if !errors.Is(err, errFull) {
		t.Errorf("%v, want %v", err, errFull)
	}
}

// BenchmarkGet looks up a key by RDMA READ, and by a request to a server over TCP, on loopback.
func BenchmarkGet(b *testing.B) {
	value := make([]byte, 64)
	b.Run("RDMA", func(b *testing.B) {
		c := open(b, start(b, 1<<10))
		if err := c.put(b.Context(), "key", value); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := c.get(b.Context(), "key"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("TCP", func(b *testing.B) {
		get := overTCP(b, map[string][]byte{"key": value})
		for b.Loop() {
			if _, err := get("key"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// overTCP starts a store that answers each key with its value, both behind their length, and returns a client's get.
func overTCP(b *testing.B, table map[string][]byte) (get func(key string) ([]byte, error)) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for key, err := receive(r); err == nil; key, err = receive(r) {
			if _, err = conn.Write(frame(table[string(key)])); err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	r := bufio.NewReader(conn)
	return func(key string) ([]byte, error) {
		if _, err := conn.Write(frame([]byte(key))); err != nil {
			return nil, err
		}
		return receive(r)
	}
}

func frame(p []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...) }

func receive(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	p := make([]byte, binary.BigEndian.Uint16(head[:]))
	_, err := io.ReadFull(r, p)
	return p, err
}
