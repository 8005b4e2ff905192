package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

var _ ib.CMDevice = (*Device)(nil)

// cmChannel is an event channel of the connection manager of the daemon's device.
type cmChannel struct {
	object
	socket  *abi.File
	signals chan struct{} // has an item if there is, or was, an event
	shut    chan struct{}
	once    sync.Once

	mu  sync.Mutex
	ids map[*cmID]struct{} // that are on the channel; nil after Close
}

// OpenCM opens an event channel.
func (d *Device) OpenCM() (ib.CM, error) {
	if err := d.err(abi.OpOpenCM.String()); err != nil {
		return nil, err
	}
	r, fds, err := ask[abi.Object](d.link, abi.OpOpenCM, struct{}{}, 1)
	if err != nil {
		return nil, err
	}
	c := &cmChannel{object: object{dev: d, kind: abi.KindCMChannel, handle: r.Handle},
		socket: d.link.conn.NewFile(fds[0], "events"), signals: make(chan struct{}, 1), shut: make(chan struct{}),
		ids: map[*cmID]struct{}{}}
	d.keep(r.Handle, c)
	go c.listen()
	return c, nil
}

// listen reads event signals until the socket ends. It passes on one at a time, to a caller of
// NextEvent; further signals stay in the socket.
func (c *cmChannel) listen() {
	buf := make([]byte, 64)
	for {
		if n, err := c.socket.Read(buf); err != nil || n == 0 {
			return
		}
		select {
		case c.signals <- struct{}{}:
		case <-c.shut:
			return
		}
	}
}

// NextEvent waits for an event.
func (c *cmChannel) NextEvent(ctx context.Context) (ib.CMEvent, error) {
	const op = "wait for an event of the connection manager"
	for {
		if err := c.err(op); err != nil {
			return ib.CMEvent{}, err
		}
		var ended error
		select {
		case <-c.signals:
		default:
			ended = c.wait(ctx, op)
		}
		// There may be an event whose signal was not read yet, or has woken another goroutine.
		if ev, err := c.take(); ev != nil || err != nil {
			return *cmp.Or(ev, &ib.CMEvent{}), err
		}
		if ended != nil {
			return ib.CMEvent{}, ended
		}
	}
}

