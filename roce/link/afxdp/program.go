package afxdp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
	"github.com/goroce/goroce/wire"
)

// Offsets in a frame, and values of its fields.
const (
	offEtherType = 12
	offIP        = wire.EtherLen

	offLen4   = offIP + 2
	offFrag4  = offIP + 6
	offProto4 = offIP + 9
	offSrc4   = offIP + 12
	offDst4   = offIP + 16
	offUDP4   = offIP + wire.IPv4Len

	offLen6  = offIP + 4
	offNext6 = offIP + 6
	offSrc6  = offIP + 8
	offDst6  = offIP + 24
	offUDP6  = offIP + wire.IPv6Len

	plainIPv4 = 0x45   // version 4, no options
	fragment  = 0x3FFF // more fragments follow, or it is not the first
)

// Offsets in struct xdp_md (linux/bpf.h).
const (
	mdData    = 0
	mdDataEnd = 4
	mdQueue   = 16
)

// Registers of the program.
const (
	rCtx   = asm.R6
	rData  = asm.R7
	rEnd   = asm.R8
	rSum   = asm.R9
	rField = asm.R3
	rCheck = asm.R4
)

const (
	toKernel = "pass"
	toSocket = "ours"
)

// program is the XDP program on an interface.
type program struct {
	sockets *ebpf.Map // by receive queue
	prog    *ebpf.Program
	hook    bpflink.Link
	layout  layout // of the frames that it redirects
}

// filter says which frames are redirected to the sockets.
type filter struct {
	netif   neigh.NetIf
	local   []ib.GID
	queues  int
	several bool // sockets accept frames of several chunks
	generic bool // the program sees what the stack sees, not what the driver receives
}

// newProgram attaches the program to the interface, in the driver or at the start of the stack.
func newProgram(f *filter) (*program, error) {
	p := &program{}
	var err error
	p.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Name: "goroce_sockets", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4,
		MaxEntries: uint32(f.queues)})
	if err != nil {
		return nil, refused(f.netif.Name, "make the map of sockets", err)
	}
	if err := p.load(f); err != nil {
		p.close()
		return nil, refused(f.netif.Name, "load the XDP program", err)
	}
	mode := bpflink.XDPDriverMode
	if f.generic {
		mode = bpflink.XDPGenericMode
	}
	// The attachment is a file descriptor, so it ends with the process in any case.
	p.hook, err = bpflink.AttachXDP(bpflink.XDPOptions{Program: p.prog, Interface: f.netif.Index, Flags: mode})
	if err != nil {
		p.close()
		return nil, refused(f.netif.Name, "attach the XDP program", err)
	}
	return p, nil
}

// load loads the program into the kernel, which verifies it. The program sees frames in several fragments only if the
// sockets accept such frames.
func (p *program) load(f *filter) error {
	p.layout = layoutFor(f.netif.MTU, f.several)
	spec := ebpf.ProgramSpec{Name: "goroce_rocev2", Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: f.assemble(p.sockets.FD(), p.layout.mtu)}
	if f.several {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	var err error
	p.prog, err = ebpf.NewProgram(&spec)
	return err
}

// replace replaces the program on the interface by one for another filter with the same queues. Each packet is handled
// by one of the two.
func (p *program) replace(f *filter) error {
	old := p.prog
	err := p.load(f)
	if err == nil {
		if err = p.hook.Update(p.prog); err == nil {
			return old.Close()
		}
		_ = p.prog.Close()
	}
	p.prog = old
	return refused(f.netif.Name, "replace the XDP program", err)
}

// serve redirects the frames of a receive queue to a socket.
func (p *program) serve(queue, fd int) error {
	if err := p.sockets.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("hand queue %d to its socket: %w", queue, err)
	}
	return nil
}

// close detaches the program from the interface.
func (p *program) close() {
	if p.hook != nil {
		_ = p.hook.Close()
	}
	if p.prog != nil {
		_ = p.prog.Close()
	}
	_ = p.sockets.Close()
}

// assemble returns the program. It redirects RoCEv2 packets to our addresses and MAC address to the socket of their
// queue. It passes everything else to the kernel, and everything that arrives by a queue without a socket; that
// includes IPv4 packets with options or in fragments, and frames with a VLAN tag. It also passes what may be several
// frames merged into one, because only the packet socket gets to know the frame size. That is a packet longer than the
// MTU and, in generic mode, one with an incomplete UDP checksum, which has not left the machine. A driver that runs XDP
// itself does not get such packets (veth disables the segmentation offload of its other end).
func (f *filter) assemble(sockets, mtu int) asm.Instructions {
	return slices.Concat(
		asm.Instructions{
			asm.Mov.Reg(rCtx, asm.R1),
			asm.LoadMem(rData, rCtx, mdData, asm.Word),
			asm.LoadMem(rEnd, rCtx, mdDataEnd, asm.Word),
		},
		needs(offUDP4+wire.UDPLen),
		asm.Instructions{
			asm.LoadMem(rField, rData, 0, asm.Word),
			asm.JNE.Imm32(rField, word(f.netif.MAC[:4]), toKernel),
			asm.LoadMem(rField, rData, 4, asm.Half),
			asm.JNE.Imm(rField, half(f.netif.MAC[4:]), toKernel),
			asm.LoadMem(rField, rData, offEtherType, asm.Half),
			asm.JEq.Imm(rField, net16(unix.ETH_P_IPV6), "IPv6"),
			asm.JNE.Imm(rField, net16(unix.ETH_P_IP), toKernel),
			asm.LoadMem(rField, rData, offIP, asm.Byte),
			asm.JNE.Imm(rField, plainIPv4, toKernel),
			asm.LoadMem(rField, rData, offFrag4, asm.Half),
			asm.JSet.Imm(rField, net16(fragment), toKernel),
		},
		isRoCE(offProto4, offUDP4),
		notLonger(offLen4, mtu),
		f.finished(offSrc4, 2, offUDP4),
		f.to4(),
		asm.Instructions{asm.Mov.Imm(rField, 0).WithSymbol("IPv6")},
		needs(offUDP6+wire.UDPLen),
		isRoCE(offNext6, offUDP6),
		notLonger(offLen6, mtu-wire.IPv6Len),
		f.finished(offSrc6, 8, offUDP6),
		f.to6(),
		asm.Instructions{
			asm.LoadMem(asm.R2, rCtx, mdQueue, asm.Word).WithSymbol(toSocket),
			asm.LoadMapPtr(asm.R1, sockets),
			asm.Mov.Imm(asm.R3, xdpPass), // if the queue has no socket
			asm.FnRedirectMap.Call(),
			asm.Return(),
			asm.Mov.Imm(asm.R0, xdpPass).WithSymbol(toKernel),
			asm.Return(),
		})
}

