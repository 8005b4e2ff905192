package ib

// RejectReason is the reason of a REJ (IBTA 12.6.7.2).
type RejectReason uint16

// Reasons of a REJ.
const (
	RejectNoQP                   RejectReason = 1
	RejectNoEEC                  RejectReason = 2
	RejectNoResources            RejectReason = 3
	RejectTimeout                RejectReason = 4
	RejectUnsupported            RejectReason = 5
	RejectInvalidCommID          RejectReason = 6
	RejectInvalidCommInstance    RejectReason = 7
	RejectInvalidServiceID       RejectReason = 8 // there is no listener
	RejectInvalidTransport       RejectReason = 9
	RejectStale                  RejectReason = 10 // the sender's QP has a connection here already
	RejectRDCNotExist            RejectReason = 11
	RejectInvalidGID             RejectReason = 12
	RejectInvalidLID             RejectReason = 13
	RejectInvalidSL              RejectReason = 14
	RejectInvalidTrafficClass    RejectReason = 15
	RejectInvalidHopLimit        RejectReason = 16
	RejectInvalidPacketRate      RejectReason = 17
	RejectInvalidAltGID          RejectReason = 18
	RejectInvalidAltLID          RejectReason = 19
	RejectInvalidAltSL           RejectReason = 20
	RejectInvalidAltTrafficClass RejectReason = 21
	RejectInvalidAltHopLimit     RejectReason = 22
	RejectInvalidAltPacketRate   RejectReason = 23
	RejectPortCMRedirect         RejectReason = 24
	RejectPortRedirect           RejectReason = 25
	RejectInvalidMTU             RejectReason = 26
	RejectResponderResources     RejectReason = 27
	RejectConsumer               RejectReason = 28 // by the application
	RejectRNRRetry               RejectReason = 29
	RejectDuplicateCommID        RejectReason = 30
	RejectInvalidClassVersion    RejectReason = 31
	RejectInvalidFlowLabel       RejectReason = 32
	RejectInvalidAltFlowLabel    RejectReason = 33
	RejectVendorOption           RejectReason = 35
)

// String returns the reason in a few words.
func (r RejectReason) String() string { return name(rejectText[:], int(r), "RejectReason") }

var rejectText = [...]string{
	RejectNoQP: "no QP available", RejectNoEEC: "no EE context available", RejectNoResources: "no resources available",
	RejectTimeout: "timeout", RejectUnsupported: "unsupported request", RejectInvalidCommID: "invalid communication ID",
	RejectInvalidCommInstance: "invalid communication instance", RejectInvalidServiceID: "invalid service ID",
	RejectInvalidTransport: "invalid transport service type", RejectStale: "stale connection",
	RejectRDCNotExist: "no reliable datagram channel", RejectInvalidGID: "invalid GID", RejectInvalidLID: "invalid LID",
	RejectInvalidSL: "invalid service level", RejectInvalidTrafficClass: "invalid traffic class",
	RejectInvalidHopLimit: "invalid hop limit", RejectInvalidPacketRate: "invalid packet rate",
	RejectInvalidAltGID: "invalid alternate GID", RejectInvalidAltLID: "invalid alternate LID",
	RejectInvalidAltSL:           "invalid alternate service level",
	RejectInvalidAltTrafficClass: "invalid alternate traffic class",
	RejectInvalidAltHopLimit:     "invalid alternate hop limit",
	RejectInvalidAltPacketRate:   "invalid alternate packet rate",
	RejectPortCMRedirect:         "port and CM redirection",
	RejectPortRedirect:           "port redirection",
	RejectInvalidMTU:             "invalid path MTU", RejectResponderResources: "too few responder resources",
	RejectConsumer: "consumer reject", RejectRNRRetry: "RNR retry count not accepted",
	RejectDuplicateCommID: "duplicate communication ID", RejectInvalidClassVersion: "unsupported class version",
	RejectInvalidFlowLabel: "invalid flow label", RejectInvalidAltFlowLabel: "invalid alternate flow label",
	RejectVendorOption: "vendor option not supported",
}

// SIDRStatus says whether the answer of a datagram service has a QP, and if not, why (IBTA 12.11.2.2).
type SIDRStatus uint8

// SIDR statuses.
const (
	SIDRValid       SIDRStatus = 0
	SIDRUnsupported SIDRStatus = 1 // no such service
	SIDRReject      SIDRStatus = 2 // rejected by the service
	SIDRNoQP        SIDRStatus = 3
	SIDRRedirect    SIDRStatus = 4
	SIDRBadVersion  SIDRStatus = 5
	numSIDRStatus              = 6
)

// String returns the status in a few words.
func (s SIDRStatus) String() string { return name(sidrText[:], int(s), "SIDRStatus") }

var sidrText = [numSIDRStatus]string{
	SIDRValid: "valid", SIDRUnsupported: "service ID not supported", SIDRReject: "rejected by the service",
	SIDRNoQP: "no QP available", SIDRRedirect: "redirection", SIDRBadVersion: "unsupported class version",
}
