package packet

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Offsets in a frame, and values of its fields.
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
	fragment  = 0x3FFF // more fragments follow, or it is not the first
)

const acceptAll = 1 << 18 // bytes of a frame that pass; more than any frame has

// ours accepts RoCEv2 packets to the given addresses.
func ours(local []ib.GID) []bpf.Instruction { return roce(to4(local), to6(local)) }

// toGroups accepts RoCEv2 packets to any multicast group. Whether the group is joined is checked later, because a
// filter has room for little more than a hundred groups.
func toGroups() []bpf.Instruction {
	return roce(
		[]bpf.Instruction{
			bpf.LoadAbsolute{Off: offDst4, Size: 1},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xF0},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0xE0, SkipFalse: 1}, // 224.0.0.0/4
			bpf.RetConstant{Val: acceptAll},
		},
		[]bpf.Instruction{
			bpf.LoadAbsolute{Off: offDst6, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0xFF, SkipFalse: 1}, // ff00::/8
			bpf.RetConstant{Val: acceptAll},
		})
}

// roce returns a classic BPF program for a frame from its Ethernet header on. It runs v4 or v6 on RoCEv2 packets over
// IPv4 or IPv6. What they do not accept is rejected, and so is everything else. IPv4 packets with options or in
// fragments are not RoCEv2.
func roce(v4, v6 []bpf.Instruction) []bpf.Instruction {
	v4 = slices.Concat(
		require(offVersion4, 1, plainIPv4),
		require(offProto4, 1, unix.IPPROTO_UDP),
		require(offPort4, 2, link.Port),
		[]bpf.Instruction{
			bpf.LoadAbsolute{Off: offFrag4, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: fragment, SkipFalse: 1},
			bpf.RetConstant{Val: 0},
		},
		v4, reject)
	return slices.Concat(
		[]bpf.Instruction{
			bpf.LoadAbsolute{Off: offEtherType, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(v4))},
		},
		v4,
		[]bpf.Instruction{ // the accumulator still has the EtherType
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 1},
			bpf.RetConstant{Val: 0},
		},
		require(offProto6, 1, unix.IPPROTO_UDP),
		require(offPort6, 2, link.Port),
		v6, reject)
}

var reject = []bpf.Instruction{bpf.RetConstant{Val: 0}}

// require rejects the frame unless the value at off is val.
func require(off uint32, size int, val uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: off, Size: size},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: val, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

// to4 accepts IPv4 packets to the given addresses.
func to4(local []ib.GID) []bpf.Instruction {
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: offDst4, Size: 4}}
	for i := range local {
		if local[i].Is4() {
			p = append(p,
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(local[i][12:]), SkipFalse: 1},
				bpf.RetConstant{Val: acceptAll})
		}
	}
	return p
}

// to6 accepts IPv6 packets to the given addresses.
func to6(local []ib.GID) (p []bpf.Instruction) {
	for i := range local {
		if local[i].Is4() {
			continue
		}
		for w := range 4 { // two instructions a word, and one to accept
			p = append(p,
				bpf.LoadAbsolute{Off: uint32(offDst6 + 4*w), Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(local[i][4*w:]),
					SkipFalse: uint8(2*(3-w) + 1)})
		}
		p = append(p, bpf.RetConstant{Val: acceptAll})
	}
	return p
}

// passing rejects frames whose packet type (PACKET_HOST and the like) is not one of ways, and frames of a VLAN, whose
// tag the kernel has moved from the frame to its metadata. VLAN 0 is only a priority, not a VLAN.
func passing(ways ...uint32) []bpf.Instruction {
	p := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtType}}
	for i, way := range ways {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: way, SkipTrue: uint8(len(ways) - i)})
	}
	return append(p,
		bpf.RetConstant{Val: 0},
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3},
		bpf.LoadExtension{Num: bpf.ExtVLANTag},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xFFF, SkipFalse: 1},
		bpf.RetConstant{Val: 0})
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
