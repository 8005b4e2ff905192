package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/internal/yield"
)

// Options select the daemon and the device.
type Options struct {
	Socket string // path of the daemon's socket; "" for the one that Find returns
	Device string // name of the device; "" for the daemon's first
}

// Device is a device of the daemon. It implements ib.Device.
type Device struct {
	driver.Implementation

	link      *control
	path      string // of the daemon's socket
	attr      ib.DeviceAttr
	doorbells []*ring.Doorbells // by shard, in pages
	pages     *mapped
	wakes     []*abi.File // eventfds, by shard
	events    chan ib.Event
	socket    *abi.File // of events
	closed    atomic.Bool
	naps      yield.Naps

	wakingMu sync.Mutex
	waking   *channel // see wakeups; guarded by wakingMu

	making turn // held while an object is made that an event may name before the reply is read
	cmTurn turn // held while IDs of the connection manager are made, named by an event, or closed; before mu

	regions regions

	mu      sync.Mutex // guards what follows
	objects map[abi.Handle]any
}

// Find returns the socket of the daemon that Dial takes if none is named: that of the variable GOROCED_SOCKET, or else
// the first of these at which a daemon of this network namespace listens: the user's own, in $XDG_RUNTIME_DIR/goroce or
// /tmp/goroce-UID, and root's, in /run/goroce. The error says of each place why there is none, and matches
// fs.ErrPermission if this user may not connect to one of them.
func Find(ctx context.Context) (path string, err error) {
	conn, err := socket.DialContext(ctx, socket.Client, "")
	if err != nil {
		return "", err
	}
	return conn.RemoteAddr().String(), conn.Close()
}

// Dial connects to the daemon and opens a device. The error says so if there is no socket, or
// this user may not connect to it.
func Dial(ctx context.Context, o Options) (*Device, error) {
	if o.Socket == "" {
		c, err := socket.DialContext(ctx, socket.Client, "")
		if err != nil {
			return nil, err
		}
		return New(ctx, c, o.Device)
	}
	c, err := socket.Connect(ctx, socket.Client, o.Socket)
	if err != nil {
		return nil, explain(o.Socket, err)
	}
	return New(ctx, c, o.Device)
}

// New opens a device of the daemon on a connection, which this process must have made: the daemon
// refuses all others. It takes ownership of the connection, also if it fails. A name of "" means
// the daemon's first device.
func New(ctx context.Context, c *net.UnixConn, name string) (*Device, error) {
	return Open(ctx, abi.NewConn(c), name)
}

// Open is New on any connection.
func Open(ctx context.Context, c *abi.Conn, name string) (*Device, error) {
	d := &Device{link: newControl(c), path: pathOf(c), making: newTurn(), cmTurn: newTurn(),
		objects: map[abi.Handle]any{},
		events:  make(chan ib.Event, eventBacklog)}
	stop := context.AfterFunc(ctx, d.link.close)
	defer stop()
	if err := d.open(name); err != nil {
		d.link.close()
		return nil, fmt.Errorf("open a device of the daemon at %v: %w", c.RemoteAddr(), err)
	}
	return d, nil
}

// pathOf returns the path of the socket that a connection leads to, "" if it has none.
func pathOf(c *abi.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Alloc is the package's Alloc, which returns the memory that this device accesses fastest.
func (d *Device) Alloc(size int) ([]byte, error) { return Alloc(size) }

// Free is the package's Free.
func (d *Device) Free(buf []byte) error { return Free(buf) }

// eventBacklog is how many asynchronous events may wait for NextEvent.
const eventBacklog = 1024

// explain returns an error that says why the daemon cannot be reached, and what to do.
func explain(path string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no daemon at %s: %w; start one with `goroced serve`, or name its socket", path, err)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("the daemon at %s has ended: %w; start it with `goroced serve`", path, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("this user may not connect to %s: %w: %w; the socket's group and mode say who may", path,
			abi.ErrPermission, err)
	}
	return fmt.Errorf("connect to the daemon at %s: %w", path, err)
}

