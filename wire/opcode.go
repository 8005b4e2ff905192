package wire

import (
	"fmt"
	"strings"
)

// Opcode is the first byte of the BTH: the upper three bits are the transport service, the lower five the operation
// (IBTA 9.2.1; A17.9.3 for CNP; A19 for FLUSH and ATOMIC WRITE).
type Opcode uint8

// Opcodes of reliable connections.
const (
	RCSendFirst      Opcode = 0x00
	RCSendMiddle     Opcode = 0x01
	RCSendLast       Opcode = 0x02
	RCSendLastImm    Opcode = 0x03
	RCSendOnly       Opcode = 0x04
	RCSendOnlyImm    Opcode = 0x05
	RCWriteFirst     Opcode = 0x06
	RCWriteMiddle    Opcode = 0x07
	RCWriteLast      Opcode = 0x08
	RCWriteLastImm   Opcode = 0x09
	RCWriteOnly      Opcode = 0x0A
	RCWriteOnlyImm   Opcode = 0x0B
	RCReadRequest    Opcode = 0x0C
	RCReadRespFirst  Opcode = 0x0D
	RCReadRespMiddle Opcode = 0x0E
	RCReadRespLast   Opcode = 0x0F
	RCReadRespOnly   Opcode = 0x10
	RCAck            Opcode = 0x11
	RCAtomicAck      Opcode = 0x12
	RCCompareSwap    Opcode = 0x13
	RCFetchAdd       Opcode = 0x14
	RCSendLastInv    Opcode = 0x16
	RCSendOnlyInv    Opcode = 0x17
	RCFlush          Opcode = 0x1C
	RCAtomicWrite    Opcode = 0x1D
)

// Opcodes of unreliable connections.
const (
	UCSendFirst    = ucBase | RCSendFirst
	UCSendMiddle   = ucBase | RCSendMiddle
	UCSendLast     = ucBase | RCSendLast
	UCSendLastImm  = ucBase | RCSendLastImm
	UCSendOnly     = ucBase | RCSendOnly
	UCSendOnlyImm  = ucBase | RCSendOnlyImm
	UCWriteFirst   = ucBase | RCWriteFirst
	UCWriteMiddle  = ucBase | RCWriteMiddle
	UCWriteLast    = ucBase | RCWriteLast
	UCWriteLastImm = ucBase | RCWriteLastImm
	UCWriteOnly    = ucBase | RCWriteOnly
	UCWriteOnlyImm = ucBase | RCWriteOnlyImm
)

// Opcodes of unreliable datagrams, and RoCEv2's congestion notification packet.
const (
	UDSendOnly    = udBase | RCSendOnly
	UDSendOnlyImm = udBase | RCSendOnlyImm

	CNP Opcode = 0x81
)

// SACKOpcode is the opcode of a selective acknowledgement (SACK), which is this project's own.
const SACKOpcode Opcode = 0xC1

// Opcodes of extended reliable connections.
const (
	XRCSendFirst      = xrcBase | RCSendFirst
	XRCSendMiddle     = xrcBase | RCSendMiddle
	XRCSendLast       = xrcBase | RCSendLast
	XRCSendLastImm    = xrcBase | RCSendLastImm
	XRCSendOnly       = xrcBase | RCSendOnly
	XRCSendOnlyImm    = xrcBase | RCSendOnlyImm
	XRCWriteFirst     = xrcBase | RCWriteFirst
	XRCWriteMiddle    = xrcBase | RCWriteMiddle
	XRCWriteLast      = xrcBase | RCWriteLast
	XRCWriteLastImm   = xrcBase | RCWriteLastImm
	XRCWriteOnly      = xrcBase | RCWriteOnly
	XRCWriteOnlyImm   = xrcBase | RCWriteOnlyImm
	XRCReadRequest    = xrcBase | RCReadRequest
	XRCReadRespFirst  = xrcBase | RCReadRespFirst
	XRCReadRespMiddle = xrcBase | RCReadRespMiddle
	XRCReadRespLast   = xrcBase | RCReadRespLast
	XRCReadRespOnly   = xrcBase | RCReadRespOnly
	XRCAck            = xrcBase | RCAck
	XRCAtomicAck      = xrcBase | RCAtomicAck
	XRCCompareSwap    = xrcBase | RCCompareSwap
	XRCFetchAdd       = xrcBase | RCFetchAdd
	XRCSendLastInv    = xrcBase | RCSendLastInv
	XRCSendOnlyInv    = xrcBase | RCSendOnlyInv
	XRCFlush          = xrcBase | RCFlush
	XRCAtomicWrite    = xrcBase | RCAtomicWrite
)

