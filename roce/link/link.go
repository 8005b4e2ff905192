// Package link is the interface between the software device and the drivers that send and receive its frames.
//
// A frame here is the UDP payload of a RoCEv2 packet: BTH to ICRC. Frames are sent and received in runs: consecutive
// frames of equal size, the last of which may be shorter, from one address and source port to one address. A run is
// what segmentation offload sends by one call, and what receive offload delivers by one.
//
// Drivers implement [Link]: mem (in one process, virtual time), udp (plain sockets), rawsock (AF_PACKET), afxdp
// (AF_XDP). Package wrap has Links that wrap other Links: faults, pcapng, trace, sealing, and loopback of frames to the
// host's own addresses. From the engine down, a device's stack is
//
// engine -> faults -> seal -> corruption -> pcapng, trace -> loopback -> driver
//
// The engine writes frames with four bytes left for the ICRC. Seal fills them in. It is below all wrappers that may
// split or reorder runs, and above the one that corrupts frames, because the ICRC covers the IPv4 identification, which
// depends on a frame's place in its run.
//
// Multicast: frames to a group (a GID that is a multicast IP address) are sent like all others. Every link that has
// joined the group ([Link].Join) receives them, including the sender's.
//
// Addresses may come and go while a link is open ([Link].AddLocal, RemoveLocal). The owner decides which addresses a
// link has; drivers do not watch their interfaces. Frames to an address that the link does not have are not received,
// and frames from one are dropped.
//
// A device of several shards has a link for each, on the same addresses. Each frame is received by one of them: if
// possible by the link of the QP's shard ([ShardOf]). Only the first link joins groups. An address is added to the
// first link first, then to the next, and removed in the same order, by one goroutine at a time.
//
// A Link has one owner at a time. Its methods must not be called concurrently, except Wake, Join, Leave, AddLocal,
// RemoveLocal and Close, which any goroutine may call, and Stats, which may be called during Wait.
package link

