package abi

import (
	"fmt"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Version is the protocol version of this package. A daemon refuses clients that do not support it.
const Version = 4

// Magic begins a Hello: "goro" in little-endian memory.
const Magic = 0x6F726F67

// MaxMessage bounds a message, in bytes, and MaxFDs the descriptors that it carries.
const (
	MaxMessage = 16 << 10
	MaxFDs     = 16
)

// Header begins every message on the control socket. A reply has the Op and Seq of its
// request.
type Header struct {
	Op     Op
	Status Status // of a reply; 0 in requests
	Seq    uint32 // chosen by the client
}

// HeaderLen is the length of a Header in bytes; the body follows.
const HeaderLen = int(unsafe.Sizeof(Header{}))

// Op is the kind of a request.
type Op uint16

// Requests. Their bodies are the types of this package that are named after them, or Object.
const (
	OpHello Op = 1 + iota
	OpOpen
	OpQueryPort
	OpGIDs
	OpPKey
	OpClock
	OpAllocPD
	OpAllocXRCD
	OpCreateChannel
	OpCreateCQ
	OpResizeCQ
	OpRegMR
	OpReregMR
	OpAllocMW
	OpCreateAH
	OpModifyAH
	OpCreateSRQ
	OpModifySRQ
	OpQuerySRQ
	OpCreateQP
	OpModifyQP
	OpQueryQP
	OpAttach
	OpDetach
	OpClose
	OpOpenCM
	OpCreateCMID
	OpCMEvent
	OpCMBind
	OpCMListen
	OpCMResolveAddr
	OpCMResolveRoute
	OpCMConnect
	OpCMAccept
	OpCMEstablish
	OpCMReject
	OpCMDelay
	OpCMDisconnect
	OpCMNotify
	OpCMJoin
	OpCMLeave
	OpCMInitQPAttr
	OpCMSetOption
	OpCMQuery
	OpCMMigrate
	OpQueryDevice
	OpCounters
	OpOpenQP
	OpHold
	OpShareDoorbells
	OpShareMemory
	OpQPFailure
	numOps
)

var opText = [...]string{OpHello: "hello", OpOpen: "open device", OpQueryPort: "query port", OpGIDs: "query GIDs",
	OpPKey:  "query P_Key",
	OpClock: "read clock", OpAllocPD: "allocate PD", OpAllocXRCD: "allocate XRCD", OpCreateChannel: "create channel",
	OpCreateCQ: "create CQ", OpResizeCQ: "resize CQ", OpRegMR: "register memory", OpReregMR: "re-register memory",
	OpAllocMW: "allocate MW", OpCreateAH: "create AH", OpModifyAH: "modify AH", OpCreateSRQ: "create SRQ",
	OpModifySRQ: "modify SRQ", OpQuerySRQ: "query SRQ", OpCreateQP: "create QP", OpModifyQP: "modify QP",
	OpQueryQP: "query QP",
	OpAttach:  "attach multicast", OpDetach: "detach multicast",
	OpClose:  "close",
	OpOpenCM: "open connection manager", OpCreateCMID: "create CM ID", OpCMEvent: "take CM event",
	OpCMBind:   "bind CM ID",
	OpCMListen: "listen", OpCMResolveAddr: "resolve address", OpCMResolveRoute: "resolve route", OpCMConnect: "connect",
	OpCMAccept: "accept", OpCMEstablish: "establish", OpCMReject: "reject", OpCMDelay: "delay",
	OpCMDisconnect: "disconnect",
	OpCMNotify:     "notify", OpCMJoin: "join multicast", OpCMLeave: "leave multicast",
	OpCMInitQPAttr: "init QP attributes",
	OpCMSetOption:  "set option", OpCMQuery: "query CM ID", OpCMMigrate: "migrate CM ID",
	OpQueryDevice: "query device", OpCounters: "read counters", OpOpenQP: "open QP",
	OpHold: "hold", OpShareDoorbells: "share doorbells", OpShareMemory: "share memory",
	OpQPFailure: "query QP failure"}

// Ops returns all requests.
func Ops() (all []Op) {
	for o := OpHello; o < numOps; o++ {
		all = append(all, o)
	}
	return all
}

// String returns the name of the request.
func (o Op) String() string {
	if o > 0 && o < numOps {
		return opText[o]
	}
	return fmt.Sprintf("request %d", uint16(o))
}

// Put appends v, a struct of this package, as it lies in memory.
func Put[T any](b []byte, v *T) []byte {
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))...)
}

// Get is the inverse of Put. b must be exactly as long as a T.
func Get[T any](b []byte) (v T, err error) {
	if len(b) != int(unsafe.Sizeof(v)) {
		return v, driver.Refuse(fmt.Sprintf("read %T", v), "length", len(b), fmt.Sprintf("%d bytes", unsafe.Sizeof(v)),
			ib.ErrInvalid)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), len(b)), b)
	return v, nil
}