const (
	ucBase  = Opcode(UC << 5)
	udBase  = Opcode(UD << 5)
	xrcBase = Opcode(XRC << 5)
)

// Service is the transport service that an opcode belongs to.
type Service uint8

// Transport services. Reliable datagram has a number, but no opcodes here, because no RoCE device implements it.
const (
	RC Service = iota
	UC
	RD
	UD
	CNPService
	XRC
	Manufacturer // what IBTA leaves to manufacturers; 7 is, too
	numServices
)

// Opcode returns the opcode of an operation in this service.
func (s Service) Opcode(op Op) Opcode { return Opcode(s)<<5 | Opcode(op&0x1F) }

// String returns the service's abbreviation.
func (s Service) String() string {
	if s < numServices {
		return [numServices]string{"RC", "UC", "RD", "UD", "CNP", "XRC", "manufacturer"}[s]
	}
	return fmt.Sprintf("Service(%d)", uint8(s))
}

// Op is an operation: the lower five bits of the opcode.
type Op uint8

// Operations.
const (
	OpSendFirst      = Op(RCSendFirst)
	OpSendMiddle     = Op(RCSendMiddle)
	OpSendLast       = Op(RCSendLast)
	OpSendLastImm    = Op(RCSendLastImm)
	OpSendOnly       = Op(RCSendOnly)
	OpSendOnlyImm    = Op(RCSendOnlyImm)
	OpWriteFirst     = Op(RCWriteFirst)
	OpWriteMiddle    = Op(RCWriteMiddle)
	OpWriteLast      = Op(RCWriteLast)
	OpWriteLastImm   = Op(RCWriteLastImm)
	OpWriteOnly      = Op(RCWriteOnly)
	OpWriteOnlyImm   = Op(RCWriteOnlyImm)
	OpReadRequest    = Op(RCReadRequest)
	OpReadRespFirst  = Op(RCReadRespFirst)
	OpReadRespMiddle = Op(RCReadRespMiddle)
	OpReadRespLast   = Op(RCReadRespLast)
	OpReadRespOnly   = Op(RCReadRespOnly)
	OpAck            = Op(RCAck)
	OpAtomicAck      = Op(RCAtomicAck)
	OpCompareSwap    = Op(RCCompareSwap)
	OpFetchAdd       = Op(RCFetchAdd)
	OpSendLastInv    = Op(RCSendLastInv)
	OpSendOnlyInv    = Op(RCSendOnlyInv)
	OpFlush          = Op(RCFlush)
	OpAtomicWrite    = Op(RCAtomicWrite)
)

// HeaderSet is a set of extension headers. The bits are in the order in which
// the headers stand in a packet.
type HeaderSet uint16

// Extension headers.
const (
	HasXRCETH HeaderSet = 1 << iota
	HasDETH
	HasFETH
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImm
	HasIETH
	numHeaders = iota
)

// headerLens holds the length in bytes of each extension header, by bit.
var headerLens = [numHeaders]int{XRCETHLen, DETHLen, FETHLen, RETHLen, AtomicETHLen, AETHLen, AtomicAckETHLen, ImmLen,
	IETHLen}

// opFlags are the properties of an operation.
type opFlags uint16

const (
	opRequest opFlags = 1 << iota
	opResponse
	opFirst
	opMiddle
	opLast
	opOnly
	opSend
	opWrite
	opRead
	opReadResp
	opAtomic
	opPayload
	opConnected // also in UC
	opDatagram  // also in UD
)

