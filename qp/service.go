package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// service says which parts of the protocol a QP type has (IBTA 9.2, 9.8, A14).
type service struct {
	wire        wire.Service
	transitions *transitionTable
	sends       bool // has a requester
	receives    bool // has a responder
	// reliable services track PSNs in flight, acknowledge and retransmit. In the
	// others a request is complete once its packets are sent.
	reliable bool
	datagram bool   // each request names its destination and is one packet
	xrc      bool   // requests name their SRQ
	ops      opSet  // supported work requests
	takes    string // ops in words, for error messages
}

// opSet is a set of work request opcodes.
type opSet uint32

func ops(list ...ib.WROpcode) opSet {
	s := opSet(0)
	for _, op := range list {
		s |= 1 << op
	}
	return s
}

// The work requests of the services (IBTA 10.8.3, table 95; A19 for FLUSH and ATOMIC WRITE).
var (
	datagramOps  = ops(ib.WRSend, ib.WRSendImm)
	connectedOps = datagramOps | ops(ib.WRWrite, ib.WRWriteImm, ib.WRBindMW, ib.WRLocalInv)
	reliableOps  = connectedOps | ops(ib.WRSendInv, ib.WRRead, ib.WRCompareSwap, ib.WRFetchAdd, ib.WRFlush,
		ib.WRAtomicWrite)
)

// services is indexed by ib.QPType.
var services = [...]service{
	ib.RC: {takes: "SEND, RDMA WRITE, RDMA READ, atomics, FLUSH, LOCAL INVALIDATE and BIND MW",
		wire: wire.RC, transitions: &transitionsRC, sends: true, receives: true, reliable: true, ops: reliableOps},
	ib.UC: {takes: "SEND, RDMA WRITE, LOCAL INVALIDATE and BIND MW",
		wire: wire.UC, transitions: &transitionsUC, sends: true, receives: true, ops: connectedOps},
	ib.UD: {takes: "SEND", wire: wire.UD, transitions: &transitionsUD, sends: true, receives: true, datagram: true,
		ops: datagramOps},
	ib.GSI: {takes: "SEND", wire: wire.UD, transitions: &transitionsGSI, sends: true, receives: true, datagram: true,
		ops: datagramOps},
	ib.XRCINI: {takes: "SEND, RDMA WRITE, RDMA READ, atomics, FLUSH, LOCAL INVALIDATE and BIND MW",
		wire: wire.XRC, transitions: &transitionsXRCINI, sends: true, reliable: true, xrc: true, ops: reliableOps},
	ib.XRCTGT: {takes: "nothing: targets only answer",
		wire: wire.XRC, transitions: &transitionsXRCTGT, receives: true, reliable: true, xrc: true},
}

// Known reports whether t is a QP type of this package.
func Known(t ib.QPType) bool { return int(t) < len(services) && services[t].transitions != nil }

// SupportsSend reports whether a service supports a work request opcode.
func SupportsSend(t ib.QPType, op ib.WROpcode) bool { return op < 32 && services[t].ops&(1<<op) != 0 }

// SendOps lists the work requests of a service, for error messages.
func SendOps(t ib.QPType) string { return services[t].takes }

// Reliable reports whether a service acknowledges and retransmits.
func Reliable(t ib.QPType) bool { return services[t].reliable }

// Datagram reports whether each request of a service names its destination.
func Datagram(t ib.QPType) bool { return services[t].datagram }

// Sends reports whether a service has a requester.
func Sends(t ib.QPType) bool { return services[t].sends }

// WireService returns the service that the packet opcodes of a QP type name.
func WireService(t ib.QPType) wire.Service { return services[t].wire }
