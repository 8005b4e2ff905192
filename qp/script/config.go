package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
)

// config holds what setup and connect may set for a QP, and modify may change.
type config struct {
	typ     ib.QPType
	attr    ib.QPAttr
	cap     ib.QPCap
	cq      int
	sigAll  bool
	trains  bool
	probe   bool
	sack    bool
	control qp.Control
	late    int
	shared  int // entries of the SRQ that receives come from; 0: there is none
	qps     int // QPs of the host
	ackNS   int64
	started ib.QPState // state that the scene starts in
}

// defaults returns the config that scripts start from.
func defaults(psn, peerPSN ib.PSN) config {
	return config{
		typ: ib.RC,
		attr: ib.QPAttr{
			Port: 1, QKey: 7, Access: ib.QPAccessMask, PathMTU: ib.MTU1024, SQPSN: psn, RQPSN: peerPSN,
			MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		},
		cap:     ib.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
		cq:      64,
		qps:     1,
		started: ib.StateRTS,
	}
}

// option is a key of setup, connect and modify.
type option struct {
	key string
	bit ib.QPAttrMask // the attribute that it sets, if any
	set func(c *config, v string) error
}

var options = []option{
	{"mtu", ib.AttrPathMTU, integer(func(c *config, n int) { c.attr.PathMTU = ib.MTU(n) })},
	{"psn", ib.AttrSQPSN, integer(func(c *config, n int) { c.attr.SQPSN = ib.PSN(n) })},
	{"peer-psn", ib.AttrRQPSN, integer(func(c *config, n int) { c.attr.RQPSN = ib.PSN(n) })},
	{"timeout", ib.AttrTimeout, integer(func(c *config, n int) { c.attr.Timeout = uint8(n) })},
	{"retry", ib.AttrRetryCnt, integer(func(c *config, n int) { c.attr.RetryCnt = uint8(n) })},
	{"rnr-retry", ib.AttrRNRRetry, integer(func(c *config, n int) { c.attr.RNRRetry = uint8(n) })},
	{"min-rnr", ib.AttrMinRNRTimer, integer(func(c *config, n int) { c.attr.MinRNRTimer = uint8(n) })},
	{"rd-atomic", ib.AttrMaxRdAtomic, integer(func(c *config, n int) { c.attr.MaxRdAtomic = n })},
	{"dest-rd-atomic", ib.AttrMaxDestRdAtomic, integer(func(c *config, n int) { c.attr.MaxDestRdAtomic = n })},
	{"rate", ib.AttrRateLimit, integer(func(c *config, n int) { c.attr.RateLimit = uint32(n) })},
	{"port", ib.AttrPort, integer(func(c *config, n int) { c.attr.Port = n })},
	{"pkey", ib.AttrPKeyIndex, integer(func(c *config, n int) { c.attr.PKeyIndex = n })},
	{"sgid", ib.AttrAV, integer(func(c *config, n int) { c.attr.AH.SGIDIndex = n })},
	{"qkey", ib.AttrQKey, integer(func(c *config, n int) { c.attr.QKey = uint32(n) })},
	{"dest-qp", ib.AttrDestQPN, integer(func(c *config, n int) { c.attr.DestQPN = ib.QPN(n) })},
	{"access", ib.AttrAccess, func(c *config, v string) (err error) {
		c.attr.Access, err = parseAccess(v)
		return err
	}},
	{"cur", ib.AttrCurState, func(c *config, v string) (err error) {
		c.attr.CurState, err = parseState(v)
		return err
	}},
	{"service", 0, func(c *config, v string) error {
		typ, ok := serviceNames[v]
		if !ok {
			return fmt.Errorf("%q is no service: rc, uc, ud, gsi, xrc or xrc-tgt", v)
		}
		c.typ = typ
		return nil
	}},
	{"state", 0, func(c *config, v string) (err error) {
		c.started, err = parseState(v)
		return err
	}},
	{"ack-delay", 0, func(c *config, v string) error {
		d, err := time.ParseDuration(v)
		c.ackNS = d.Nanoseconds()
		return err
	}},
	{"sq", 0, size(func(c *config, n int) { c.cap.MaxSendWR = n })},
	{"rq", 0, size(func(c *config, n int) { c.cap.MaxRecvWR = n })},
	{"cq", 0, size(func(c *config, n int) { c.cq = n })},
	{"late", 0, size(func(c *config, n int) { c.late = n })},
	{"shared", 0, size(func(c *config, n int) { c.shared = n })},
	{"qps", 0, size(func(c *config, n int) { c.qps = n })},
	{"trains", 0, integer(func(c *config, n int) { c.trains = n != 0 })},
	{"probe", 0, integer(func(c *config, n int) { c.probe = n != 0 })},
	{"sack", 0, integer(func(c *config, n int) { c.sack = n != 0 })},
	{"congestion", 0, func(c *config, v string) (err error) {
		ok := false
		if c.control, ok = qp.ControlNamed(v); !ok {
			err = fmt.Errorf("%q is no congestion control: cubic or dcqcn", v)
		}
		return err
	}},
	{"sigall", 0, integer(func(c *config, n int) { c.sigAll = n != 0 })},
}