// wait waits for a signal. It returns an error if the channel is closed, the daemon is gone or ctx ends.
func (c *cmChannel) wait(ctx context.Context, op string) error {
	select {
	case <-c.signals:
		return nil
	case <-c.shut:
		return fmt.Errorf("%s: %w", op, ib.ErrClosed)
	case <-c.dev.link.gone:
		return c.dev.err(op)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take takes the oldest event; nil if there is none. Its handles name the IDs that the daemon had when it answered:
// whoever makes or forgets an ID meanwhile waits for cmTurn.
func (c *cmChannel) take() (*ib.CMEvent, error) {
	c.dev.cmTurn.Lock()
	defer c.dev.cmTurn.Unlock()
	r, _, err := ask[abi.CMEvent](c.dev.link, abi.OpCMEvent, abi.Object{Handle: c.handle}, 0)
	if err != nil {
		return nil, err
	}
	if r.Left > 0 {
		select { // another goroutine in NextEvent
		case c.signals <- struct{}{}:
		default:
		}
	}
	if r.Type == abi.CMNoEvent {
		return nil, nil
	}
	ev := r.Event()
	if ev.Type == ib.CMConnectRequest {
		ev.ID = c.newCMID(r.ID)
	} else if id, ok := c.dev.find(r.ID).(*cmID); ok {
		ev.ID = id
	}
	if id, ok := c.dev.find(r.Listener).(*cmID); ok {
		ev.Listener = id
	}
	return &ev, nil
}

// CreateID creates an ID.
func (c *cmChannel) CreateID(init ib.CMIDInit) (ib.CMID, error) {
	if err := c.err(abi.OpCreateCMID.String()); err != nil {
		return nil, err
	}
	c.dev.cmTurn.Lock()
	defer c.dev.cmTurn.Unlock()
	h, err := made(c.dev, abi.OpCreateCMID, abi.CreateCMID{Channel: c.handle, Space: uint32(init.Space),
		Type:      uint32(init.Type),
		ServiceID: init.ServiceID})
	if err != nil {
		return nil, err
	}
	return c.newCMID(h), nil
}

// Close closes the channel and its IDs.
func (c *cmChannel) Close() error {
	c.dev.cmTurn.Lock()
	defer c.dev.cmTurn.Unlock()
	if err := c.object.Close(); err != nil {
		return err
	}
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.ids { // the daemon has closed them
		id.dead.Store(true)
		c.dev.forget(&id.object)
	}
	c.ids = nil
	return nil
}

// end makes all waiting calls of NextEvent return.
func (c *cmChannel) end() {
	c.once.Do(func() {
		close(c.shut)
		_ = c.socket.Close()
	})
}

// cmID is an ID of the connection manager.
type cmID struct {
	object
	ch atomic.Pointer[cmChannel] // its channel
}

func (c *cmChannel) newCMID(h abi.Handle) *cmID {
	id := &cmID{object: object{dev: c.dev, kind: abi.KindCMID, handle: h}}
	c.dev.keep(h, id)
	c.enter(id)
	return id
}

// enter makes an ID one of the channel. If the channel is closed, so is the ID.
func (c *cmChannel) enter(id *cmID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id.ch.Store(c)
	if c.ids == nil {
		id.dead.Store(true)
		c.dev.forget(&id.object)
		return
	}
	c.ids[id] = struct{}{}
}

// leave undoes enter.
func (id *cmID) leave() {
	c := id.ch.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, id)
}

// Close ends the ID. Its channel may be closed by another goroutine meanwhile, which ends the ID as well.
func (id *cmID) Close() error {
	id.dev.cmTurn.Lock()
	defer id.dev.cmTurn.Unlock()
	err := id.object.Close()
	if errors.Is(err, ib.ErrClosed) {
		return nil
	}
	if err == nil {
		id.leave()
	}
	return err
}

// call sends a request about an ID whose reply has no body.
func call[Request any](id *cmID, op abi.Op, r Request) error {
	if err := id.err(op.String()); err != nil {
		return err
	}
	return tell(id.dev.link, op, r)
}

// Bind binds the ID to a local address.
func (id *cmID) Bind(local netip.AddrPort) error {
	return call(id, abi.OpCMBind, abi.CMBind{ID: id.handle, Addr: abi.CMAddrOf(local)})
}

// Listen starts accepting connection requests for the ID's port.
func (id *cmID) Listen(backlog int) error {
	return call(id, abi.OpCMListen, abi.CMListen{ID: id.handle, Backlog: clamp(max(backlog, 0))})
}

// ResolveAddr finds the local address from which dst is reached.
func (id *cmID) ResolveAddr(local, dst netip.AddrPort, timeout time.Duration) error {
	return call(id, abi.OpCMResolveAddr, abi.CMResolve{ID: id.handle, TimeoutNS: int64(timeout),
		Local: abi.CMAddrOf(local), Remote: abi.CMAddrOf(dst)})
}

// ResolveRoute finds the route to the resolved address.
func (id *cmID) ResolveRoute(timeout time.Duration) error {
	return call(id, abi.OpCMResolveRoute, abi.CMResolve{ID: id.handle, TimeoutNS: int64(timeout)})
}

// Connect asks for a connection, or for a datagram service.
func (id *cmID) Connect(p ib.CMConnParam) error { return id.answer(abi.OpCMConnect, &p) }

// Accept answers a request.
func (id *cmID) Accept(p ib.CMConnParam) error { return id.answer(abi.OpCMAccept, &p) }

func (id *cmID) answer(op abi.Op, p *ib.CMConnParam) error {
	if err := fits(op, "private data", p.PrivateData, len(abi.CMPrivate{})); err != nil {
		return err
	}
	return call(id, op, abi.CMConnectOf(id.handle, p))
}

// fits refuses data that is too long for any message. The device checks it against the limit of the
// particular message.
func fits(op abi.Op, attr string, data []byte, most int) error {
	if len(data) <= most {
		return nil
	}
	return driver.Refuse(op.String(), attr, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", most),
		ib.ErrPrivateData)
}

// Establish answers CMConnectResponse.
func (id *cmID) Establish() error {
	return call(id, abi.OpCMEstablish, abi.Object{Handle: id.handle})
}

// Reject answers CMConnectRequest or CMConnectResponse.
func (id *cmID) Reject(r ib.CMReject) error {
	if err := fits(abi.OpCMReject, "private data", r.PrivateData, len(abi.CMPrivate{})); err != nil {
		return err
	}
	if err := fits(abi.OpCMReject, "reject information", r.Info, len(abi.CMReject{}.Info)); err != nil {
		return err
	}
	return call(id, abi.OpCMReject, abi.CMRejectOf(id.handle, &r))
}

// Delay tells the peer that the answer will take up to d.
func (id *cmID) Delay(d time.Duration) error {
	return call(id, abi.OpCMDelay, abi.CMDelay{ID: id.handle, NS: int64(d)})
}

// Disconnect ends a connection.
func (id *cmID) Disconnect() error {
	return call(id, abi.OpCMDisconnect, abi.Object{Handle: id.handle})
}

// Notify reports an event of the QP to the connection manager.
func (id *cmID) Notify(t ib.EventType) error {
	return call(id, abi.OpCMNotify, abi.CMValue{ID: id.handle, Which: uint32(t)})
}

// JoinMulticast joins a group.
func (id *cmID) JoinMulticast(group netip.Addr) error { return id.group(abi.OpCMJoin, group) }

// LeaveMulticast leaves it.
func (id *cmID) LeaveMulticast(group netip.Addr) error { return id.group(abi.OpCMLeave, group) }

func (id *cmID) group(op abi.Op, group netip.Addr) error {
	return call(id, op, abi.CMBind{ID: id.handle, Addr: abi.CMAddrOf(netip.AddrPortFrom(group, 0))})
}

// InitQPAttr returns the attributes with which Modify takes the QP to a state.
func (id *cmID) InitQPAttr(to ib.QPState) (ib.QPAttr, ib.QPAttrMask, error) {
	if err := id.err(abi.OpCMInitQPAttr.String()); err != nil {
		return ib.QPAttr{}, 0, err
	}
	r, _, err := ask[abi.QPAttr](id.dev.link, abi.OpCMInitQPAttr, abi.CMValue{ID: id.handle, Which: uint32(to)}, 0)
	if err != nil {
		return ib.QPAttr{}, 0, err
	}
	return r.Attr(), ib.QPAttrMask(r.Mask), nil
}

// SetOption sets an option.
func (id *cmID) SetOption(o ib.CMOption, value int) error {
	return call(id, abi.OpCMSetOption, abi.CMValue{ID: id.handle, Which: uint32(o), Value: int64(value)})
}

// Query describes the ID.
func (id *cmID) Query() (ib.CMIDAttr, error) {
	if err := id.err(abi.OpCMQuery.String()); err != nil {
		return ib.CMIDAttr{}, err
	}
	r, _, err := ask[abi.CMIDAttr](id.dev.link, abi.OpCMQuery, abi.Object{Handle: id.handle}, 0)
	if err != nil {
		return ib.CMIDAttr{}, err
	}
	return r.Attr(), nil
}

// Migrate moves the ID to another channel.
func (id *cmID) Migrate(to ib.CM) error {
	const op = abi.OpCMMigrate
	c, err := owned[*cmChannel](id.dev, op.String(), "channel", to)
	if err != nil {
		return err
	}
	if err := call(id, op, abi.CMValue{ID: id.handle, Value: int64(c.handle)}); err != nil {
		return err
	}
	id.leave()
	c.enter(id)
	return nil
}
