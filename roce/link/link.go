// Package link is the seam between the software device and whatever carries its
// frames.
//
// A frame here is the UDP payload of a RoCEv2 packet: BTH to ICRC. Frames travel
// in runs: consecutive frames of equal size, plus at most one shorter tail, from
// one address and source port to one address. A run is what segmentation offload
// can send as one call, and what receive offload delivers as one.
//
// Drivers implement [Link]: mem (in one process, virtual time), udp (plain
// sockets), rawsock (AF_PACKET), afxdp (AF_XDP). Package wrap holds Links around Links: faults,
// pcapng, trace, sealing, and the turn that brings frames to one's own address
// back without a wire. From the engine down, a device's stack is
//
//	engine -> faults -> seal -> corruption -> pcapng, trace -> turn -> driver
//
// The engine writes frames with four bytes left for the ICRC. Seal fills these
// in, below the last wrapper that may split or reorder runs and above the one
// that corrupts bytes on purpose, because the ICRC covers the IPv4
// identification and that depends on a frame's place in its run.
//
// Multicast: frames to a group, a GID that is a multicast IP address, are sent as
// any others and received by every link that joined the group ([Link].Join), the
// sender's included.
//
// Addresses come and go while a link is open ([Link].AddLocal, RemoveLocal). Which ones
// a link should have is for its owner to say: a driver does not watch its interface.
// What comes to an address that the link does not have is not received, and what is
// sent from one is lost.
//
// A device of several shards has a link for each, on the same addresses. Between them
// these receive each frame once: where it can be, by the link of the QP's shard
// ([ShardOf]). Only the first one joins groups. An address is added to the first link
// first, then to the next, and removed in the same order, by one goroutine at a time.
//
// A Link has one owner at a time: apart from Wake, Join, Leave, AddLocal and
// RemoveLocal, which any goroutine may call, Stats, which may be called during Wait,
// and Close, its methods are never called concurrently.
package link

import (
	"errors"
	"time"

	"github.com/goroce/goroce/ib"
)

// Port is the UDP destination port of RoCEv2.
const Port = 4791

// ErrClosed is returned by Send, Recv, Wait, Join, Leave, AddLocal and RemoveLocal after
// Close. It is the only error that a device treats as the end of the link.
var ErrClosed = errors.New("link closed")

// IDRule says what IPv4 identification the frames that a link sends will carry.
type IDRule uint8

// Identification rules.
const (
	// IDZero: every packet carries 0.
	IDZero IDRule = iota
	// IDIndex: the n-th frame of a run carries n, as Linux's software
	// segmentation numbers a run that starts at 0.
	IDIndex
	// IDFree: the driver builds the IP header and sends Run.ID plus the index.
	IDFree
)

// Caps says what a link can do. It does not change while the link is open.
type Caps struct {
	Name      string   // "udp", "rawsock", "mem"
	NetIf     string   // network interface, empty if there is none
	MTU       int      // IP MTU of the interface when the link was opened, in bytes: no packet is longer
	Local     []ib.GID // own addresses when the link was opened, in the order of the GID table
	RunFrames int      // most frames in a run that Send takes; 1 without offload
	RunBytes  int      // most bytes in a run that Send takes
	ID        IDRule
	// Segments says that runs leave in one piece: the kernel or the NIC makes
	// packets of it, and numbers their IPv4 identifications from the first on.
	Segments bool
	// FixedSrcPort is the UDP source port of all that leaves; 0 if Run.SrcPort
	// is obeyed.
	FixedSrcPort uint16
	// Note says in a few words how the link was chosen and what it lacks, for
	// people: "no CAP_NET_RAW, so udp".
	Note string
}

