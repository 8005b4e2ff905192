package rawsock

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Offsets in a frame, and what stands there.
const (
	offEtherType = 12
	offIP        = 14

	offVersion4 = offIP
	offFrag4    = offIP + 6
	offProto4   = offIP + 9
	offDst4     = offIP + 16
	offPort4    = offIP + 20 + 2

	offProto6 = offIP + 6
	offDst6   = offIP + 24
	offPort6  = offIP + 40 + 2

	plainIPv4 = 0x45   // version 4, no options
	fragment  = 0x3FFF // more fragments, or not the first
)

const acceptAll = 1 << 18 // bytes of a frame that pass: more than it has

// ours accepts RoCEv2 packets to the given addresses: a classic BPF program over
// a frame from its Ethernet header on. An IPv4 packet with options or in fragments
// is none.
func ours(local []ib.GID) []bpf.Instruction {
	v4, v6 := ours4(local), ours6(local)
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offEtherType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(v4))},
	}
	p = append(p, v4...)
	p = append(p, // the accumulator still holds the EtherType
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 1},
		bpf.RetConstant{Val: 0})
	return append(p, v6...)
}

// require goes on if what stands at off is val, and rejects the frame otherwise.
func require(off uint32, size int, val uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: off, Size: size},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: val, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

func ours4(local []ib.GID) []bpf.Instruction {
	p := require(offVersion4, 1, plainIPv4)
	p = append(p, require(offProto4, 1, unix.IPPROTO_UDP)...)
	p = append(p, require(offPort4, 2, link.Port)...)
	p = append(p,
		bpf.LoadAbsolute{Off: offFrag4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: fragment, SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadAbsolute{Off: offDst4, Size: 4})
	for i := range local {
		if local[i].Is4() {
			p = append(p,
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(local[i][12:]), SkipFalse: 1},
				bpf.RetConstant{Val: acceptAll})
		}
	}
	return append(p, bpf.RetConstant{Val: 0})
}

func ours6(local []ib.GID) []bpf.Instruction {
	p := require(offProto6, 1, unix.IPPROTO_UDP)
	p = append(p, require(offPort6, 2, link.Port)...)
	for i := range local {
		if local[i].Is4() {
			continue
		}
		for w := range 4 { // two instructions a word, and one to accept
			p = append(p,
				bpf.LoadAbsolute{Off: uint32(offDst6 + 4*w), Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(local[i][4*w:]), SkipFalse: uint8(2*(3-w) + 1)})
		}
		p = append(p, bpf.RetConstant{Val: acceptAll})
	}
	return append(p, bpf.RetConstant{Val: 0})
}

// forThisHost rejects frames that the interface only overheard, and those of a
// VLAN, whose tag the kernel has moved from the frame to its metadata. VLAN 0 is
// no VLAN but a priority.
func forThisHost() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_HOST, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3},
		bpf.LoadExtension{Num: bpf.ExtVLANTag},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xFFF, SkipFalse: 1},
		bpf.RetConstant{Val: 0},
	}
}

// attach makes a socket drop what the program rejects.
func attach(fd int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assemble filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("attach filter of %d instructions: %w", len(filter), err)
	}
	return nil
}