func (d *Device) open(name string) error {
	hello := abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version}
	if _, _, err := ask[abi.HelloReply](d.link, abi.OpHello, hello, 0); err != nil {
		return err
	}
	body, fds, err := d.link.do(abi.OpOpen, abi.Put(nil, &abi.Open{Device: abi.NameOf(name)}))
	if err != nil {
		return err
	}
	r, err := abi.Get[abi.OpenReply](body)
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("%d descriptors came with the device, not 1", len(fds))
	}
	if err == nil {
		err = d.shareDoorbells(&r)
	}
	if err != nil {
		abi.CloseAll(fds)
		return err
	}
	d.attr = r.Attr()
	d.socket = d.link.conn.NewFile(fds[0], "events")
	go d.takeEvents()
	return nil
}

// mostShards is how many eventfds a reply can carry.
const mostShards = abi.MaxFDs

// shareDoorbells makes the doorbells of all shards, and shares them with the daemon.
func (d *Device) shareDoorbells(r *abi.OpenReply) error {
	size := ring.DoorbellsSize(int(r.Doorbells))
	if size == 0 || r.Shards < 1 || r.Shards > mostShards {
		return driver.Refuse("open device", "shards and doorbells", fmt.Sprintf("%d of %d", r.Shards, r.Doorbells),
			fmt.Sprintf("1 to %d of 1 to %d", mostShards, ring.MaxDoorbells), ib.ErrInvalid)
	}
	pages, fd, err := newMapped(size * int(r.Shards))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, wakes, err := d.link.do(abi.OpShareDoorbells, nil, fd)
	if err == nil && len(wakes) != int(r.Shards) {
		err = fmt.Errorf("%d descriptors came for %d shards", len(wakes), r.Shards)
	}
	if err == nil {
		d.doorbells, err = openDoorbells(pages.buf, size)
	}
	if err != nil {
		abi.CloseAll(wakes)
		return err
	}
	d.pages = pages
	for _, fd := range wakes {
		d.wakes = append(d.wakes, d.link.conn.NewFile(fd, "doorbell"))
	}
	return nil
}

