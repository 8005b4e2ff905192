package roce

import (
	"container/list"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// CMLimits bound the objects of an owner in a port's connection manager. Zero fields take the
// defaults.
type CMLimits struct {
	IDs       int // of all kinds, connections included (default 65,536)
	Listeners int // IDs that listen (default 4,096)
	HalfOpen  int // peers' requests in the handshake; a new one replaces the oldest (default 4,096)
	Backlog   int // unread requests of one listener (default 4,096); others are ignored, and peers repeat them

	// Charge is told of each change, in bytes, of the memory that the owner's IDs use, unread events included. An error
	// refuses an increase. It is called with locks held: it must neither block nor call the device. nil allows all.
	Charge func(bytes int64) error

	// MayBind returns an error if the owner may not bind a port; nil allows all ports. It is
	// called with locks held: it must neither block nor call the device.
	MayBind func(ib.PortSpace, uint16) error
}

// Defaults of CMLimits.
const (
	defaultCMIDs       = 1 << 16
	defaultCMListeners = 1 << 12
	defaultCMHalfOpen  = 1 << 12
	defaultCMBacklog   = 1 << 12
)

// What an ID uses, with a few unread events, and with a connection in the state machine or its listener there; and what
// a membership in a group adds, with its event. Measured (TestHeap of roce/daemon/server) and rounded up.
const (
	cmIDHeap    = 3 << 10
	cmGroupHeap = 1 << 10
)

// CMOwner is an account: it counts the objects of all channels that were opened for it.
type CMOwner struct {
	routes chan struct{} // has an item for each running call of Options.Route

	// Guarded by cmPort.mu.
	limits    CMLimits
	ids       int
	listeners int
	half      *list.List // of *CMID, the oldest first
}

// NewCMOwner makes an account for a user or a process.
func (d *Device) NewCMOwner(l CMLimits) *CMOwner {
	return &CMOwner{routes: make(chan struct{}, maxRoutes), limits: l.orDefaults(), half: list.New()}
}

// SetCMLimits changes the limits of an account. An account above the new limits keeps its
// objects, but gets no more; listeners keep their backlogs.
func (d *Device) SetCMLimits(o *CMOwner, l CMLimits) {
	d.cm.mu.Lock()
	defer d.cm.mu.Unlock()
	o.limits = l.orDefaults()
}

func (l CMLimits) orDefaults() CMLimits {
	for _, f := range []struct {
		v   *int
		def int
	}{{&l.IDs, defaultCMIDs}, {&l.Listeners, defaultCMListeners}, {&l.HalfOpen, defaultCMHalfOpen}, {&l.Backlog, defaultCMBacklog}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	return l
}

// OpenCM opens an event channel of the port's connection manager for this process.
func (d *Device) OpenCM() (ib.CM, error) {
	ch, err := d.OpenCMFor(d.cm.own, nil)
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// OpenCMFor opens an event channel on the account of o. Its IDs may name QPs of tenant t
// only.
func (d *Device) OpenCMFor(o *CMOwner, t Tenant) (*CM, error) {
	p := d.cm
	if err := p.lock("open connection manager"); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	ch := &CM{port: p, owner: o, tenant: t, ids: list.New(), events: list.New(), ready: make(chan struct{}, 1),
		done: make(chan struct{})}
	ch.at = p.channels.PushBack(ch)
	return ch, nil
}

// charge tells the account's owner of more memory, which it may refuse, or less.
func (o *CMOwner) charge(bytes int64) error {
	if o.limits.Charge == nil {
		return nil
	}
	return o.limits.Charge(bytes)
}

// takeID counts one more ID, if the owner may have it.
func (o *CMOwner) takeID(op string) error {
	if o.ids >= o.limits.IDs {
		return limitError(op, "IDs", o.limits.IDs)
	}
	if err := o.charge(cmIDHeap); err != nil {
		return err
	}
	o.ids++
	return nil
}

// giveID undoes takeID.
func (o *CMOwner) giveID() {
	o.ids--
	_ = o.charge(-cmIDHeap)
}

// takeGroup counts one more membership of an ID, if the owner may have it.
func (o *CMOwner) takeGroup() error { return o.charge(cmGroupHeap) }

// giveGroups undoes takeGroup n times.
func (o *CMOwner) giveGroups(n int) { _ = o.charge(-cmGroupHeap * int64(n)) }

// checkQP refuses a QP that is not the tenant's, or has another type than the ID. If an
// application could name another's QP, the peer would end that QP's connection as stale (IBTA
// 12.9.8.3.1).
func (ch *CM) checkQP(op string, num ib.QPN, typ ib.QPType) error {
	q, ok := ch.port.dev.byNum.Load(num)
	if ok && includes(q.(*QP).pd.tenant, ch.tenant) && connects(typ, q.(*QP).typ) {
		return nil
	}
	return ib.Refuse(op, "QPN", fmt.Sprintf("%#x", uint32(num)),
		fmt.Sprintf("an open QP of yours of type %v", typ), ib.ErrInvalid)
}

// connects reports whether an ID of one type may connect a QP of another. IDs of XRC QPs have type RC, as in
// librdmacm. A UD QP is allowed because UCX names one that carries no data: it only reserves the QP number for the
// connection. Linux does not check the type.
func connects(id, qp ib.QPType) bool {
	return id == qp || id == ib.RC && (qp == ib.XRCINI || qp == ib.XRCTGT || qp == ib.UD)
}

// toHalf counts a peer's request as half open. At the limit it evicts the owner's oldest one.
func (o *CMOwner) toHalf(id *CMID) {
	if o.half.Len() >= o.limits.HalfOpen {
		oldest := o.half.Front().Value.(*CMID)
		oldest.evict()
	}
	id.inHalf = o.half.PushBack(id)
}

// notHalf removes a request from the half-open ones, if it is one.
func (o *CMOwner) notHalf(id *CMID) {
	if id.inHalf != nil {
		o.half.Remove(id.inHalf)
		id.inHalf = nil
	}
}
