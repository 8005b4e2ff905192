package afxdp

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

func v4(last byte) ib.GID { return ib.GID{10: 0xFF, 11: 0xFF, 12: 200, 15: last} }

func v6(last byte) ib.GID { return ib.GID{0: 0xFD, 7: last, 15: last} }

var testMAC = [6]byte{2, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE}

// loadFor returns the program for two addresses of either version and an MTU of 1500,
// on no interface, with a socket for queue 0.
func loadFor(t *testing.T, generic bool) *program {
	t.Helper()
	require.Root(t)
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := &program{sockets: sockets}
	t.Cleanup(p.close)
	f := filter{netif: neigh.NetIf{MTU: 1500, MAC: testMAC}, local: []ib.GID{v4(1), v6(1), v4(2), v6(2)},
		queues: 1, generic: generic}
	if err := p.load(&f); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_RX_RING, 64); err != nil {
		t.Fatal(err)
	}
	if err := p.serve(0, fd); err != nil {
		t.Fatal(err)
	}
	return p
}

// redirects reports whether the program redirects the frame, or passes it.
func redirects(t *testing.T, p *program, frame []byte) bool {
	t.Helper()
	const xdpRedirect = 4
	ret, err := p.prog.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatal(err)
	}
	if ret != xdpRedirect && ret != xdpPass {
		t.Fatalf("the program returns %d, want %d or %d", ret, xdpRedirect, xdpPass)
	}
	return ret == xdpRedirect
}

// pseudoSum writes the UDP checksum that a sender leaves for the hardware to finish.
func pseudoSum(addrs, udp int) func([]byte) {
	return func(b []byte) {
		sum := uint32(unix.IPPROTO_UDP) + uint32(binary.BigEndian.Uint16(b[udp+4:]))
		for at := addrs; at < udp; at += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[at:]))
		}
		for sum > 0xFFFF {
			sum = sum>>16 + sum&0xFFFF
		}
		binary.BigEndian.PutUint16(b[udp+6:], uint16(sum))
	}
}

func TestProgram(t *testing.T) {
	unfinished4, unfinished6 := pseudoSum(26, 34), pseudoSum(22, 54)
	plus := func(f func([]byte), at int) func([]byte) {
		return func(b []byte) { f(b); b[at]++ }
	}
	length := func(at int, n uint16) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint16(b[at:], n) }
	}
	const native, generic, both, neither = 1, 2, 3, 0
	tests := []struct {
		name   string
		dst    ib.GID
		vlan   bool
		change func([]byte)
		ours   int // in which mode
	}{
		{"IPv4", v4(1), false, nil, both},
		{"IPv4, second address", v4(2), false, nil, both},
		{"IPv4, other address", v4(3), false, nil, neither},
		{"IPv6", v6(1), false, nil, both},
		{"IPv6, second address", v6(2), false, nil, both},
		{"IPv6, other address", v6(3), false, nil, neither},
		{"IPv6, mixture of two addresses", v6(1), false, func(b []byte) { b[14+24+15] = 2 }, neither},
		{"IPv4, other port", v4(1), false, func(b []byte) { b[14+20+3]++ }, neither},
		{"IPv6, other port", v6(1), false, func(b []byte) { b[14+40+3]++ }, neither},
		{"IPv4, TCP", v4(1), false, func(b []byte) { b[14+9] = 6 }, neither},
		{"IPv6, TCP", v6(1), false, func(b []byte) { b[14+6] = 6 }, neither},
		{"IPv4, options", v4(1), false, func(b []byte) { b[14] = 0x46 }, neither},
		{"IPv4, first fragment", v4(1), false, func(b []byte) { b[14+6] |= 0x20 }, neither},
		{"IPv4, later fragment", v4(1), false, func(b []byte) { b[14+7] = 1 }, neither},
		{"IPv4, DF off", v4(1), false, func(b []byte) { b[14+6] = 0 }, both},
		{"VLAN", v4(1), true, nil, neither},
		{"ARP", v4(1), false, func(b []byte) { b[12], b[13] = 8, 6 }, neither},
		{"other host", v4(1), false, func(b []byte) { b[0] = 4 }, neither},
		{"other host, last byte", v6(1), false, func(b []byte) { b[5]++ }, neither},
		{"IPv4, longest", v4(1), false, length(14+2, 1500), both},
		{"IPv4, several frames", v4(1), false, length(14+2, 1501), neither},
		{"IPv6, longest", v6(1), false, length(14+4, 1460), both},
		{"IPv6, several frames", v6(1), false, length(14+4, 1461), neither},
		{"IPv4, unfinished checksum", v4(1), false, unfinished4, native},
		{"IPv4, finished checksum", v4(1), false, plus(unfinished4, 34+7), both},
		{"IPv6, unfinished checksum", v6(1), false, unfinished6, native},
		{"IPv6, finished checksum", v6(1), false, plus(unfinished6, 54+6), both},
	}
	for mode, p := range map[int]*program{native: loadFor(t, false), generic: loadFor(t, true)} {
		for _, tt := range tests {
			f := wire.Frame{EtherDst: testMAC, HasVLAN: tt.vlan,
				Outer: wire.Outer{Src: tt.dst, Dst: tt.dst, SrcPort: 0xFEDC, DstPort: link.Port}}
			b := append(f.AppendHeaders(nil, 64), make([]byte, 64)...)
			if tt.change != nil {
				tt.change(b)
			}
			want := tt.ours&mode != 0
			if got := redirects(t, p, b); got != want {
				t.Errorf("generic %v, %s: redirected %v, want %v", mode == generic, tt.name, got, want)
			}
			headers := wire.EtherLen + f.Outer.Len()
			for short := wire.EtherLen; short < headers; short++ {
				if redirects(t, p, b[:short]) {
					t.Errorf("%s: redirected when cut to %d bytes", tt.name, short)
				}
			}
		}
	}
}

