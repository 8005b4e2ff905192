package roce

import (
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
)

// Options adjust a device. The zero value suits most applications.
type Options struct {
	// Name is the device's name, "goroce0" by default.
	Name string
	// Seed makes keys, QP numbers and the connection manager's numbers repeatable, and
	// predictable for anyone who knows the seed: it is for tests and simulations. 0 takes
	// random bytes from the kernel.
	Seed uint64
	// AckDelay is how long a plain ACK may be delayed to be coalesced with outgoing data.
	// 0 takes 20 us; negative sends ACKs at once.
	AckDelay time.Duration
	// Spin is how long an idle shard spins at most before it sleeps; while gaps in
	// its work are longer than that, it spins for a shorter time.
	// 0 takes 200 us; negative never spins.
	Spin time.Duration
	// Manual makes the caller drive the device with Step, in virtual time, for tests
	// and simulations. No goroutine is started.
	Manual bool
	// Clock, if set, is the time that verbs read between two calls of Step, with Manual; it never goes back. Without it
	// they read the time of the last Step.
	Clock func() ib.Instant
	// NoTrains sends WRITEs as FIRST, MIDDLE and LAST even where trains of WRITE
	// ONLYs would suit the link's segmentation offload better.
	NoTrains bool
	// NoProbes leaves recovery of the last packets of a flight to the ACK timeout, as RNICs
	// and rdma_rxe do. If false, the requester sends a tail probe when an answer is a few
	// round trips late; a peer that is merely slow gets a duplicate request now and then.
	NoProbes bool
	// Congestion is the congestion control: "cubic", the default, or "dcqcn", that of RoCE NICs, for networks whose
	// switches mark packets (ECN).
	Congestion string
	// InitialWindow is how much may be in flight to a destination at first, in packets, where that is known: there is
	// no slow start then. 0 starts with 16 and finds it.
	InitialWindow int
	// PinSourcePort makes a connected QP accept packets from one UDP source port only: that of
	// the first packet that advanced the connection, until the QP is reset or its address vector
	// is set again. To forge packets of the peer one must then guess that port besides QP number
	// and PSN: up to 14 bits more; none for a peer on link udp, whose port is always 4791. Leave
	// it off if peers change the port of a connection: an RNIC does so when it is configured to
	// (mlx5dv_modify_qp_udp_sport, LAG) or gets a new flow label. rdma_rxe and goroce keep it.
	PinSourcePort bool
	// OnOffloadOff, if set, is called when segmentation offload is given up for a
	// destination (see Device.OffloadOff). It must not block and not call the device.
	OnOffloadOff func(peer ib.GID)
	// OnStall, if set, is called when a shard has done nothing for at least a second beyond the time when it should
	// have: its thread had no processor, or the process was stopped. Peers that had requests under way here may have
	// run out of retries. It must not block and not call the device.
	OnStall func(late time.Duration)
	// ActiveMTU caps the path MTU that the port offers; 0 takes what the link's
	// interface allows.
	ActiveMTU ib.MTU
	// Route, if set, finds the largest path MTU that passes on the way to a peer, 0 if that is
	// not known, or a Linux error number if there is no way. want is what the connection would
	// have otherwise, 0 for datagram services. It is called for every CMID.ResolveRoute, on a
	// goroutine of its own, at most 32 at a time for a CMOwner, and may take a moment.
	Route func(src, dst netip.Addr, want ib.MTU) (mtu ib.MTU, errno int)
	// Source, if set, returns the address from which the host's routes lead to dst, the zero value if that is not
	// known. It chooses among the devices of a daemon when a program connects by address without a source. It may
	// take a moment.
	Source func(dst netip.Addr) netip.Addr
	// GUID is the node GUID; 0 makes one of the addresses that the link has when the device is opened.
	GUID uint64
}