const xdpPass = 2 // XDP_PASS

// needs passes frames whose first fragment has less than n bytes to the kernel.
func needs(n int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(rField, rData),
		asm.Add.Imm(rField, n),
		asm.JGT.Reg(rField, rEnd, toKernel),
	}
}

// isRoCE passes packets that are not UDP to port 4791 to the kernel.
func isRoCE(offProto, offUDP int16) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(rField, rData, offProto, asm.Byte),
		asm.JNE.Imm(rField, unix.IPPROTO_UDP, toKernel),
		asm.LoadMem(rField, rData, offUDP+2, asm.Half),
		asm.JNE.Imm(rField, net16(link.Port), toKernel),
	}
}

// notLonger passes packets to the kernel whose length field is greater than most.
func notLonger(offLen int16, most int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(rField, rData, offLen, asm.Half),
		asm.HostTo(asm.BE, rField, asm.Half),
		asm.JGT.Imm(rField, int32(most), toKernel),
	}
}

// finished passes packets to the kernel whose UDP checksum is only the sum of the pseudo header, with addresses of
// words*4 bytes: the sender has left the rest of the sum to the hardware. A complete checksum has that value in 1 of
// 65536 packets. One's complement sums do not depend on the byte order (RFC 1071).
func (f *filter) finished(offAddrs int16, words int, offUDP int16) asm.Instructions {
	if !f.generic {
		return nil
	}
	known := fmt.Sprintf("finished %d", offUDP)
	p := asm.Instructions{
		asm.LoadMem(rCheck, rData, offUDP+6, asm.Half),
		asm.JEq.Imm(rCheck, 0, known), // no checksum
		asm.LoadMem(rSum, rData, offUDP+4, asm.Half),
		asm.Add.Imm(rSum, net16(unix.IPPROTO_UDP)),
	}
	for i := range words {
		p = append(p, asm.LoadMem(rField, rData, offAddrs+4*int16(i), asm.Word), asm.Add.Reg(rSum, rField))
	}
	for _, bits := range []int32{32, 16, 16, 16} {
		p = append(p,
			asm.Mov.Reg(rField, rSum),
			asm.RSh.Imm(rField, bits),
			asm.LSh.Imm(rSum, 64-bits),
			asm.RSh.Imm(rSum, 64-bits),
			asm.Add.Reg(rSum, rField))
	}
	return append(p,
		asm.JEq.Reg(rSum, rCheck, toKernel),
		asm.Mov.Imm(rField, 0).WithSymbol(known))
}

// to4 redirects packets to the IPv4 addresses and passes others to the kernel.
func (f *filter) to4() asm.Instructions {
	p := asm.Instructions{asm.LoadMem(rField, rData, offDst4, asm.Word)}
	for i := range f.local {
		if f.local[i].Is4() {
			p = append(p, asm.JEq.Imm32(rField, word(f.local[i][12:]), toSocket))
		}
	}
	return append(p, asm.Ja.Label(toKernel))
}

// to6 redirects packets to the IPv6 addresses and passes others to the kernel.
func (f *filter) to6() (p asm.Instructions) {
	for i := range f.local {
		if f.local[i].Is4() {
			continue
		}
		other := fmt.Sprintf("not address %d", i)
		for w := range 4 {
			p = append(p,
				asm.LoadMem(rField, rData, offDst6+4*int16(w), asm.Word),
				asm.JNE.Imm32(rField, word(f.local[i][4*w:]), other))
		}
		p = append(p, asm.Ja.Label(toSocket), asm.Mov.Imm(rField, 0).WithSymbol(other))
	}
	return append(p, asm.Ja.Label(toKernel))
}

// word returns the value of 4 bytes of a frame as the program loads it.
func word(b []byte) int32 { return int32(binary.NativeEndian.Uint32(b)) }

// half returns the value of 2 bytes of a frame as the program loads it.
func half(b []byte) int32 { return int32(binary.NativeEndian.Uint16(b)) }

// net16 returns the value of a number in network byte order as the program loads it.
func net16(v uint16) int32 { return half(binary.BigEndian.AppendUint16(nil, v)) }