// Run is one or more frames that travel together.
type Run struct {
	Src, Dst     ib.GID // both IPv4-mapped or both IPv6; Dst may be a multicast group
	SrcPort      uint16
	TrafficClass uint8
	HopLimit     uint8
	FlowLabel    uint32

	// ID is the IPv4 identification of the first frame. KnownID says that Recv
	// saw it in the IP header; a plain UDP socket does not show it.
	ID      uint16
	KnownID bool

	// Size is the length of every frame in Buf but the last, which may be
	// shorter. Frames are a multiple of 4 bytes long.
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

// Stats counts what passed a link since it was opened.
type Stats struct {
	TxRuns, TxFrames, TxBytes uint64
	RxRuns, RxFrames, RxBytes uint64
	TxErrors                  uint64 // frames lost because the kernel refused them (EPERM, ENOBUFS, EMSGSIZE ...)
	RxDropped                 uint64 // frames dropped before Recv returned them: malformed outer headers, not ours
	RxOverflow                uint64 // frames that the kernel dropped for want of buffer, where it tells
	RxForged                  uint64 // frames dropped because they claim an address of the link's own as their source
	LastError                 string // the latest TxErrors cause, for people
}

// Link carries runs of frames. now is the engine's clock; only wrappers that
// delay frames look at it.
type Link interface {
	Caps() Caps

	// Send sends the runs in order and returns how many it took. It takes fewer
	// only if the link would block: the caller keeps the rest and calls Wait
	// with writable set. Frames that the kernel refuses, and those from an address
	// that is not the link's, count as taken and lost (Stats.TxErrors). Buf stays the
	// caller's: it is not kept after Send returns, but a wrapper may write to it.
	Send(now ib.Instant, runs []Run) (int, error)

	// Recv fills up to len(runs) received runs without blocking and returns how
	// many. Their Buf is the link's and stays valid until the next Recv.
	Recv(now ib.Instant, runs []Run) (int, error)

	// Deadline is the next Instant at which Recv or Send has something to do
	// without outside help, such as a delayed frame; ib.Never for drivers.
	Deadline() ib.Instant

	// Wait blocks until a frame may be received, until Send may proceed if
	// writable is set, until Wake, or for at most d (negative: no limit).
	Wait(d time.Duration, writable bool) error

	// Wake ends a Wait that is under way, or the next one. Any goroutine may
	// call it; many calls may count as one.
	Wake()

	// Watch makes fd, a file descriptor, end Wait whenever it can be read, as long as
	// the link is open. fd stays the caller's, who closes it after the link. A link
	// that waits for no descriptors returns an error that matches
	// errors.ErrUnsupported.
	Watch(fd int) error

	// Join makes the link a member of a multicast group: each frame to the group
	// that passes its network is received once, with the group as Run.Dst, and
	// so is each that the link itself sends there. Frames to different groups,
	// or to the link's own address, may overtake one another. To send to a group
	// takes no membership. Any goroutine may call Join and Leave.
	//
	// An *ib.AttrError that wraps ib.ErrInvalid refuses a GID that is no
	// multicast address, one of an IP version that the link has no address of,
	// and a group that is joined already: who has several users of a group
	// counts them.
	Join(group ib.GID) error

	// Leave ends the membership. Frames that arrived before it may still be
	// received. A group that is not joined is refused as by Join. Close leaves
	// all groups.
	Leave(group ib.GID) error

	// AddLocal gives the link one more address, which its interface has: from now on
	// it receives what comes there, and may send from it. RemoveLocal takes one away;
	// what has arrived there before may still be received. Any goroutine may call
	// them; they ask the kernel, and may take milliseconds. Both keep the groups that
	// are joined.
	//
	// An *ib.AttrError that wraps ib.ErrInvalid refuses to add a multicast group or an
	// address that the link has, and to remove one that it has not. An address whose
	// port another program has is a *port.Error; one that cannot be used yet, such as
	// a tentative one of IPv6, is the kernel's error. The link is as before then.
	AddLocal(gid ib.GID) error
	RemoveLocal(gid ib.GID) error

	Stats() Stats
	Close() error
}
