package perf

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The bare ring loop sends packets from one AF_XDP socket to another as fast as the rings accept them, without reading
// their contents.

// Lengths of headers.
const (
	ethLen = 14
	ipLen  = 20
	udpLen = 8
)

// ringSend fills the TX ring with the same packet.
func ringSend(j *Job, p *peer) (Result, error) {
	itf, s, err := openRing(j)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	mac, err := swap(p, itf.HardwareAddr)
	if err != nil {
		return Result{}, err
	}
	for i := range chunks {
		putPacket(s.chunk(i)[:j.Size], j, itf.HardwareAddr, mac)
	}
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	free := chunks
	for next := 0; !p.ended.Load(); {
		for s.completion.take() != nil {
			free++
		}
		for ; free > 0; free-- {
			slot := s.tx.give()
			if slot == nil {
				break
			}
			*slot = unix.XDPDesc{Addr: uint64(next * chunkLen), Len: uint32(j.Size)}
			next = (next + 1) % chunks
		}
		s.tx.publish()
		s.completion.publish()
		if err := s.kick(); err != nil {
			return Result{}, err
		}
		m.add(0)
	}
	p.finish()
	return m.result(), nil
}

// ringReceive counts packets.
func ringReceive(j *Job, p *peer) (Result, error) {
	itf, s, err := openRing(j)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	program, err := redirect(itf.Index, s.fd)
	if err != nil {
		return Result{}, &SkipError{err.Error()}
	}
	defer program.Close()
	for i := range chunks {
		*s.fill.give() = uint64(i * chunkLen)
	}
	s.fill.publish()
	if _, err := swap(p, itf.HardwareAddr); err != nil {
		return Result{}, err
	}
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	busy := time.Now()
	for !m.done && !p.ended.Load() {
		n := 0
		for d := s.rx.take(); d != nil; d = s.rx.take() {
			*s.fill.give() = d.Addr &^ (chunkLen - 1)
			n++
		}
		s.rx.publish()
		s.fill.publish()
		m.add(n)
		switch now := time.Now(); {
		case n > 0:
			busy = now
		case now.Sub(busy) > loopSpin:
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 1)
		}
	}
	p.finish()
	return m.result().of(j.Size, 1), nil
}

// openRing opens a socket on the job's interface. If it cannot be opened, the row is skipped.
func openRing(j *Job) (*net.Interface, *xsk, error) {
	itf, err := net.InterfaceByName(j.NetIf)
	if err != nil {
		return nil, nil, err
	}
	s, err := newXSK(itf.Index)
	if err != nil {
		return nil, nil, &SkipError{err.Error()}
	}
	return itf, s, nil
}

// putPacket writes the headers of a UDP packet without a checksum.
func putPacket(b []byte, j *Job, src, dst net.HardwareAddr) {
	copy(b, dst)
	copy(b[6:], src)
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
	ip := b[ethLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], j.Self.AsSlice())
	copy(ip[16:], j.Peer.AsSlice())
	sum := uint32(0)
	for i := 0; i < ipLen; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum&0xFFFF + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	udp := ip[ipLen:]
	binary.BigEndian.PutUint16(udp, loopPort)
	binary.BigEndian.PutUint16(udp[2:], loopPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
}

// redirect attaches a program that redirects UDP packets over IPv4 from the interface to the socket, until the link is
// closed or this process ends.
func redirect(ifIndex, fd int) (link.Link, error) {
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make a map of sockets: %w", err)
	}
	defer sockets.Close() // the program has a reference
	if err := sockets.Put(uint32(0), uint32(fd)); err != nil {
		return nil, fmt.Errorf("put the socket into a map: %w", err)
	}
	const pass = "pass"
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		// struct xdp_md: data, data_end.
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, ethLen+ipLen+udpLen),
		asm.JGT.Reg(asm.R4, asm.R3, pass),
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.JNE.Imm(asm.R4, unix.ETH_P_IP, pass),
		asm.LoadMem(asm.R4, asm.R2, ethLen+9, asm.Byte),
		asm.JNE.Imm(asm.R4, unix.IPPROTO_UDP, pass),
		asm.LoadMapPtr(asm.R1, sockets.FD()),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, xdpPass), // if the socket is closed
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol(pass),
		asm.Return(),
	}})
	if err != nil {
		return nil, fmt.Errorf("load the XDP program: %w", err)
	}
	defer program.Close() // the link has a reference
	l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: ifIndex, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("attach the XDP program in native mode: %w", err)
	}
	return l, nil
}

// xdpPass is XDP_PASS of linux/bpf.h.
const xdpPass = 2