import (
	"errors"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Port is the UDP destination port of RoCEv2.
const Port = wire.Port

// ErrClosed is returned by Send, Recv, Wait, Join, Leave, AddLocal and RemoveLocal after Close. No other error means
// that the link has ended.
var ErrClosed = errors.New("link closed")

// IDRule says which IPv4 identifications a link gives to the frames that it sends.
type IDRule uint8

// Rules of IPv4 identifications.
const (
	// IDZero: every packet has 0.
	IDZero IDRule = iota
	// IDIndex: the n-th frame of a run has n, as in Linux's software segmentation of a run that starts at 0.
	IDIndex
	// IDFree: the driver builds the IP header and uses Run.ID plus the index.
	IDFree
)

// Caps are the capabilities of a link. They do not change while the link is open.
type Caps struct {
	Name      string   // "udp", "rawsock", "mem"
	NetIf     string   // network interface, empty if there is none
	MTU       int      // IP MTU of the interface when the link was opened, in bytes: packets must not be longer
	Local     []ib.GID // addresses when the link was opened, in the order of the GID table
	RunFrames int      // most frames in a run for Send; 1 without offload
	RunBytes  int      // most bytes in a run for Send
	ID        IDRule
	// Segments says that the kernel or the NIC cuts a run into packets, and numbers their IPv4 identifications from
	// that of the first on.
	Segments bool
	// FixedSrcPort is the UDP source port of all frames; 0 if the link uses Run.SrcPort.
	FixedSrcPort uint16
	// Keeps says that Link.Keep works.
	Keeps bool
	// Note says for people how the link was chosen and what it lacks: "no CAP_NET_RAW, so udp".
	Note string
}

// Run is one or more frames that are sent or received together.
type Run struct {
	Src, Dst     ib.GID // both IPv4-mapped or both IPv6; Dst may be a multicast group
	SrcPort      uint16
	TrafficClass uint8 // its ECN bits may have been set to CE on the way (wire.ECN)
	HopLimit     uint8
	FlowLabel    uint32

	// ID is the IPv4 identification of the first frame. KnownID says that Recv has read it from the IP header; a plain
	// UDP socket cannot.
	ID      uint16
	KnownID bool
	// Congested says that the receive buffer was more than half full when Recv took this run out of it, or that the
	// kernel has dropped frames in front of the run for lack of room (Stats.RxOverflow).
	Congested bool

	// Size is the length of every frame in Buf but the last, which may be shorter. The lengths are multiples of 4
	// bytes.
	Size int
	Buf  []byte
}

// Frames returns how many frames r holds.
func (r *Run) Frames() int {
	if r.Size <= 0 {
		return 0
	}
	return (len(r.Buf) + r.Size - 1) / r.Size
}

// Frame returns the i-th frame.
func (r *Run) Frame(i int) []byte {
	start := i * r.Size
	return r.Buf[start:min(start+r.Size, len(r.Buf))]
}

// Stats are the counters of a link since it was opened.
type Stats struct {
	TxRuns, TxFrames, TxBytes uint64
	RxRuns, RxFrames, RxBytes uint64
	TxErrors                  uint64 // frames that the kernel has refused (EPERM, ENOBUFS, EMSGSIZE ...)
	// received frames that Recv did not return: malformed outer headers, other addresses
	RxDropped  uint64
	RxOverflow uint64 // frames that the kernel has dropped for lack of buffers, if it tells
	RxForged   uint64 // received frames that were dropped because their source is an address of the link
	LastError  string // latest cause of TxErrors, for people
}

// Link sends and receives runs of frames. The argument now is the time of the engine's clock; only wrappers that delay
// frames use it.
type Link interface {
	Caps() Caps

	// Send sends the runs in order and returns how many it has taken. These are fewer than len(runs) only if the link
	// would block: the caller keeps the others and calls Wait with writable set. Frames that the kernel refuses, and
	// those from an address that the link does not have, count as taken, and as lost (Stats.TxErrors). Send does not
	// keep Buf, but a wrapper may write to it.
	Send(now ib.Instant, runs []Run) (int, error)

	// Recv stores up to len(runs) received runs, without blocking, and returns their number. Their Buf belongs to the
	// link and is valid until the next Recv (but see Keep).
	Recv(now ib.Instant, runs []Run) (int, error)

	// Keep gives the runs of the last Recv to the caller for good: the link receives into other memory from now on.
	// It allocates, so it is for rare cases. Without Caps.Keeps it does nothing: the buffers are those of a device.
	Keep()

	// Deadline returns when Recv or Send has something to do without new input, such as sending a delayed frame;
	// driver.Never for drivers.
	Deadline() ib.Instant

	// Wait blocks until a frame may be received, or if writable is set until Send may proceed, or until Wake, or for at
	// most d (no limit if d is negative).
	Wait(d time.Duration, writable bool) error

	// Wake ends a Wait that is under way, or the next one. Any goroutine may call it. Several calls may count as one.
	Wake()

	// Watch makes the file descriptor fd end Wait whenever it is readable, as long as the link is open. The caller
	// keeps fd, and closes it after the link. A link that cannot wait for descriptors returns an error that matches
	// errors.ErrUnsupported.
	Watch(fd int) error

	// Join makes the link a member of a multicast group. Each frame to the group that passes its network is then
	// received once, with the group as Run.Dst, including frames that the link itself sends. Frames to different
	// groups, or to the link's address, may overtake one another. Sending to a group needs no membership. Any goroutine
	// may call Join and Leave.
	//
	// The error is an *ib.AttrError that wraps ib.ErrInvalid for a GID that is not a multicast address, for one of an
	// IP version of which the link has no address, and for a group that is joined already. A caller with several users
	// of a group counts them.
	Join(group ib.GID) error

	// Leave ends the membership. Frames that have arrived before may still be received. A group that is not joined is
	// an error as for Join. Close leaves all groups.
	Leave(group ib.GID) error

	// AddLocal adds an address, which the interface must have: from now on the link receives frames to it, and may send
	// from it. RemoveLocal removes an address; frames that have arrived before may still be received. Any goroutine may
	// call them. They make system calls, which may take milliseconds. Memberships in groups are kept.
	//
	// The error is an *ib.AttrError that wraps ib.ErrInvalid when adding a multicast group or an address that the link
	// has, and when removing one that it does not have. It is a *port.Error if another program has the port at the
	// address, and the kernel's error if the address cannot be used yet, such as a tentative IPv6 address. After an
	// error the link is as before.
	AddLocal(gid ib.GID) error
	RemoveLocal(gid ib.GID) error

	Stats() Stats
	Close() error
}
