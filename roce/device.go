package roce

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/trace/story"
)

// Device is a software RDMA device on one link or several.
type Device interface {
	ib.CMDevice

	// Step drives a device that was opened with Options.Manual: it receives, runs timers that are due at now, and
	// sends. It reports whether there may be more to do at once.
	Step(now ib.Instant) (more bool)
	// Deadline returns when Step must be called next if nothing arrives before.
	Deadline() ib.Instant

	// Link describes the device's link, the first one if there are several, with its current addresses.
	Link() link.Caps
	// Shards returns how many shards the device has.
	Shards() int
	// Stats returns the current counters, summed over all shards.
	Stats() Stats
	// Failures returns the latest failures of the QPs that this process has made on the device, oldest first, at most
	// 64, each with the story of its QP's flight recorder. They stay when the QPs are closed. That the application has
	// moved a QP to ERR is no failure.
	Failures() []Story
	// Failure returns what the flight recorder of an open QP has, and why the QP failed last, whether it has or not. A
	// QP gets a recorder with its first packet and keeps its last 255 packets, requests and events. 1,024 QPs of a
	// device have one; QPs beyond that take those of QPs that are idle, or have none.
	Failure(qp ib.QP) (Story, error)
	// Offload returns the state of the device's segmentation offload.
	Offload() Offload
	// OffloadOff returns the destinations to which frames are not sent in runs for now, because runs repeatedly did
	// not arrive there while single frames did. The cause is a NIC that sets identifications of segments in its own
	// way, for all destinations, or a lying peer, for that peer only. Runs to each destination are tried again after
	// ten minutes.
	OffloadOff() []ib.GID

	// SetAddresses sets the addresses of the device, all of which are addresses of its network interface. Each address
	// that is added or removed changes the GID table and raises an EventGIDChange. An address that comes back gets its
	// old index unless another address has it; a new address gets the first empty index. Other rows do not change.
	//
	// Packets of a QP whose address was removed are not delivered: its requests fail when its retries are exhausted.
	// If the address comes back before that, the QP continues normally. Linux differs. It ends the next request of an
	// rdma_rxe QP with a local QP operation error (rxe_req.c), and keeps an index in use for as long as a QP refers to
	// it, so that the address comes back at another index (ib_core, cache.c).
	//
	// The error joins the errors of all addresses that could not be added or removed; the other addresses are set. The
	// caller may try again.
	SetAddresses(gids []ib.GID) error
	// SetMTU tells the device the IP MTU of its network interface, in bytes. The port's active MTU follows. Its
	// minimum is 256, as in Linux (rxe_set_mtu), its maximum the active MTU when the device was opened, for which
	// buffers were allocated. QPs that have a path MTU keep it; datagram QPs follow the active MTU. Verbs have no
	// event for this.
	SetMTU(bytes int)
	// SetPortState tells the device that its network interface came up or went down. It raises EventPortActive or
	// EventPortErr if the state changes.
	SetPortState(state ib.PortState)
	// SetPhys tells the device the state of its network interface's link, and its speed in Mb/s: 0 if it is not known.
	// Verbs have no event for this.
	SetPhys(state ib.PhysState, speed int)
	// SetNetIf tells the device the name that its network interface has, which QueryPort and GIDs return: an interface
	// may be renamed. It raises EventGIDChange if the name changes, as each row of the GID table says another one.
	SetNetIf(name string)
	// Unreachable tells the device that packets to a peer do not arrive, with the Linux error number of the reason.
	// Requests of the connection manager to that peer end with it.
	Unreachable(peer ib.GID, errno int)
}

// Open makes a device on l and owns l from then on. Unless Options.Manual is set a goroutine drives it.
func Open(l link.Link, opts Options) (Device, error) { return OpenShards([]link.Link{l}, opts) }

// OpenShards makes a device of several shards, each of which runs on a link of its own, on a goroutine of its own. The
// number of links is a power of two, up to link.MaxShards; all have the same addresses and limits. Exactly one of them
// receives each packet, if possible the one whose index link.ShardOf returns. The device joins multicast groups on the
// first link only.
//
// CreateCQ assigns home shards to CQs in turn unless CQInit.CompVector names one, and a QP is on the home shard of its
// send CQ. QPs with different send CQs can be served in parallel. On one shard there can be (65,536 - 32) / len(links)
// QPs.
func OpenShards(links []link.Link, opts Options) (Device, error) {
	d, err := device.OpenShards(links, device.Options(opts))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Stats counts what a device did since it was opened, under the names of rdma_rxe's counters where it has them.
// Counters and PortCounters list them.
type Stats = device.Stats

// Story is why a QP has failed, with what its flight recorder has.
type Story = story.Story

// Histogram counts durations in buckets whose bounds double: bucket i has those below 2^i us, the last one all longer.
type Histogram = device.Histogram

// HistogramBounds is how many bounds a Histogram has, from 1 us to 2^20 us; it has one bucket more.
const HistogramBounds = device.HistogramBounds

// Counter is a named counter.
type Counter = device.Counter

// Offload says whether the device uses segmentation offload: frames are sent in runs that the kernel or the NIC splits
// and numbers.
type Offload = device.Offload

// States of Device.Offload.
const (
	OffloadNone = device.OffloadNone // the link has no segmentation offload
	OffloadOn   = device.OffloadOn
	OffloadOff  = device.OffloadOff // given up for some destinations: see Device.OffloadOff
)
