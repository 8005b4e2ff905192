package abi

import "github.com/goroce/goroce/ib"

// Attributes are converted without checks: the daemon's device checks them, as it does those of
// its own process. Numbers that do not fit their type in package ib become numbers that the
// device refuses.

func narrow(v uint32) uint8 { return uint8(min(v, 0xFF)) }

// AHOf converts a to its form in messages.
func AHOf(a *ib.AHAttr) AH {
	return AH{DGID: a.DGID, SGIDIndex: uint32(a.SGIDIndex), Port: uint32(a.Port), FlowLabel: a.FlowLabel,
		TrafficClass: a.TrafficClass, HopLimit: a.HopLimit}
}

// Attr is the inverse of AHOf.
func (a *AH) Attr() ib.AHAttr {
	return ib.AHAttr{DGID: a.DGID, SGIDIndex: int(a.SGIDIndex), Port: int(a.Port), FlowLabel: a.FlowLabel,
		TrafficClass: a.TrafficClass, HopLimit: a.HopLimit}
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// QPAttrOf converts the attributes of a QP to their form in messages.
func QPAttrOf(qp Handle, a *ib.QPAttr, mask ib.QPAttrMask) QPAttr {
	return QPAttr{QP: qp, Mask: uint32(mask), State: uint32(a.State), CurState: uint32(a.CurState),
		Port: uint32(a.Port), PKeyIndex: uint32(a.PKeyIndex), Access: uint32(a.Access), QKey: a.QKey,
		AH: AHOf(&a.AH), PathMTU: uint32(a.PathMTU), DestQPN: uint32(a.DestQPN), RQPSN: uint32(a.RQPSN),
		SQPSN:       uint32(a.SQPSN),
		MaxRdAtomic: uint32(a.MaxRdAtomic), MaxDestRdAtomic: uint32(a.MaxDestRdAtomic),
		MinRNRTimer: uint32(a.MinRNRTimer), Timeout: uint32(a.Timeout), RetryCnt: uint32(a.RetryCnt),
		RNRRetry:  uint32(a.RNRRetry),
		RateLimit: a.RateLimit, SQDNotify: flag(a.SQDNotify), Draining: flag(a.Draining),
		MaxSendWR: uint32(a.Cap.MaxSendWR), MaxRecvWR: uint32(a.Cap.MaxRecvWR),
		MaxSendSGE: uint32(a.Cap.MaxSendSGE), MaxRecvSGE: uint32(a.Cap.MaxRecvSGE), MaxInline: uint32(a.Cap.MaxInline)}
}

// Attr is the inverse of QPAttrOf.
func (a *QPAttr) Attr() ib.QPAttr {
	return ib.QPAttr{State: ib.QPState(narrow(a.State)), CurState: ib.QPState(narrow(a.CurState)),
		Port: int(a.Port), PKeyIndex: int(a.PKeyIndex), Access: ib.Access(a.Access), QKey: a.QKey,
		AH: a.AH.Attr(), PathMTU: ib.MTU(a.PathMTU), DestQPN: ib.QPN(a.DestQPN), RQPSN: ib.PSN(a.RQPSN),
		SQPSN:       ib.PSN(a.SQPSN),
		MaxRdAtomic: int(a.MaxRdAtomic), MaxDestRdAtomic: int(a.MaxDestRdAtomic),
		MinRNRTimer: narrow(a.MinRNRTimer), Timeout: narrow(a.Timeout), RetryCnt: narrow(a.RetryCnt),
		RNRRetry:  narrow(a.RNRRetry),
		RateLimit: a.RateLimit, SQDNotify: a.SQDNotify != 0, Draining: a.Draining != 0,
		Cap: ib.QPCap{MaxSendWR: int(a.MaxSendWR), MaxRecvWR: int(a.MaxRecvWR),
			MaxSendSGE: int(a.MaxSendSGE), MaxRecvSGE: int(a.MaxRecvSGE), MaxInline: int(a.MaxInline)}}
}

// DeviceOf converts a device's attributes to their form in messages.
func DeviceOf(a *ib.DeviceAttr) DeviceReply {
	n := func(v int) uint32 { return uint32(v) }
	return DeviceReply{Name: NameOf(a.Name), Firmware: NameOf(a.FirmwareVersion), NodeGUID: a.NodeGUID,
		SysImageGUID: a.SysImageGUID,
		Caps:         uint64(a.Caps), MaxMRSize: a.MaxMRSize, VendorID: a.VendorID, VendorPart: a.VendorPartID,
		HW:    a.HWVersion,
		Ports: n(a.Ports), Atomic: uint32(a.Atomic), MaxQP: n(a.MaxQP), MaxQPWR: n(a.MaxQPWR), MaxSGE: n(a.MaxSGE),
		MaxInline: n(a.MaxInline), MaxCQ: n(a.MaxCQ), MaxCQE: n(a.MaxCQE),
		CompVectors: n(a.CompVectors), MaxMR: n(a.MaxMR), MaxMW: n(a.MaxMW),
		MaxPD: n(a.MaxPD),
		MaxAH: n(a.MaxAH), MaxSRQ: n(a.MaxSRQ), MaxSRQWR: n(a.MaxSRQWR), MaxSRQSGE: n(a.MaxSRQSGE),
		MaxXRCD:       n(a.MaxXRCD),
		MaxMcastGroup: n(a.MaxMcastGroup), MaxMcastQP: n(a.MaxMcastQP), MaxQPRdAtomic: n(a.MaxQPRdAtomic),
		MaxQPInitRdAtom: n(a.MaxQPInitRdAtom), LocalCAAckDelay: n(a.LocalCAAckDelay)}
}

// Attr is the inverse of DeviceOf.
func (r *DeviceReply) Attr() ib.DeviceAttr {
	return ib.DeviceAttr{Name: r.Name.String(), FirmwareVersion: r.Firmware.String(), NodeGUID: r.NodeGUID,
		SysImageGUID: r.SysImageGUID,
		Caps:         ib.DeviceCaps(r.Caps), MaxMRSize: r.MaxMRSize, VendorID: r.VendorID, VendorPartID: r.VendorPart,
		HWVersion: r.HW,
		Ports:     int(r.Ports), Atomic: ib.AtomicCap(r.Atomic), MaxQP: int(r.MaxQP), MaxQPWR: int(r.MaxQPWR),
		MaxSGE:    int(r.MaxSGE),
		MaxInline: int(r.MaxInline), MaxCQ: int(r.MaxCQ), MaxCQE: int(r.MaxCQE),
		CompVectors: int(r.CompVectors), MaxMR: int(r.MaxMR),
		MaxMW: int(r.MaxMW), MaxPD: int(r.MaxPD),
		MaxAH: int(r.MaxAH), MaxSRQ: int(r.MaxSRQ), MaxSRQWR: int(r.MaxSRQWR), MaxSRQSGE: int(r.MaxSRQSGE),
		MaxXRCD:       int(r.MaxXRCD),
		MaxMcastGroup: int(r.MaxMcastGroup), MaxMcastQP: int(r.MaxMcastQP), MaxQPRdAtomic: int(r.MaxQPRdAtomic),
		MaxQPInitRdAtom: int(r.MaxQPInitRdAtom), LocalCAAckDelay: int(r.LocalCAAckDelay)}
}

// FailureOf returns f as it is transferred.
func FailureOf(f *ib.Failure) (r Failure) {
	if f.Cause.Reason == ib.ReasonNone {
		return r
	}
	c := &f.Cause
	r = Failure{At: int64(f.At), Since: int64(c.Since), Addr: c.Addr, Length: c.Length, Start: c.Start, Size: c.Size,
		Reason: uint32(c.Reason), Op: uint32(c.Op), PSN: uint32(c.PSN), Key: uint32(c.Key), Need: uint32(c.Need),
		Have: uint32(c.Have), Ended: uint32(c.Ended), By: uint32(c.By), Tries: c.Tries, Answers: c.Answers,
		Errno: c.Errno}
	if c.Peer {
		r.Peer = 1
	}
	copy(r.Text[:len(r.Text)-1], c.String())
	return r
}

// Failure is the inverse of FailureOf.
func (r *Failure) Failure() ib.Failure {
	return ib.Failure{At: ib.Instant(r.At), Cause: ib.Cause{Reason: ib.Reason(r.Reason), Op: ib.WROpcode(r.Op),
		Peer: r.Peer != 0, PSN: ib.PSN(r.PSN), Key: ib.Key(r.Key), Addr: r.Addr, Length: r.Length, Start: r.Start,
		Size: r.Size, Need: ib.Access(r.Need), Have: ib.Access(r.Have), Ended: ib.KeyEnd(r.Ended), By: ib.QPN(r.By),
		Since: ib.Instant(r.Since), Tries: r.Tries, Answers: r.Answers, Errno: r.Errno}}
}