// integer makes the set function of an option that is a number.
func integer(set func(c *config, n int)) func(*config, string) error {
	return func(c *config, v string) error {
		n, err := strconv.ParseInt(v, 0, 64)
		set(c, int(n))
		return err
	}
}

// maxSize limits the sizes of queues in a script.
const maxSize = 1 << 12

// size is integer for the size of a queue.
func size(set func(c *config, n int)) func(*config, string) error {
	return func(c *config, v string) error {
		n, err := strconv.ParseUint(v, 0, 64)
		if err == nil && n > maxSize {
			err = fmt.Errorf("%d is more than %d", n, maxSize)
		}
		set(c, int(min(n, maxSize)))
		return err
	}
}

// take sets the options in a whose key follows prefix, and returns the
// attributes among them.
func (c *config) take(a *args, prefix string) (mask ib.QPAttrMask) {
	for i := range options {
		o := &options[i]
		if v, ok := a.value(prefix + o.key); ok {
			if err := o.set(c, v); err != nil {
				a.wrong("%s%s: %w", prefix, o.key, err)
			}
			mask |= o.bit
		}
	}
	return mask
}

// serviceNames maps the names of services in scripts to QP types. With connect, xrc is
// an initiator on the left and a target on the right.
var serviceNames = map[string]ib.QPType{
	"rc": ib.RC, "uc": ib.UC, "ud": ib.UD, "gsi": ib.GSI, "xrc": ib.XRCINI, "xrc-tgt": ib.XRCTGT,
}

func parseState(v string) (ib.QPState, error) {
	for s := range ib.QPState(ib.NumQPStates) {
		if s.String() == v {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is no state", v)
}

// parseAttrs reads names of attributes, as ib.QPAttrMask writes them.
func parseAttrs(v string) (mask ib.QPAttrMask, err error) {
	for name := range strings.SplitSeq(v, ",") {
		bit := ib.QPAttrMask(1)
		for ; bit != 0 && bit.String() != name; bit <<= 1 {
		}
		if bit == 0 {
			return 0, fmt.Errorf("%q is no attribute", name)
		}
		mask |= bit
	}
	return mask, nil
}

var accessNames = map[string]ib.Access{
	"write": ib.RemoteWrite | ib.LocalWrite, "read": ib.RemoteRead, "atomic": ib.RemoteAtomic | ib.LocalWrite,
	"invalidate": ib.RemoteInvalidate, "local": ib.LocalWrite, "none": 0, "bind": ib.BindWindows | ib.LocalWrite,
	"zero-based": ib.ZeroBased, "flush-global": ib.FlushGlobal, "flush-persistent": ib.FlushPersistent,
}

func parseAccess(v string) (access ib.Access, err error) {
	for name := range strings.SplitSeq(v, ",") {
		bits, ok := accessNames[name]
		if !ok {
			return 0, fmt.Errorf("%q is no access right; doc.go lists them", name)
		}
		access |= bits
	}
	return access, nil
}
