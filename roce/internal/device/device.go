package device

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/cma"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/internal/sequence"
	"github.com/goroce/goroce/roce/link"
)

// Device is the software RDMA device, on one link or several. It implements roce.Device.
type Device struct {
	driver.Implementation

	opts     Options
	caps     link.Caps
	guid     uint64
	maxMTU   ib.MTU    // active MTU at Open, which SetMTU never exceeds
	mem      *mr.Table // shards look up keys there without a lock
	engine   *engine.Engine
	events   *eventQueue            // of the port, and of objects of this process
	fatal    atomic.Bool            // EventDeviceFatal was raised
	port     atomic.Uint32          // ib.PortState
	mtu      atomic.Int32           // the port's active MTU, an ib.MTU
	netif    atomic.Pointer[string] // name of the network interface
	phys     atomic.Uint32          // ib.PhysState
	speed    atomic.Int64           // Mb/s
	gids     atomic.Pointer[gidTable]
	cm       *cma.Port
	cmOwn    *cma.Owner // account of this process
	lost     lostPeers
	failures failures

	stepped atomic.Int64 // ib.Instant: the time of the last Step, with Options.Manual
	closed  atomic.Bool  // set under mu

	linkDowned atomic.Uint64 // times that the port went down
	eventsLost atomic.Uint64

	workers workers

	addresses sync.Mutex // serializes changes of gids; taken before mu

	byNum sync.Map // ib.QPN to *QP, for lookups without the shard's lock

	// Verbs that create objects hold mu, and those that end QPs, CQs, SRQs, AHs and domains: so nothing ends while
	// another object is made that uses it. Regions and windows end under the lock of mem. Posting, and verbs on the
	// state of a QP, take neither.
	mu      sync.Mutex // guards what follows; taken before the lock of any shard
	turn    int        // counts the calls of nextShard
	pds     int
	cqs     int
	srqs    int
	ahs     int
	xrcds   int
	ahNums  numbers // of address handles
	srqNums numbers // of XRC SRQs
	qps     map[*QP]struct{}
	chans   map[*Channel]struct{} // for Close
	groups  map[ib.GID][]*QP      // multicast groups with members; the shards have copies
}

var _ ib.Device = (*Device)(nil)

// Open opens a device on one link.
func Open(l link.Link, opts Options) (*Device, error) { return OpenShards([]link.Link{l}, opts) }

// OpenShards opens a device with a shard for each link, as package roce says. The links are the device's from then
// on, and Close closes them; after an error they are still the caller's.
func OpenShards(links []link.Link, opts Options) (*Device, error) {
	opts = opts.withDefaults()
	if len(links) == 0 {
		return nil, driver.Refuse("open device", "links", 0, "1 at least", ib.ErrInvalid)
	}
	caps := links[0].Caps()
	if len(caps.Local) == 0 {
		return nil, fmt.Errorf("open device on link %s: no local address: %w", caps.Name, ib.ErrInvalid)
	}
	mtu := ib.MTUFor(caps.MTU)
	if opts.ActiveMTU != 0 {
		mtu = min(mtu, opts.ActiveMTU)
	}
	if !mtu.Valid() {
		return nil, driver.Refuse("open device on "+caps.NetIf, "MTU", caps.MTU,
			"at least 336 bytes, for a path MTU of 256", ib.ErrInvalid)
	}
	control, ok := qp.ControlNamed(opts.Congestion)
	if !ok {
		return nil, driver.Refuse("open device on "+caps.NetIf, "Congestion", opts.Congestion, "cubic, dcqcn",
			ib.ErrInvalid)
	}
	rng := newRand(opts.Seed, streamNumbers)
	d := &Device{
		opts: opts, caps: caps, guid: cmp.Or(opts.GUID, guidOf(caps.Local)), maxMTU: mtu,
		events: newEventQueue(),
		qps:    map[*QP]struct{}{},
		chans:  map[*Channel]struct{}{},
		groups: map[ib.GID][]*QP{},
	}
	d.port.Store(uint32(ib.PortActive))
	d.phys.Store(uint32(ib.PhysLinkUp))
	d.mtu.Store(int32(mtu))
	d.netif.Store(&caps.NetIf)
	d.gids.Store(newGIDTable(caps.Local))
	newTable := mr.NewTable
	if len(links) > 1 {
		newTable = mr.NewSharedTable
	}
	// A peer that has one key must not guess the next: indices come in a random order, without repeats, and the
	// variant is random too.
	indices := sequence.New(rng, 24)               // the upper bits of a key
	variants := newRand(opts.Seed, streamVariants) // used by the memory table only, under its lock
	d.mem = newTable(maxMRs+maxMWs, func() ib.Key { return ib.Key(indices.Next())<<8 | ib.Key(variants.Uint32()&0xFF) })
	d.mem.SetClock(cmHost{d}.Now)
	var err error
	d.engine, err = engine.New(links, engine.Options{Rand: rng, Spin: opts.Spin, Manual: opts.Manual, Clock: opts.Clock,
		Flow:          qp.FlowConfig{Control: control, Window: opts.InitialWindow},
		OnOffloadOff:  opts.OnOffloadOff,
		OnStall:       opts.OnStall,
		PinSourcePort: opts.PinSourcePort,
		Limits: qp.Limits{GIDs: len(caps.Local), MTU: mtu, Frame: d.frame(caps.MTU), MaxRdAtomic: maxRdAtomic,
			Stage:       stage,
			Unreachable: func(peer ib.GID) uint32 { return d.lost.errno(peer, cmHost{d}.Now()) }}}, owner{d})
	if err != nil {
		return nil, err
	}
	// QP 1 has its user before the loops begin: a MAD may come with the first turn.
	d.cm, d.cmOwn = d.newCM(), cma.NewOwner(cma.Limits{})
	d.engine.SetGSI(d.cm)
	d.engine.Start()
	return d, nil
}

