package ib

import (
	"encoding/binary"
	"net/netip"
)

// GID is a 128-bit port address. Over RoCEv2 it is an IPv6 address, or an IPv4
// address in its mapped form ::ffff:a.b.c.d (IBTA annex A17.4.1.1).
type GID [16]byte

// GIDFromAddr returns the GID of an IP address. Zones are not part of a GID.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// Addr returns the IP address that g stands for; mapped IPv4 comes back as IPv4.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// Is4 reports whether g is a mapped IPv4 address.
func (g *GID) Is4() bool {
	return binary.BigEndian.Uint64(g[:]) == 0 && binary.BigEndian.Uint32(g[8:]) == 0xFFFF
}

// String returns the eight groups of hexadecimal digits that ibv_devinfo prints.
func (g GID) String() string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 39)
	for i, b := range g {
		if i > 0 && i%2 == 0 {
			out = append(out, ':')
		}
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// GIDEntry is a row of a port's GID table.
type GIDEntry struct {
	GID   GID
	Index int
	NetIf string // network interface that has the address; empty if none has
}

// MTU is a path MTU in bytes of payload: 256, 512, 1024, 2048 or 4096.
type MTU int

// The path MTUs of the architecture (IBTA 9.2.4 table; C11-25).
const (
	MTU256  MTU = 256
	MTU512  MTU = 512
	MTU1024 MTU = 1024
	MTU2048 MTU = 2048
	MTU4096 MTU = 4096
)

// Valid reports whether m is one of the five path MTUs.
func (m MTU) Valid() bool { return m.Code() != 0 }

// Code returns the encoding that verbs and CM messages use: 1 for 256 up to 5
// for 4096, and 0 if m is not a path MTU.
func (m MTU) Code() int {
	for code, size := range mtuByCode {
		if size == m && m != 0 {
			return code
		}
	}
	return 0
}

// MTUFromCode is the inverse of Code; it returns 0 for an unknown code.
func MTUFromCode(code int) MTU {
	if code < 0 || code >= len(mtuByCode) {
		return 0
	}
	return mtuByCode[code]
}

var mtuByCode = [...]MTU{0, MTU256, MTU512, MTU1024, MTU2048, MTU4096}

// MTUFor returns the largest path MTU whose packets fit the MTU of a network interface, 0 if it is below 336. It
// subtracts 80 bytes for headers, as rdma_rxe does (rxe_param.h), so that both ends compute the same.
func MTUFor(netdevMTU int) MTU {
	best := MTU(0)
	for _, m := range mtuByCode[1:] {
		if int(m)+80 <= netdevMTU {
			best = m
		}
	}
	return best
}
