package client

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/objects"
)

// pieces lists the memory that Alloc has returned, so that RegMR finds the memfd of a buffer.
var pieces struct {
	sync.Mutex
	list []*piece // sorted by start
}

type piece struct {
	start, end uintptr
	file       *os.File

	mu     sync.Mutex
	shares map[*Device]abi.Handle // of the memfd at the daemons of these devices
}

// Alloc returns size zero bytes that the daemon can map, so that sending from them and receiving
// into them is fastest. They begin on a page boundary. Free releases them.
//
// The daemon that is the first to map the memory sees to it that nobody else can, so that nobody can take it away
// while it is in use. When all devices of that daemon with regions of the memory have been closed, or it has ended,
// the memory is registered as other memory of the process is: slower, and if the daemon may access it.
func Alloc(size int) ([]byte, error) {
	if size <= 0 {
		return nil, driver.Refuse("allocate memory", "size", size, "more than 0 bytes", ib.ErrInvalid)
	}
	buf, fd, err := makeMemory("goroce", size)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "memory")
	start := addrOf(buf)
	pieces.Lock()
	defer pieces.Unlock()
	at, _ := slices.BinarySearchFunc(pieces.list, start, func(p *piece, a uintptr) int { return int(p.start) - int(a) })
	p := &piece{start: start, end: start + uintptr(size), file: file, shares: map[*Device]abi.Handle{}}
	pieces.list = slices.Insert(pieces.list, at, p)
	return buf, nil
}

// Free releases memory that Alloc has returned. Regions in it stay mapped by the daemon until
// they are closed.
func Free(buf []byte) error {
	start := addrOf(buf)
	pieces.Lock()
	i := slices.IndexFunc(pieces.list, func(p *piece) bool {
		return p.start == start && p.end-p.start == uintptr(len(buf))
	})
	if i < 0 {
		pieces.Unlock()
		return driver.Refuse("free memory", "memory", fmt.Sprintf("%d bytes at %#x", len(buf), start),
			"what Alloc returned, once", ib.ErrInvalid)
	}
	p := pieces.list[i]
	pieces.list = slices.Delete(pieces.list, i, i+1)
	pieces.Unlock()
	p.free()
	return os.NewSyscallError("munmap", unix.Munmap(buf))
}

// free ends the memfd, also at daemons.
func (p *piece) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.file.Close()
	for d, h := range p.shares {
		_ = tell(d.link, abi.OpClose, abi.Close{Handle: h, Kind: abi.KindSharedMemory}) // fails if the daemon has ended
	}
	p.shares = nil
}

// unshare forgets what a device has shared, which is closed.
func unshare(d *Device) {
	pieces.Lock()
	list := slices.Clone(pieces.list)
	pieces.Unlock()
	for _, p := range list {
		p.mu.Lock()
		delete(p.shares, d)
		p.mu.Unlock()
	}
}

// share returns the handle of the memfd at a device's daemon.
func (p *piece) share(d *Device) (_ abi.Handle, err error) {
	const op = abi.OpShareMemory
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.shares[d]; ok {
		return h, nil
	}
	var reply abi.Object
	raw, freed := p.file.SyscallConn()
	if freed == nil {
		freed = raw.Control(func(fd uintptr) { reply, _, err = ask[abi.Object](d.link, op, struct{}{}, 0, int(fd)) })
	}
	switch {
	case freed != nil:
		return 0, fmt.Errorf("%v: the memory was freed: %w", op, ib.ErrClosed)
	case err != nil:
		return 0, err
	case d.closed.Load(): // unshare may have been here before
		return 0, d.err(op.String())
	}
	p.shares[d] = reply.Handle
	return reply.Handle, nil
}

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// pieceOf returns the memory of Alloc that buf is a part of, nil if there is none.
func pieceOf(buf []byte) *piece {
	start := addrOf(buf)
	pieces.Lock()
	defer pieces.Unlock()
	for _, p := range pieces.list {
		if start >= p.start && start+uintptr(len(buf)) <= p.end {
			return p
		}
	}
	return nil
}

// mr is a memory region.
type mr struct {
	object

	mu   sync.Mutex
	addr uint64
	buf  []byte // keeps the memory alive
	key  ib.Key
	pd   abi.Handle
	kind uint32  // abi.RegMR.Kind
	own  *region // what posts may copy; nil for memory that the daemon maps
}

// renew lets posts copy what the region is now, and no more what it was. The lock is held, or nobody has the region
// yet.
func (m *mr) renew(was ib.Key) {
	m.dev.regions.remove(was, m.own)
	m.own = nil
	if m.kind == abi.MemProcess && !m.dead.Load() {
		m.own = &region{pd: m.pd, iova: m.addr, buf: m.buf}
		m.dev.regions.add(m.key, m.own)
	}
}

// iova returns the IOVA under which init.Buf is registered with these access rights.
func iova(init *ib.MRInit, access ib.Access) uint64 {
	if init.IOVA == 0 && access&ib.ZeroBased == 0 {
		return uint64(addrOf(init.Buf))
	}
	return init.IOVA
}

// RegMR registers memory. The daemon maps memory of Alloc; other memory it reads and writes by
// system calls, if it has permission.
func (p *pd) RegMR(init ib.MRInit) (ib.MR, error) {
	if err := p.err("register memory"); err != nil {
		return nil, err
	}
	r := abi.RegMR{PD: p.handle, Access: uint32(init.Access), IOVA: iova(&init, init.Access)}
	reply, err := register[abi.RegMR](p.dev, abi.OpRegMR, &r, init.Buf, func() abi.RegMR { return r })
	if err != nil {
		return nil, err
	}
	m := &mr{object: object{dev: p.dev, kind: abi.KindMR, handle: reply.Handle}, addr: r.IOVA, buf: init.Buf,
		key: ib.Key(reply.Key), pd: p.handle, kind: r.Kind}
	m.renew(m.key)
	return m, nil
}

