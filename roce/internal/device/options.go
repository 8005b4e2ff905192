package device

import (
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
)

// Options are those of package roce, which documents them.
type Options struct {
	Name          string
	Seed          uint64
	AckDelay      time.Duration
	Spin          time.Duration
	Manual        bool
	Clock         func() ib.Instant
	NoTrains      bool
	NoProbes      bool
	Congestion    string
	InitialWindow int
	PinSourcePort bool
	OnOffloadOff  func(peer ib.GID)
	OnStall       func(late time.Duration)
	ActiveMTU     ib.MTU
	Route         func(src, dst netip.Addr, want ib.MTU) (mtu ib.MTU, errno int)
	Source        func(dst netip.Addr) netip.Addr
	GUID          uint64
}

// Limits of the software device.
const (
	maxQPs      = 1<<17 - 32
	maxQPWR     = 1 << 15
	maxSGE      = 32
	maxInline   = 512
	maxCQs      = 1 << 16
	maxCQE      = 1<<20 - 1 // a ring has one entry more
	maxMRs      = 1 << 20
	maxMWs      = 1 << 20
	maxPDs      = 1 << 16
	maxAHs      = 1 << 20
	maxSRQs     = 1 << 16
	maxXRCDs    = 1 << 16
	maxRdAtomic = 128

	maxMcastGroups = 256
	maxMcastQPs    = 256 // in one group

	// maxLate bounds the placements of a QP that wait for their worker. It is the maximum
	// that the requester of a peer has in flight; further packets are dropped.
	maxLate = 1024

	maxMsgSize   = 1 << 31
	ackDelayNS   = 20_000 // default of Options.AckDelay; this and the next are nanoseconds
	spinNS       = 200_000
	eventBacklog = 1024 // events that NextEvent has not taken
)

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "goroce0"
	}
	o.AckDelay = orDefault(o.AckDelay, ackDelayNS)
	o.Spin = orDefault(o.Spin, spinNS)
	return o
}

// orDefault turns 0 into the default and negative into 0.
func orDefault(d time.Duration, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return max(d, 0)
}
