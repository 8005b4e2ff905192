package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
)

// server receives one file and sends what came of it.
func server(t *testing.T, ctx context.Context) (addr string, ended <-chan error, data *[]byte) {
	t.Helper()
	ready, done := make(chan string, 1), make(chan error, 1)
	data = new([]byte)
	go func() {
		var err error
		at := netip.AddrPortFrom(linktest.Loopback(), 0).String()
		*data, err = receive(ctx, at, func(addr string) { ready <- addr })
		done <- err
	}()
	select {
	case addr = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	return addr, done, data
}

// file returns an open file of n bytes.
func file(t *testing.T, n int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(n); err != nil { // maxFile takes no room on the disk
		t.Fatal(err)
	}
	return f
}

func TestCopy(t *testing.T) {
	for _, size := range []int64{0, 1, piece + 5, 3*piece + 1000} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		f, want := file(t, size), make([]byte, size)
		for i := range want {
			want[i] = byte(rand.Uint32())
		}
		if _, err := f.WriteAt(want, 0); err != nil {
			t.Fatal(err)
		}
		addr, ended, got := server(t, ctx)
		last := int64(0)
		err := send(ctx, linktest.Loopback().String(), addr, f, func(done, _ int64) { last = done })
		if err := errors.Join(err, <-ended); err != nil || last != size || !bytes.Equal(*got, want) {
			t.Errorf("%d bytes: %v, %d sent; want all of them", size, err, last)
		}
		cancel()
	}
}

// TestTooLong: the server refuses, and both ends say why.
func TestTooLong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr, ended, _ := server(t, ctx)
	err := send(ctx, linktest.Loopback().String(), addr, file(t, maxFile+1), nil)
	var refused *rdmacm.RejectError
	if !errors.As(err, &refused) || !bytes.HasPrefix(refused.PrivateData, []byte("too long")) || <-ended == nil {
		t.Errorf("%v, want that it is too long", err)
	}
}

// TestInterrupted: the sender stops in the middle, and the receiver does not take what has come for the file.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sending, stop := context.WithCancel(ctx)
	defer stop()
	addr, ended, got := server(t, ctx)
	err := send(sending, linktest.Loopback().String(), addr, file(t, 8*piece), func(int64, int64) { stop() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the sender: %v, want %v", err, context.Canceled)
	}
	if err := <-ended; !errors.Is(err, rdmacm.ErrDisconnected) || *got != nil {
		t.Errorf("the receiver: %v, %d bytes; want %v, nothing", err, len(*got), rdmacm.ErrDisconnected)
	}
}