// Close ends the registration.
func (m *mr) Close() error {
	err := m.object.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead.Load() {
		m.renew(m.key)
	}
	return err
}

// register sends a request about the memory buf, and fills in where buf lies: in a memfd of Alloc that the daemon can
// map, or just in this process.
func register[Request any](d *Device, op abi.Op, r *abi.RegMR, buf []byte, request func() Request) (reply abi.RegReply,
	err error) {
	defer runtime.KeepAlive(buf)
	r.Length = uint64(len(buf))
	var unmapped error
	if p := pieceOf(buf); p != nil {
		h, err := p.share(d)
		if err == nil {
			r.Kind, r.File, r.Addr = abi.MemFD, h, uint64(addrOf(buf)-p.start)
			reply, _, err = ask[abi.RegReply](d.link, op, request(), 0)
			return reply, err
		}
		if !errors.Is(err, ib.ErrInvalid) { // another daemon was the first to map it
			return reply, fmt.Errorf("%v: %w", op, err)
		}
		unmapped = err
	}
	r.Kind, r.Addr = abi.MemProcess, uint64(addrOf(buf))
	if reply, err = registerOwn(d, op, request()); err != nil && unmapped != nil {
		err = fmt.Errorf("%w, and: %w", unmapped, err)
	}
	return reply, err
}

// registerOwn sends a request about memory of this process.
func registerOwn[Request any](d *Device, op abi.Op, request Request) (reply abi.RegReply, err error) {
	var memory []int
	if fd := ownMemory(); fd >= 0 {
		defer unix.Close(fd)
		memory = []int{fd}
	}
	reply, _, err = ask[abi.RegReply](d.link, op, request, 0, memory...)
	return reply, err
}

// ownMemory opens this process's /proc/self/mem, by which a daemon of another user accesses its
// memory. It returns -1 if the process may not open it (PR_SET_DUMPABLE). The caller closes it
// once it was sent: whoever has it has all of the memory.
func ownMemory() int {
	fd, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// Addr returns the address of the first byte.
func (m *mr) Addr() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addr
}

// Len returns the length in bytes.
func (m *mr) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.buf)
}

// LKey returns the local key.
func (m *mr) LKey() ib.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

// RKey returns the remote key, the same number.
func (m *mr) RKey() ib.Key { return m.LKey() }

// SGE names a part of the region.
func (m *mr) SGE(off, n int) ib.SGE { return objects.SGE(m, off, n) }

// Rereg changes the region's memory, PD or access rights, as mask says.
func (m *mr) Rereg(mask ib.ReregMask, domain ib.PD, init ib.MRInit) error {
	const op = "re-register memory"
	if err := m.err(op); err != nil {
		return err
	}
	r := abi.ReregMR{MR: m.handle, Mask: uint32(mask), RegMR: abi.RegMR{Access: uint32(init.Access),
		IOVA: iova(&init, init.Access)}}
	if mask&ib.ReregPD != 0 {
		p, err := owned[*pd](m.dev, op, "PD", domain)
		if err != nil {
			return err
		}
		r.PD = p.handle
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	reply, err := register(m.dev, abi.OpReregMR, &r.RegMR, init.Buf, func() abi.ReregMR { return r })
	if err != nil {
		return err
	}
	was := m.key
	m.key = ib.Key(reply.Key)
	if mask&ib.ReregPD != 0 {
		m.pd = r.PD
	}
	if mask&ib.ReregTranslation != 0 {
		m.addr, m.buf, m.kind = r.IOVA, init.Buf, r.Kind
	}
	m.renew(was)
	return nil
}

// mw is a memory window.
type mw struct {
	object
	typ ib.MWType

	mu  sync.Mutex
	key ib.Key
}

// AllocMW allocates a memory window.
func (p *pd) AllocMW(t ib.MWType) (ib.MW, error) {
	if err := p.err("allocate MW"); err != nil {
		return nil, err
	}
	r, _, err := ask[abi.RegReply](p.dev.link, abi.OpAllocMW, abi.AllocMW{PD: p.handle, Type: uint32(t)}, 0)
	if err != nil {
		return nil, err
	}
	return &mw{object: object{dev: p.dev, kind: abi.KindMW, handle: r.Handle}, typ: t, key: ib.Key(r.Key)}, nil
}

// Type returns the kind of window.
func (w *mw) Type() ib.MWType { return w.typ }

// RKey returns the current key of a window of type 1. For type 2 only the upper 24 bits of the
// returned key identify the window.
func (w *mw) RKey() ib.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.key
}

// Bind posts the binding of a window of type 1.
func (w *mw) Bind(qp ib.QP, id uint64, flags ib.SendFlags, b ib.MWBind) error {
	const op = "bind MW"
	if err := w.err(op); err != nil {
		return err
	}
	q, err := owned[*queuePair](w.dev, op, "QP", qp)
	if err != nil {
		return err
	}
	if w.typ != ib.MWType1 {
		return driver.Refuse(op, "window", w.typ, "type 1; post a BindMW request for windows of type 2", ib.ErrInvalid)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := ib.NextKey(w.key)
	if _, err := q.PostSend([]ib.SendWR{{ID: id, Opcode: ib.WRBindMW, Flags: flags, RKey: key, Bind: b}}); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	w.key = key
	return nil
}
