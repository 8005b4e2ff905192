package roce

import (
	"time"

	"github.com/goroce/goroce/ib"
)

// Options adjust a device. The zero value suits most.
type Options struct {
	// Name is the device's name, "goroce0" by default.
	Name string
	// Seed makes keys, QP numbers and the connection manager's numbers repeatable, and
	// known to whoever knows it: it is for tests and simulations. 0 takes random bytes
	// of the kernel.
	Seed uint64
	// AckDelay is how long a plain ACK may wait for data to ride behind.
	// 0 takes 20 us; negative sends ACKs at once.
	AckDelay time.Duration
	// Spin is how long an idle shard keeps looking for work at most before it
	// sleeps; while gaps in its work are longer, it gives up sooner.
	// 0 takes 200 us; negative never spins.
	Spin time.Duration
	// Manual leaves it to the caller to drive the device with Step: virtual
	// time, tests, simulation. No goroutine is started.
	Manual bool
	// NoTrains sends WRITEs as FIRST, MIDDLE and LAST even where trains of WRITE
	// ONLYs would suit the link's segmentation offload better.
	NoTrains bool
	// NoProbes leaves the last packets of a flight to the ACK timeout, as RNICs and
	// rdma_rxe do. Otherwise their requester asks what has become of them when an
	// answer is a few round trips late; a peer that is just slow sees a duplicate
	// request now and then.
	NoProbes bool
	// PinSourcePort has a connected QP take packets from one UDP source port only: that of
	// the first packet that fitted the connection, until the QP is reset or its address vector
	// is set again. To speak as the peer takes that port then, besides QP number and PSN: up to
	// 14 bits more to guess, none of a peer on link udp, which has port 4791 always. Leave it
	// off where peers change the port of a connection: an RNIC may be told to
	// (mlx5dv_modify_qp_udp_sport, LAG), or gets a new flow label. rdma_rxe and goroce keep it.
	PinSourcePort bool
	// OnOffloadOff, if set, is called when segmentation offload is given up for a
	// destination (see Device.OffloadOff). It must not block and not call the device.
	OnOffloadOff func(peer ib.GID)
	// ActiveMTU caps the path MTU that the port offers; 0 takes what the link's
	// interface allows.
	ActiveMTU ib.MTU
}

// Limits of the software device.
const (
	maxQPs      = 1<<16 - 32
	maxQPWR     = 1 << 15
	maxSGE      = 32
	maxInline   = 512
	maxCQs      = 1 << 16
	maxCQE      = 1 << 20
	maxMRs      = 1 << 20
	maxMWs      = 1 << 20
	maxPDs      = 1 << 16
	maxAHs      = 1 << 20
	maxSRQs     = 1 << 16
	maxXRCDs    = 1 << 16
	maxRdAtomic = 128

	maxMcastGroups = 256
	maxMcastQPs    = 256 // in one group

	// maxLate bounds the placements of a QP that wait for their worker. It is as much
	// as the requester of a peer has in flight at most: more would be dropped.
	maxLate = 1024

	maxMsgSize   = 1 << 31
	ackDelayNS   = 20_000
	spinNS       = 200_000
	eventBacklog = 1024
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
