package wire

// String returns the short name of the message.
func (m CMMessage) String() string { return nameOf(messageText[:], int(m), "CMMessage") }

var messageText = [...]string{MessageREQ: "REQ", MessageREP: "REP", MessageOther: "other"}

// String returns the reason in a few words.
func (r RejectReason) String() string { return nameOf(rejectText[:], int(r), "RejectReason") }

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

// String returns the status in a few words.
func (s SIDRStatus) String() string { return nameOf(sidrText[:], int(s), "SIDRStatus") }

var sidrText = [numSIDRStatus]string{
	SIDRValid: "valid", SIDRUnsupported: "service ID not supported", SIDRReject: "rejected by the service",
	SIDRNoQP: "no QP available", SIDRRedirect: "redirection", SIDRBadVersion: "unsupported class version",
}
