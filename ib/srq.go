package ib

import "github.com/goroce/goroce/ib/internal/seal"

// SRQType is a kind of shared receive queue. Values are those of ibv_srq_type.
type SRQType uint8

// Kinds of shared receive queues.
const (
	SRQBasic SRQType = 0 // for RC, UC and UD QPs that are created on it
	SRQXRC   SRQType = 1 // named by number in the requests to an XRC target
)

// String returns the kind's name.
func (t SRQType) String() string { return name(srqTypeText[:], int(t), "SRQType") }

var srqTypeText = [...]string{SRQBasic: "basic", SRQXRC: "XRC"}

// SRQInit says what shared receive queue to create.
type SRQInit struct {
	Type SRQType
	SRQAttr
	XRCD XRCD // SRQXRC: the domain
	CQ   CQ   // SRQXRC: where receives complete
}

// SRQAttr holds the attributes of Modify and Query.
type SRQAttr struct {
	MaxWR  int // receives that it holds; rounded up to a power of two
	MaxSGE int // SGEs of each; fixed at creation
	// Limit arms EventSRQLimit, which is raised once, when fewer than Limit receives are left. 0 disarms it.
	Limit int
}

// SRQAttrMask says what SRQ.Modify changes. Values are those of ibv_srq_attr_mask.
type SRQAttrMask uint8

// Attributes of SRQ.Modify.
const (
	SRQMaxWR SRQAttrMask = 1 << 0
	SRQLimit SRQAttrMask = 1 << 1
)

// SRQ is a shared receive queue.
type SRQ interface {
	seal.Sealed
	// Num returns the number by which peers name an XRC SRQ in their requests (SendWR.RemoteSRQ); 0 for a basic SRQ.
	Num() uint32
	Modify(attr SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	// PostRecv posts receive requests, as QP.PostRecv does.
	PostRecv(wrs []RecvWR) (int, error)
	Close() error
}

// XRCD is an XRC domain: requests to an XRC target QP may name only SRQs of the QP's own domain.
type XRCD interface {
	seal.Sealed
	Close() error
}
