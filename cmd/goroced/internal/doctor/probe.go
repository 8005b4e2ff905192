package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// probeWait is how long a probe may take to arrive. The kernel delivers it at once, unless it passes received packets
// to other processors (RPS).
const probeWait = 200 * time.Millisecond

// peerArrives finds out, with a packet, whether packets of the peer reach UDP port 4791 at all local addresses of the
// peer's IP version. asked is false if that cannot be found out: there is no peer, the interface is down, it has no
// address of the peer's version, or there is no way to probe.
func (e *env) peerArrives() (arrives, asked bool) {
	if !e.Peer.IsValid() || !e.netif.up || e.netif.loopback || e.ownAddress(e.Peer) {
		return false, false
	}
	arrives = true
	for _, a := range e.usable {
		if a.Is4() != e.Peer.Is4() {
			continue
		}
		one, err := e.probe(e.netif.name, a, e.Peer)
		if err != nil {
			return false, false
		}
		arrives, asked = arrives && one, true
	}
	return arrives, asked
}

func (e *env) ownAddress(a netip.Addr) bool {
	for i := range e.all {
		if slices.Contains(e.all[i].Addrs, a) {
			return true
		}
	}
	return slices.Contains(e.usable, a)
}

// probePort makes the kernel receive a UDP packet on an interface as if the peer had sent it, and reports whether it
// reaches a socket at port 4791 of local. It leaves nothing behind: an XDP program that passes everything is run once,
// on that packet, without being attached (BPF_F_TEST_XDP_LIVE_FRAMES). Errors: the port is taken, the kernel is older
// than 5.18 or cannot do this on the interface, CAP_BPF or CAP_NET_ADMIN is missing.
func probePort(netifName string, local, peer netip.Addr) (arrived bool, err error) {
	netif, err := net.InterfaceByName(netifName)
	if err != nil {
		return false, err
	}
	if len(netif.HardwareAddr) != 6 {
		return false, fmt.Errorf("%s is no Ethernet interface: %w", netifName, errors.ErrUnsupported)
	}
	socket, err := listenProbe(netip.AddrPortFrom(local, link.Port))
	if err != nil {
		return false, err
	}
	defer socket.Close()
	token := make([]byte, 16) // no RoCEv2 packet is as short as that
	rand.Read(token)
	if err := injectProbe(netif, local, peer, token); err != nil {
		return false, err
	}
	_ = socket.SetReadDeadline(time.Now().Add(probeWait))
	for buf := make([]byte, len(token)+1); ; {
		n, _, err := socket.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if bytes.Equal(buf[:n], token) {
			return true, nil
		}
	}
}

// listenProbe opens a UDP socket. The probe has no UDP checksum, as RoCEv2 packets; IPv6 sockets drop such packets by
// default.
func listenProbe(at netip.AddrPort) (net.PacketConn, error) {
	allow := func(_, _ string, c syscall.RawConn) (err error) {
		if at.Addr().Is4() {
			return nil
		}
		if cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1)
		}); cerr != nil {
			return cerr
		}
		return err
	}
	return (&net.ListenConfig{Control: allow}).ListenPacket(context.Background(), "udp", at.String())
}

// injectProbe makes the kernel receive a packet.
func injectProbe(netif *net.Interface, local, peer netip.Addr, payload []byte) error {
	const pass, liveFrames = 2, 2 // XDP_PASS, BPF_F_TEST_XDP_LIVE_FRAMES
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()}})
	if err != nil {
		return err
	}
	defer prog.Close()
	f := wire.Frame{EtherDst: [6]byte(netif.HardwareAddr), EtherSrc: [6]byte{0x02}, Outer: wire.Outer{
		Src: ib.GIDFromAddr(peer), Dst: ib.GIDFromAddr(local), SrcPort: 0xC000, DstPort: link.Port, HopLimit: 64}}
	frame := append(f.AppendHeaders(nil, len(payload)), payload...)
	// struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
	md := [6]uint32{1: uint32(len(frame)), 3: uint32(netif.Index)}
	_, err = prog.Run(&ebpf.RunOptions{Data: frame, Context: md, Repeat: 1, Flags: liveFrames})
	return err
}
