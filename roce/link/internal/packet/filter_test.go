package packet

import (
	"testing"

	"golang.org/x/net/bpf"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

func v4(last byte) ib.GID { return ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: last} }

func v6(last byte) ib.GID { return ib.GID{0: 0xFD, 7: last, 15: last} }

// All groups are accepted, and nothing else.
func TestGroupFilter(t *testing.T) {
	vm, err := bpf.NewVM(toGroups())
	if err != nil {
		t.Fatal(err)
	}
	for dst, accept := range map[ib.GID]bool{
		{10: 0xFF, 11: 0xFF, 12: 224, 15: 1}:                     true,
		{10: 0xFF, 11: 0xFF, 12: 239, 13: 255, 14: 255, 15: 255}: true,
		{10: 0xFF, 11: 0xFF, 12: 223, 13: 255, 14: 255, 15: 255}: false,
		{10: 0xFF, 11: 0xFF, 12: 240}:                            false,
		{0: 0xFF, 1: 0x02, 15: 1}:                                true,
		{0: 0xFE, 1: 0x80, 15: 1}:                                false,
		{0: 0x20, 1: 0x01, 12: 224, 15: 1}:                       false,
	} {
		f := wire.Frame{Outer: wire.Outer{Src: dst, Dst: dst, DstPort: link.Port}}
		b := append(f.AppendHeaders(nil, 64), make([]byte, 64)...)
		if n, err := vm.Run(b); err != nil || (n > 0) != accept {
			t.Errorf("%v: %d bytes accepted, %v; want accepted %v", dst.Addr(), n, err, accept)
		}
		b[12+2+9], b[12+2+6] = 6, 6 // TCP of either version
		if n, _ := vm.Run(b); n > 0 {
			t.Errorf("%v: TCP is accepted, want it refused", dst.Addr())
		}
	}
}

func TestFilter(t *testing.T) {
	vm, err := bpf.NewVM(ours([]ib.GID{v4(1), v6(1), v4(2), v6(2)}))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		dst    ib.GID
		vlan   bool
		change func([]byte)
		accept bool
	}{
		{"IPv4", v4(1), false, nil, true},
		{"IPv4, second address", v4(2), false, nil, true},
		{"IPv4, other address", v4(3), false, nil, false},
		{"IPv6", v6(1), false, nil, true},
		{"IPv6, second address", v6(2), false, nil, true},
		{"IPv6, other address", v6(3), false, nil, false},
		{"IPv6, mixture of two addresses", v6(1), false, func(b []byte) { b[14+24+15] = 2 }, false},
		{"IPv4, other port", v4(1), false, func(b []byte) { b[14+20+3]++ }, false},
		{"IPv6, other port", v6(1), false, func(b []byte) { b[14+40+3]++ }, false},
		{"IPv4, TCP", v4(1), false, func(b []byte) { b[14+9] = 6 }, false},
		{"IPv6, TCP", v6(1), false, func(b []byte) { b[14+6] = 6 }, false},
		{"IPv4, options", v4(1), false, func(b []byte) { b[14] = 0x46 }, false},
		{"IPv4, first fragment", v4(1), false, func(b []byte) { b[14+6] |= 0x20 }, false},
		{"IPv4, later fragment", v4(1), false, func(b []byte) { b[14+7] = 1 }, false},
		{"IPv4, DF off", v4(1), false, func(b []byte) { b[14+6] = 0 }, true},
		{"tag not stripped", v4(1), true, nil, false},
		{"ARP", v4(1), false, func(b []byte) { b[12], b[13] = 8, 6 }, false},
	}
	for _, tt := range tests {
		f := wire.Frame{HasVLAN: tt.vlan, Outer: wire.Outer{Src: tt.dst, Dst: tt.dst, DstPort: link.Port}}
		b := append(f.AppendHeaders(nil, 64), make([]byte, 64)...)
		if tt.change != nil {
			tt.change(b)
		}
		n, err := vm.Run(b)
		if err != nil || (n > 0) != tt.accept {
			t.Errorf("%s: %d bytes accepted, %v; want accepted %v", tt.name, n, err, tt.accept)
		}
		for short := range 14 + 20 + 4 { // no IP version's port lies before
			if n, _ := vm.Run(b[:short]); n > 0 && short < 14+24 {
				t.Errorf("%s: accepted when cut to %d bytes, want it refused", tt.name, short)
			}
		}
	}
	if _, err := bpf.NewVM(ours(nil)); err != nil {
		t.Errorf("no addresses: %v", err)
	}
}
