package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// service says what a type of QP takes of the protocol (IBTA 9.2, 9.8, A14).
type service struct {
	wire        wire.Service
	transitions *transitionTable
	sends       bool // has a requester
	receives    bool // has a responder
	// reliable services count PSNs in flight, acknowledge and send again. The
	// others know of a request no more than that it left.
	reliable bool
	datagram bool   // each request names its destination and is one packet
	xrc      bool   // requests name their SRQ
	ops      opSet  // work requests
	takes    string // the same, for people
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

// What the services take (IBTA 10.8.3, table 95; A19 for FLUSH and ATOMIC WRITE).
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

// Known reports whether there is such a type of QP.
func Known(t ib.QPType) bool { return int(t) < len(services) && services[t].transitions != nil }

// SupportsSend reports whether a service takes a work request opcode.
func SupportsSend(t ib.QPType, op ib.WROpcode) bool { return op < 32 && services[t].ops&(1<<op) != 0 }

// SendOps lists, for people, what a service takes.
func SendOps(t ib.QPType) string { return services[t].takes }

// Reliable reports whether a service acknowledges and sends again.
func Reliable(t ib.QPType) bool { return services[t].reliable }

// Datagram reports whether each request of a service names its destination.
func Datagram(t ib.QPType) bool { return services[t].datagram }

// Sends reports whether a service makes requests.
func Sends(t ib.QPType) bool { return services[t].sends }

// WireService returns the service in the opcodes of a type's packets.
func WireService(t ib.QPType) wire.Service { return services[t].wire }
