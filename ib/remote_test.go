package ib_test

import (
	"encoding"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
)

var (
	_ encoding.BinaryMarshaler   = ib.RemoteBuffer{}
	_ encoding.BinaryAppender    = ib.RemoteBuffer{}
	_ encoding.BinaryUnmarshaler = (*ib.RemoteBuffer)(nil)
)

func TestRemoteBuffer(t *testing.T) {
	want := ib.RemoteBuffer{Addr: 0x0102030405060708, RKey: 0x090A0B0C, Length: 0x11223344}
	p, err := want.MarshalBinary()
	head := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	if err != nil || len(p) != ib.RemoteBufferLen || !slices.Equal(p[:12], head) {
		t.Fatalf("% x, %v; want %d bytes that begin with % x", p, err, ib.RemoteBufferLen, head)
	}
	var got ib.RemoteBuffer
	if err := got.UnmarshalBinary(append(p, make([]byte, 36)...)); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestRemoteBufferRefused: what comes from a peer may be anything.
func TestRemoteBufferRefused(t *testing.T) {
	encode := func(b ib.RemoteBuffer) []byte { p, _ := b.MarshalBinary(); return p }
	for name, p := range map[string][]byte{
		"nothing":       nil,
		"too short":     make([]byte, ib.RemoteBufferLen-1),
		"no length":     make([]byte, 56),
		"wraps around":  encode(ib.RemoteBuffer{Addr: math.MaxUint64 - 9, Length: 11}),
		"too long":      encode(ib.RemoteBuffer{Length: math.MaxInt64 + 1}),
		"longer by far": encode(ib.RemoteBuffer{Length: math.MaxUint64}),
	} {
		var attr *ib.AttrError
		b := ib.RemoteBuffer{Addr: 1}
		if err := b.UnmarshalBinary(p); !errors.Is(err, ib.ErrInvalid) || !errors.As(err, &attr) || b.Addr != 1 {
			t.Errorf("%s: %v, %+v; want %v by an attribute, and the buffer as it was", name, err, b, ib.ErrInvalid)
		}
	}
	last := ib.RemoteBuffer{Addr: math.MaxUint64 - 9, Length: 10}
	if err := new(ib.RemoteBuffer).UnmarshalBinary(encode(last)); err != nil {
		t.Errorf("up to the end of the address space: %v", err)
	}
}