// operations has the operations of RC. Those of the other services are derived from it.
var operations = [32]struct {
	name    string
	flags   opFlags
	headers HeaderSet
}{
	OpSendFirst:   {"SEND First", opRequest | opSend | opFirst | opPayload | opConnected, 0},
	OpSendMiddle:  {"SEND Middle", opRequest | opSend | opMiddle | opPayload | opConnected, 0},
	OpSendLast:    {"SEND Last", opRequest | opSend | opLast | opPayload | opConnected, 0},
	OpSendLastImm: {"SEND Last with Immediate", opRequest | opSend | opLast | opPayload | opConnected, HasImm},
	OpSendOnly:    {"SEND Only", opRequest | opSend | opOnly | opPayload | opConnected | opDatagram, 0},
	OpSendOnlyImm: {"SEND Only with Immediate", opRequest | opSend | opOnly | opPayload | opConnected | opDatagram,
		HasImm},
	OpWriteFirst:  {"RDMA WRITE First", opRequest | opWrite | opFirst | opPayload | opConnected, HasRETH},
	OpWriteMiddle: {"RDMA WRITE Middle", opRequest | opWrite | opMiddle | opPayload | opConnected, 0},
	OpWriteLast:   {"RDMA WRITE Last", opRequest | opWrite | opLast | opPayload | opConnected, 0},
	OpWriteLastImm: {"RDMA WRITE Last with Immediate", opRequest | opWrite | opLast | opPayload | opConnected,
		HasImm},
	OpWriteOnly: {"RDMA WRITE Only", opRequest | opWrite | opOnly | opPayload | opConnected, HasRETH},
	OpWriteOnlyImm: {"RDMA WRITE Only with Immediate", opRequest | opWrite | opOnly | opPayload | opConnected,
		HasRETH | HasImm},
	OpReadRequest:    {"RDMA READ Request", opRequest | opRead | opOnly, HasRETH},
	OpReadRespFirst:  {"RDMA READ Response First", opResponse | opReadResp | opFirst | opPayload, HasAETH},
	OpReadRespMiddle: {"RDMA READ Response Middle", opResponse | opReadResp | opMiddle | opPayload, 0},
	OpReadRespLast:   {"RDMA READ Response Last", opResponse | opReadResp | opLast | opPayload, HasAETH},
	OpReadRespOnly:   {"RDMA READ Response Only", opResponse | opReadResp | opOnly | opPayload, HasAETH},
	OpAck:            {"Acknowledge", opResponse, HasAETH},
	OpAtomicAck:      {"ATOMIC Acknowledge", opResponse, HasAETH | HasAtomicAckETH},
	OpCompareSwap:    {"CmpSwap", opRequest | opAtomic | opOnly, HasAtomicETH},
	OpFetchAdd:       {"FetchAdd", opRequest | opAtomic | opOnly, HasAtomicETH},
	OpSendLastInv:    {"SEND Last with Invalidate", opRequest | opSend | opLast | opPayload, HasIETH},
	OpSendOnlyInv:    {"SEND Only with Invalidate", opRequest | opSend | opOnly | opPayload, HasIETH},
	OpFlush:          {"FLUSH", opRequest | opOnly, HasFETH | HasRETH},
	OpAtomicWrite:    {"ATOMIC WRITE", opRequest | opOnly | opPayload, HasRETH},
}

// shape is what the decoder must know about an opcode.
type shape struct {
	flags     opFlags // 0: no such opcode
	headers   HeaderSet
	headerLen uint8
	fixed     uint8 // the only valid payload length; 0 if it varies
}

var shapes = makeShapes()

func makeShapes() (t [256]shape) {
	for i, op := range operations {
		if op.flags == 0 {
			continue
		}
		row := shape{flags: op.flags, headers: op.headers}
		if Op(i) == OpAtomicWrite {
			row.fixed = atomicWriteLen
		}
		t[RC.Opcode(Op(i))] = row.measured()
		if op.flags&opConnected != 0 {
			t[UC.Opcode(Op(i))] = row.measured()
		}
		if op.flags&opDatagram != 0 {
			row := row
			row.headers |= HasDETH
			t[UD.Opcode(Op(i))] = row.measured()
		}
		if op.flags&opRequest != 0 {
			row.headers |= HasXRCETH
		}
		t[XRC.Opcode(Op(i))] = row.measured()
	}
	// The payload of a CNP is 16 reserved bytes (A17.9.3, figure 6).
	t[CNP] = shape{flags: opPayload, fixed: cnpLen}.measured()
	t[SACKOpcode] = shape{flags: opPayload | opResponse}.measured()
	return t
}

