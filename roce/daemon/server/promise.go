package server

import (
	"math"
	"math/bits"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
)

// A client is told as many objects of each kind as it can have, although what a device has is for all clients, and
// accounts and the machine have limits of their own. The number is what each of two programs can have at a time, of one
// user or of two, if they have little else and nobody has anything: a program alone may get more.

// costs is what objects take of the resources with limits.
type costs [numResources]int64

// Bytes that an object takes at least.
const (
	ringBytes  = 4096 // a ring, or both rings of a QP: a page
	entryBytes = 64   // an entry of a CQ
)

// baseCosts is what a client takes for itself, and for a PD, a CQ and a channel.
var baseCosts = costs{heap: greetedHeap + sessionHeap + 4*sessionShardHeap + 8<<10, pinned: 64 << 10, mappings: 8,
	cqEntries: 16, pds: 1}

// costsOf has the least that an object of each kind takes.
var costsOf = map[resource]costs{
	qps: {qps: 1, mappings: 1, pinned: ringBytes, heap: device.QPHeap(&ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1,
		MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 256}) + device.QPHeapLeastLate() + bellsHeap/bellBlock},
	cqs:   {cqs: 1, mappings: 1, pinned: ringBytes, cqEntries: 2, heap: heapBytes[cqs]},
	srqs:  {srqs: 1, mappings: 1, pinned: ringBytes, heap: heapBytes[srqs]},
	mrs:   {mrs: 1, heap: heapBytes[mrs]},
	mws:   {mws: 1, heap: heapBytes[mws]},
	pds:   {pds: 1, heap: heapBytes[pds]},
	ahs:   {ahs: 1, heap: heapBytes[ahs]},
	xrcds: {xrcds: 1, heap: heapBytes[xrcds]},

	cqEntries: {cqEntries: 1, pinned: entryBytes},
}

const leastCQE = 1024

// programs is how many programs the numbers hold for. As a user may have half of what all users share, it is half of
// that for each.
const programs = 2

// promised returns how many objects of these costs a client may count on.
func (a *accounts) promised(c costs) int {
	most := int64(math.MaxInt64)
	atMost := func(limit, base, each int64) {
		if limit > 0 && each > 0 {
			most = min(most, max(limit-base, 0)/each)
		}
	}
	var scarceEach, scarceBase [numScarce]int64
	for what, each := range c {
		atMost(a.client[what], baseCosts[what], each)
		atMost(a.user[what]/programs, baseCosts[what], each)
		scarceEach[scarceOf[what]] += each
		scarceBase[scarceOf[what]] += baseCosts[what]
	}
	for kind, s := range a.scarce {
		if scarceKind(kind) != plenty {
			atMost(s.most/2/programs, scarceBase[kind], scarceEach[kind])
		}
	}
	return int(max(most, 1))
}

// promise lowers the attributes of a device to what a client may count on.
func (a *accounts) promise(attr ib.DeviceAttr) ib.DeviceAttr {
	a.mu.Lock()
	defer a.mu.Unlock()
	for what, n := range map[resource]*int{qps: &attr.MaxQP, mrs: &attr.MaxMR, mws: &attr.MaxMW, cqs: &attr.MaxCQ,
		pds: &attr.MaxPD, srqs: &attr.MaxSRQ, ahs: &attr.MaxAH, xrcds: &attr.MaxXRCD} {
		*n = min(*n/2/programs, a.promised(costsOf[what]))
	}
	attr.MaxQP = min(attr.MaxQP, perShard)
	attr.MaxMcastGroup, attr.MaxMcastQP = attr.MaxMcastGroup/2/programs, attr.MaxMcastQP/2/programs
	// Two CQs of as many, for sends and for receives. Rings have a power of two of entries, one of which is unused.
	// With less than leastCQE programs would not come to the refusal, which names the limit.
	attr.MaxCQE = min(attr.MaxCQE, 1<<(bits.Len(uint(max(a.promised(costsOf[cqEntries])/2, leastCQE)))-1)-1)
	return attr
}