// What comes by a queue without a socket passes.
func TestProgramWithoutSocket(t *testing.T) {
	p := loadFor(t, false)
	f := wire.Frame{EtherDst: testMAC, Outer: wire.Outer{Src: v4(1), Dst: v4(1), DstPort: link.Port}}
	frame := append(f.AppendHeaders(nil, 64), make([]byte, 64)...)
	if !redirects(t, p, frame) {
		t.Error("not redirected though there is a socket")
	}
	if err := p.sockets.Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	if redirects(t, p, frame) {
		t.Error("redirected to a queue without a socket")
	}
}

func TestLayout(t *testing.T) {
	for _, tt := range []struct {
		mtu     int
		several bool
		want    layout
	}{
		{1500, true, layout{2048, 1500, false}},
		{1778, true, layout{2048, 1778, false}},
		{1779, true, layout{4096, 1779, false}},
		{3826, true, layout{4096, 3826, false}},
		{3827, true, layout{4096, 3827, true}},
		{9000, true, layout{4096, 9000, true}},
		{9000, false, layout{4096, 3826, false}},
		{65535, true, layout{4096, 11506, true}},
	} {
		if got := layoutFor(tt.mtu, tt.several); got != tt.want {
			t.Errorf("MTU %d, several chunks %v: %+v, want %+v", tt.mtu, tt.several, got, tt.want)
		}
	}
}

// Every chunk belongs to one queue, to receive to or to send from.
func TestChunks(t *testing.T) {
	for queues, rx := range map[int]int{1: 2048, 4: 2048, 5: 1024, 16: 512, 64: 512} {
		u := share(queues, 2048)
		if u.rx != rx || u.tx != rx/2 {
			t.Errorf("%d queues: %d chunks to receive to and %d to send from, want %d and %d", queues, u.rx, u.tx, rx,
				rx/2)
		}
		seen := map[uint64]bool{}
		for q := range queues {
			for _, addr := range append(u.rxChunks(q), u.txChunks(q)...) {
				if addr%2048 != 0 || addr+2048 > uint64(queues*(u.rx+u.tx)*2048) || seen[addr] {
					t.Fatalf("%d queues: queue %d has chunk %#x, want one of its own in %#x bytes", queues, q, addr,
						queues*(u.rx+u.tx)*2048)
				}
				seen[addr] = true
			}
		}
	}
}