// measured returns s with the length of its headers.
func (s shape) measured() shape {
	n := BTHLen
	for i, size := range headerLens {
		if s.headers&(1<<i) != 0 {
			n += size
		}
	}
	s.headerLen = uint8(n)
	return s
}

// Valid reports whether the opcode is defined.
func (o Opcode) Valid() bool { return shapes[o].flags != 0 }

// Service returns the transport service. The opcode need not be valid.
func (o Opcode) Service() Service { return Service(o >> 5) }

// Op returns the operation. The opcode need not be valid.
func (o Opcode) Op() Op { return Op(o & 0x1F) }

// Headers returns the extension headers that follow the BTH.
func (o Opcode) Headers() HeaderSet { return shapes[o].headers }

// HeaderLen returns the length in bytes of BTH and extension headers; 0 if the
// opcode is not valid.
func (o Opcode) HeaderLen() int { return int(shapes[o].headerLen) }

// IsRequest reports whether packets with the opcode are sent by a requester.
func (o Opcode) IsRequest() bool { return shapes[o].flags&opRequest != 0 }

// IsResponse reports whether packets with the opcode are sent by a responder.
func (o Opcode) IsResponse() bool { return shapes[o].flags&opResponse != 0 }

// First reports whether the packet begins a message of several packets.
func (o Opcode) First() bool { return shapes[o].flags&opFirst != 0 }

// Middle reports whether the packet neither begins nor ends its message.
func (o Opcode) Middle() bool { return shapes[o].flags&opMiddle != 0 }

// Last reports whether the packet ends a message of several packets.
func (o Opcode) Last() bool { return shapes[o].flags&opLast != 0 }

// Only reports whether the packet is a whole message: the opcodes of that name, and requests that always fit into one
// packet (READ, atomics, FLUSH, ATOMIC WRITE).
func (o Opcode) Only() bool { return shapes[o].flags&opOnly != 0 }

// Starts reports whether the packet is the first of its message: First or Only.
func (o Opcode) Starts() bool { return shapes[o].flags&(opFirst|opOnly) != 0 }

// Ends reports whether the packet is the last of its message: Last or Only.
func (o Opcode) Ends() bool { return shapes[o].flags&(opLast|opOnly) != 0 }

// HasPayload reports whether payload may follow the headers.
func (o Opcode) HasPayload() bool { return shapes[o].flags&opPayload != 0 }

// IsSend reports whether the packet is part of a SEND.
func (o Opcode) IsSend() bool { return shapes[o].flags&opSend != 0 }

// IsWrite reports whether the packet is part of an RDMA WRITE; ATOMIC WRITE is not one.
func (o Opcode) IsWrite() bool { return shapes[o].flags&opWrite != 0 }

// IsRead reports whether the packet is an RDMA READ request.
func (o Opcode) IsRead() bool { return shapes[o].flags&opRead != 0 }

// IsReadResp reports whether the packet is part of an RDMA READ response.
func (o Opcode) IsReadResp() bool { return shapes[o].flags&opReadResp != 0 }

// IsAtomic reports whether the packet is a COMPARE & SWAP or FETCH & ADD request.
func (o Opcode) IsAtomic() bool { return shapes[o].flags&opAtomic != 0 }

// String returns the specification's name, such as "RC SEND First".
func (o Opcode) String() string {
	switch {
	case !o.Valid():
		return fmt.Sprintf("Opcode(%#02x)", uint8(o))
	case o == CNP:
		return "CNP"
	case o == SACKOpcode:
		return "SACK"
	}
	return o.Service().String() + " " + operations[o.Op()].name
}

// opShort abbreviates frequent parts of the specification's names.
var opShort = strings.NewReplacer("RDMA ", "", "Acknowledge", "ACK", "with Immediate", "imm", "with Invalidate", "inv")

// String returns the specification's name in short: "SEND First", "WRITE Only imm", "ACK".
func (o Op) String() string {
	if int(o) >= len(operations) || operations[o].flags == 0 {
		return fmt.Sprintf("Op(%#02x)", uint8(o))
	}
	return opShort.Replace(operations[o].name)
}