// openDoorbells opens the doorbells of all shards, each of size bytes.
func openDoorbells(buf []byte, size int) (list []*ring.Doorbells, err error) {
	for ; len(buf) > 0; buf = buf[size:] {
		b, err := ring.OpenDoorbells(buf[:size])
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// ring rings a doorbell, and wakes the daemon's shard if it sleeps.
func (d *Device) ring(shard, doorbell uint32) {
	if !d.doorbells[shard].Ring(doorbell) {
		return
	}
	one := [8]byte{1}
	_, _ = d.wakes[shard].Write(one[:]) // fails if the device is closed
}

// err returns an error if the device is closed or the daemon is gone.
func (d *Device) err(op string) error {
	switch {
	case d.closed.Load():
		return fmt.Errorf("%s on %s: %w", op, d.attr.Name, ib.ErrClosed)
	case d.link.dead():
		return fmt.Errorf("%s on %s: %w", op, d.attr.Name, ErrGone)
	}
	return nil
}

// Socket returns the path of the daemon's socket.
func (d *Device) Socket() string { return d.path }

// Attr describes the device.
func (d *Device) Attr() ib.DeviceAttr { return d.attr }

// QueryPort describes a port.
func (d *Device) QueryPort(port int) (ib.PortAttr, error) {
	r, _, err := ask[abi.PortReply](d.link, abi.OpQueryPort, abi.Port{Port: uint32(port)}, 0)
	if err != nil {
		return ib.PortAttr{}, err
	}
	return ib.PortAttr{State: ib.PortState(r.State), PhysState: ib.PhysState(r.PhysState),
		Caps: ib.PortCaps(r.CapFlags), Speed: int(r.Speed), MaxMTU: ib.MTU(r.MaxMTU), ActiveMTU: ib.MTU(r.ActiveMTU),
		MaxMsgSize: r.MaxMsgSize, GIDTableLen: int(r.GIDs), NetIf: r.NetIf.String()}, nil
}

// GIDs returns the port's GID table.
func (d *Device) GIDs(port int) ([]ib.GIDEntry, error) {
	body, fds, err := d.link.do(abi.OpGIDs, abi.Put(nil, &abi.Port{Port: uint32(port)}))
	abi.CloseAll(fds)
	if err != nil {
		return nil, err
	}
	const row = 16 + 8 + 64
	var table []ib.GIDEntry
	for ; len(body) >= row; body = body[row:] {
		e, err := abi.Get[abi.GIDEntry](body[:row])
		if err != nil {
			return nil, err
		}
		table = append(table, ib.GIDEntry{GID: e.GID, Index: int(e.Index), NetIf: e.NetIf.String()})
	}
	return table, nil
}

// PKey returns a row of the port's partition table.
func (d *Device) PKey(port, index int) (uint16, error) {
	r, _, err := ask[abi.PKeyReply](d.link, abi.OpPKey, abi.Port{Port: uint32(port), Index: uint32(index)}, 0)
	return r.PKey, err
}

// Clock returns the time of the clock that stamps completions.
func (d *Device) Clock() (ib.Instant, error) {
	if err := d.err("read the clock"); err != nil {
		return 0, err
	}
	body, fds, err := d.link.do(abi.OpClock, nil)
	abi.CloseAll(fds)
	if err != nil {
		return 0, err
	}
	r, err := abi.Get[abi.ClockReply](body)
	return ib.Instant(r.Now), err
}

// NextEvent waits for an asynchronous event.
func (d *Device) NextEvent(ctx context.Context) (ib.Event, error) {
	select {
	case e := <-d.events:
		return e, nil
	default:
	}
	select {
	case e := <-d.events:
		return e, nil
	case <-d.link.gone:
		return ib.Event{}, d.err("wait for an event")
	case <-ctx.Done():
		return ib.Event{}, ctx.Err()
	}
}

// takeEvents reads events until the socket ends. It drops those beyond eventBacklog, as a device
// in this process would.
func (d *Device) takeEvents() {
	buf := make([]byte, 64)
	for {
		n, err := d.socket.Read(buf)
		if err != nil || n == 0 {
			return
		}
		m, err := abi.Get[abi.Event](buf[:n])
		if err != nil {
			continue
		}
		e := ib.Event{Type: ib.EventType(m.Type)}
		object := d.find(m.Object)
		if object == nil && m.Object != 0 { // closed meanwhile, or its maker has not read the reply yet
			d.making.Lock()
			object = d.find(m.Object)
			d.making.Unlock()
		}
		switch o := object.(type) {
		case *queuePair:
			e.QP = o
		case *cq:
			e.CQ = o
		case *srq:
			e.SRQ = o
		default:
			if m.Object != 0 {
				continue
			}
		}
		select {
		case d.events <- e:
		default:
		}
	}
}

func (d *Device) find(h abi.Handle) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.objects[h]
}

// keep makes find return o for its handle. If the daemon has given that handle to another object,
// which it must not, that object is found no more, and its socket is closed.
func (d *Device) keep(h abi.Handle, o any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	end(d.objects[h])
	d.objects[h] = o
}

// end makes waiting calls return if o is an object with a socket of events.
func end(o any) {
	if s, ok := o.(interface{ end() }); ok {
		s.end()
	}
}

// forget undoes keep.
func (d *Device) forget(o *object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if kept, ok := d.objects[o.handle].(interface{ self() *object }); ok && kept.self() == o {
		delete(d.objects, o.handle)
	}
}

// hasDoorbell returns an error if a shard has no such doorbell.
func (d *Device) hasDoorbell(shard, doorbell uint32) error {
	const op = "create QP"
	if n := len(d.doorbells); shard >= uint32(n) {
		return driver.Refuse(op, "shard that the daemon names", shard, fmt.Sprintf("less than %d", n), ib.ErrInvalid)
	}
	if n := d.doorbells[shard].Len(); int64(doorbell) >= int64(n) {
		return driver.Refuse(op, "doorbell that the daemon names", doorbell, fmt.Sprintf("less than %d", n),
			ib.ErrInvalid)
	}
	return nil
}

// Close ends the connection, so the daemon closes all objects of the device. Rings stay mapped
// while an object refers to them, as other goroutines may be accessing them.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.link.close()
	<-d.link.gone
	unshare(d)
	_ = d.socket.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.objects {
		end(o)
	}
	for _, f := range d.wakes {
		_ = f.Close()
	}
	return nil
}