// guidOf derives a GUID from the port's addresses, the same each time: their 64-bit
// FNV-1a hash, marked as locally administered.
func guidOf(gids []ib.GID) uint64 {
	h := fnv.New64a()
	for _, g := range gids {
		h.Write(g[:])
	}
	// In an EUI-64 bit 56 marks groups, and bit 57 numbers that no manufacturer has given.
	return h.Sum64()&^(1<<56) | 1<<57
}

// Step is that of roce.Device, for Options.Manual.
func (d *Device) Step(now ib.Instant) (more bool) {
	d.stepped.Store(int64(now))
	// Shards first: the workers carry out what they get in this step, and the answers are there in the next one.
	more = d.engine.Step(now)
	return d.workers.step() || more
}

// Deadline is that of roce.Device.
func (d *Device) Deadline() ib.Instant { return d.engine.Deadline() }

// Attr describes the device.
func (d *Device) Attr() ib.DeviceAttr {
	return ib.DeviceAttr{
		Name: d.opts.Name, FirmwareVersion: "goroce", NodeGUID: d.guid, SysImageGUID: d.guid, VendorID: 0xFFFFFF,
		Ports: 1,
		Caps: ib.CapMemWindow | ib.CapMemWindow2B | ib.CapXRC | ib.CapLocalInv | ib.CapAtomicWrite | ib.CapFlushGlobal |
			ib.CapMulticast | ib.CapRereg | ib.CapTimestamp | ib.CapCM,
		Atomic: ib.AtomicHCA,
		MaxQP:  maxQPs, MaxQPWR: maxQPWR, MaxSGE: maxSGE, MaxInline: maxInline, MaxCQ: maxCQs, MaxCQE: maxCQE,
		CompVectors: d.Shards(),
		MaxMR:       maxMRs, MaxMRSize: mr.MaxLen, MaxMW: maxMWs, MaxPD: maxPDs, MaxAH: maxAHs,
		MaxSRQ: maxSRQs, MaxSRQWR: maxQPWR, MaxSRQSGE: maxSGE, MaxXRCD: maxXRCDs,
		MaxMcastGroup: maxMcastGroups, MaxMcastQP: maxMcastQPs, MaxQPRdAtomic: maxRdAtomic,
		MaxQPInitRdAtom: maxRdAtomic,
		// 4.096 us * 2^15 = 134 ms, as rdma_rxe says. Connection managers add it to the ACK timeout that they
		// propose.
		LocalCAAckDelay: 15,
	}
}

// QueryPort describes the port. Its active MTU follows the network interface (SetMTU). The GID
// table never gets shorter: it has as many rows as were ever needed at a time.
func (d *Device) QueryPort(port int) (ib.PortAttr, error) {
	if err := checkPort("query port", port); err != nil {
		return ib.PortAttr{}, err
	}
	return ib.PortAttr{State: ib.PortState(d.port.Load()), PhysState: ib.PhysState(d.phys.Load()),
		Caps: ib.PortCM | ib.PortIPBasedGIDs, Speed: int(d.speed.Load()), MaxMTU: ib.MTU4096,
		ActiveMTU:   ib.MTU(d.mtu.Load()),
		MaxMsgSize:  maxMsgSize,
		GIDTableLen: len(*d.gids.Load()), NetIf: *d.netif.Load()}, nil
}

// GIDs returns the GID table: the link's addresses, without rows that are empty.
func (d *Device) GIDs(port int) ([]ib.GIDEntry, error) {
	if err := checkPort("query GIDs", port); err != nil {
		return nil, err
	}
	table := []ib.GIDEntry{}
	for i, row := range *d.gids.Load() {
		if row.held {
			table = append(table, ib.GIDEntry{GID: row.gid, Index: i, NetIf: *d.netif.Load()})
		}
	}
	return table, nil
}

