package ib

import "github.com/goroce/goroce/ib/internal/seal"

// MRInit says what memory to register.
type MRInit struct {
	// Buf is the memory. The caller keeps it alive and unmoved until Close.
	Buf []byte
	// IOVA is the address by which SGEs and peers name Buf[0]; 0 takes the
	// address of Buf[0] in this process.
	IOVA uint64
	// Access holds the rights; RemoteWrite and RemoteAtomic need LocalWrite too.
	Access Access
}

// MR is a registered memory region.
type MR interface {
	seal.Sealed
	Addr() uint64 // address of the first byte, for SGE.Addr and SendWR.RemoteAddr
	Len() int
	LKey() Key
	RKey() Key
	// SGE names n bytes of the region from offset off on. Like a slice expression, it panics if they are not within the
	// region; they must be less than 4 GiB.
	SGE(off, n int) SGE
	// Rereg changes what the mask names: the memory (init.Buf and init.IOVA), the protection domain, or the access
	// rights (init.Access). No work request that uses the region may be outstanding. The keys may change. If Rereg
	// fails the region is as before; ErrBusy if windows are bound to it.
	Rereg(mask ReregMask, pd PD, init MRInit) error
	// Close revokes the keys. The device does not touch the memory after Close has returned. ErrBusy while windows are
	// bound to the region.
	Close() error
}

// ReregMask says what Rereg changes. Values are those of ibv_rereg_mr_flags.
type ReregMask uint8

// What Rereg may change.
const (
	ReregTranslation ReregMask = 1 << 0
	ReregPD          ReregMask = 1 << 1
	ReregAccess      ReregMask = 1 << 2
)

// MWType is a kind of memory window. Values are those of ibv_mw_type.
type MWType uint8

// Kinds of windows (IBTA 10.6.7).
const (
	// MWType1 windows are bound by a verb, MW.Bind, and belong to a PD.
	MWType1 MWType = 1
	// MWType2 windows are bound by a work request, BindMW, to one QP ("2B").
	MWType2 MWType = 2
)

// String returns "type 1" or "type 2".
func (t MWType) String() string { return name(mwTypeText[:], int(t), "MWType") }

var mwTypeText = [...]string{MWType1: "type 1", MWType2: "type 2"}

// MWBind names the part of a region that a window opens to peers, and with which access rights. The region needs the
// right BindWindows, and LocalWrite if the window lets peers write.
type MWBind struct {
	LKey   Key    // of the region
	Addr   uint64 // in the region's address space, see MRInit.IOVA
	Length uint64 // 0 closes a window of type 1
	Access Access // remote rights, and ZeroBased
}

// MW is a memory window: access rights for peers on a part of a region, which cost less to grant and revoke than a
// registration.
type MW interface {
	seal.Sealed
	Type() MWType
	// RKey returns the current R_Key. For type 2 its upper 24 bits identify the window, and each bind chooses the lower
	// 8: see NextKey.
	RKey() Key
	// Bind posts the binding of a window of type 1 on qp's send queue, as a
	// request with this ID and these flags. RKey returns the new key at once; it
	// opens the memory when the request completes.
	Bind(qp QP, id uint64, flags SendFlags, b MWBind) error
	Close() error
}

// NextKey returns the key after k for the same index. The next bind of a window of type 2 uses it (ibv_inc_rkey).
func NextKey(k Key) Key { return k&^0xFF | (k+1)&0xFF }