// PKey returns a row of the partition table, which has one row.
func (d *Device) PKey(port, index int) (uint16, error) {
	if err := checkPort("query P_Key", port); err != nil {
		return 0, err
	}
	if index != 0 {
		return 0, driver.Refuse("query P_Key", "index", index, "0, the default partition", ib.ErrInvalid)
	}
	return ib.DefaultPKey, nil
}

// Clock returns the time with which completions are stamped.
func (d *Device) Clock() (ib.Instant, error) {
	if d.closed.Load() {
		return 0, fmt.Errorf("read the clock of %s: %w", d.opts.Name, ib.ErrClosed)
	}
	return d.engine.Clock(), nil
}

// SetPortState is that of roce.Device.
func (d *Device) SetPortState(state ib.PortState) {
	// QPs stay as they are when the port goes down, as on a NIC: their requests time out unless it comes back in
	// time.
	if d.port.Swap(uint32(state)) == uint32(state) {
		return
	}
	if state == ib.PortActive {
		d.raise(ib.Event{Type: ib.EventPortActive})
		return
	}
	d.linkDowned.Add(1)
	d.raise(ib.Event{Type: ib.EventPortErr})
}

// SetPhys is that of roce.Device.
func (d *Device) SetPhys(state ib.PhysState, speed int) {
	d.phys.Store(uint32(state))
	d.speed.Store(int64(speed))
}

// SetNetIf is that of roce.Device. The name is a part of each row of the GID table, so programs are told to read that
// again.
func (d *Device) SetNetIf(name string) {
	if *d.netif.Swap(&name) != name {
		d.raise(ib.Event{Type: ib.EventGIDChange})
	}
}

func checkPort(op string, port int) error {
	if port == 1 {
		return nil
	}
	return driver.Refuse(op, "port", port, "1, the only port", ib.ErrInvalid)
}

// Link is that of roce.Device.
func (d *Device) Link() link.Caps {
	caps := d.caps
	caps.Local = d.gids.Load().held()
	return caps
}

// Shards returns how many shards the device has.
func (d *Device) Shards() int { return len(d.engine.Shards()) }

// shard returns a shard by number.
func (d *Device) shard(i int) *engine.Shard { return d.engine.Shards()[i] }

// Alive waits until each shard has taken a turn. If ctx ends before, the error names the shards that have not. It
// asks all before it waits for one, so they have the same time.
func (d *Device) Alive(ctx context.Context) error {
	pulses := make([]<-chan struct{}, d.Shards())
	for i, s := range d.engine.Shards() {
		pulses[i] = s.Pulse()
	}
	var still []int
	for i, pulse := range pulses {
		select {
		case <-pulse:
			continue
		// A pulse and the end of ctx may come together, and select chooses at random: a shard that has taken its
		// turn is alive.
		case <-ctx.Done():
		}
		select {
		case <-pulse:
		default:
			still = append(still, i)
		}
	}
	if still != nil {
		return fmt.Errorf("shards %v of device %s take no turns: %w", still, d.Attr().Name, context.Cause(ctx))
	}
	return nil
}

// nextShard returns the shards in turn, for new CQs and for QPs without a send CQ. The caller
// holds mu.
func (d *Device) nextShard() *engine.Shard {
	d.turn++
	return d.shard((d.turn - 1) % d.Shards())
}

// NextEvent waits for an asynchronous event.
func (d *Device) NextEvent(ctx context.Context) (ib.Event, error) { return d.events.next(ctx) }

// Close ends the device and all its objects. QPs end without completions, and calls that wait return ib.ErrClosed.
// The connection manager sends DREQs and REJs to peers. Memory that tenants share must stay mapped until Close has
// returned and, where a worker's turn is under way, until Worker.Done is closed.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed.Swap(true) {
		d.mu.Unlock()
		return nil
	}
	// The connection manager first, while there are links for its DREQs and REJs. Then the QPs, for which a last ACK
	// may leave; the engine closes when it has no more of them.
	d.cm.Close()
	d.engine.FlushGSI()
	for q := range d.qps {
		q.drop()
		q.dead.Store(true)
	}
	clear(d.qps)
	// Channel.Wait does not look at the device. Waits on a CQ end by events, below; other verbs find the device
	// closed.
	for c := range d.chans {
		c.shut()
	}
	d.mu.Unlock()
	d.workers.close()
	err := d.engine.Close()
	d.events.close()
	return err
}

// open takes d.mu if the device is open; the caller unlocks it. Whoever creates an object holds mu until that is
// counted, and so comes before Close or is refused.
func (d *Device) open(op string) error {
	d.mu.Lock()
	if d.closed.Load() {
		d.mu.Unlock()
		return fmt.Errorf("%s on %s: %w", op, d.opts.Name, ib.ErrClosed)
	}
	return nil
}
