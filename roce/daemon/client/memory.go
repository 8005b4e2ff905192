package client

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/objects"
)

// pieces lists the memory that Alloc has returned, so that RegMR finds the memfd of a buffer.
var pieces struct {
	sync.Mutex
	list []piece // sorted by start
}

type piece struct {
	start, end uintptr
	file       *os.File
}

// Alloc returns size zero bytes that the daemon can map, so that sending from them and receiving
// into them is fastest. They begin on a page boundary. Free releases them.
func Alloc(size int) ([]byte, error) {
	if size <= 0 {
		return nil, ib.Refuse("allocate memory", "size", size, "more than 0 bytes", ib.ErrInvalid)
	}
	buf, fd, err := makeMemory("goroce", size)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "memory")
	start := addrOf(buf)
	pieces.Lock()
	defer pieces.Unlock()
	at, _ := slices.BinarySearchFunc(pieces.list, start, func(p piece, a uintptr) int { return int(p.start) - int(a) })
	pieces.list = slices.Insert(pieces.list, at, piece{start, start + uintptr(size), file})
	return buf, nil
}

// Free releases memory that Alloc has returned. Regions in it stay mapped by the daemon until
// they are closed.
func Free(buf []byte) error {
	start := addrOf(buf)
	pieces.Lock()
	defer pieces.Unlock()
	i := slices.IndexFunc(pieces.list, func(p piece) bool {
		return p.start == start &&
			p.end-p.start == uintptr(len(buf))
	})
	if i < 0 {
		return ib.Refuse("free memory", "memory", fmt.Sprintf("%d bytes at %#x", len(buf), start),
			"what Alloc returned, once", ib.ErrInvalid)
	}
	_ = pieces.list[i].file.Close()
	pieces.list = slices.Delete(pieces.list, i, i+1)
	return os.NewSyscallError("munmap", unix.Munmap(buf))
}

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// source fills in where buf lies: in a memfd of Alloc, which it returns, or just in this process.
func source(buf []byte, r *abi.RegMR) (file *os.File) {
	start := addrOf(buf)
	r.Kind, r.Addr, r.Length = abi.MemProcess, uint64(start), uint64(len(buf))
	pieces.Lock()
	defer pieces.Unlock()
	for _, p := range pieces.list {
		if start >= p.start && start+uintptr(len(buf)) <= p.end {
			r.Kind, r.Addr = abi.MemFD, uint64(start-p.start)
			return p.file
		}
	}
	return nil
}

// MR is a memory region.
type MR struct {
	object

	mu   sync.Mutex
	addr uint64
	buf  []byte // keeps the memory alive
	key  ib.Key
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
func (p *PD) RegMR(init ib.MRInit) (ib.MR, error) {
	if err := p.err("register memory"); err != nil {
		return nil, err
	}
	r := abi.RegMR{PD: p.handle, Access: uint32(init.Access), IOVA: iova(&init, init.Access)}
	reply, err := register[abi.RegMR](p.dev, abi.OpRegMR, &r, init.Buf, func() abi.RegMR { return r })
	if err != nil {
		return nil, err
	}
	return &MR{object: object{dev: p.dev, handle: reply.Handle}, addr: r.IOVA, buf: init.Buf, key: ib.Key(reply.Key)},
		nil
}

// register sends a request about the memory buf, and fills in where buf lies.
func register[Request any](d *Device, op abi.Op, r *abi.RegMR, buf []byte, request func() Request) (reply abi.RegReply,
	err error) {
	file := source(buf, r)
	if file == nil {
		file = ownMemory()
		defer file.Close() // no effect on nil
	}
	if file == nil {
		reply, _, err = ask[abi.RegReply](d.link, op, request(), 0)
		return reply, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return reply, fmt.Errorf("%v: the memory was freed: %w", op, ib.ErrClosed)
	}
	controlErr := raw.Control(func(fd uintptr) { reply, _, err = ask[abi.RegReply](d.link, op, request(), 0, int(fd)) })
	if controlErr != nil {
		return reply, fmt.Errorf("%v: the memory was freed: %w", op, ib.ErrClosed)
	}
	runtime.KeepAlive(buf)
	return reply, err
}

// ownMemory opens this process's /proc/self/mem, by which a daemon of another user accesses its
// memory. It returns nil if the process may not open it (PR_SET_DUMPABLE). The caller closes it
// once it was sent: whoever has it has all of the memory.
func ownMemory() *os.File {
	fd, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "memory")
}

// Addr returns the address of the first byte.
func (m *MR) Addr() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addr
}

// Len returns the length in bytes.
func (m *MR) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.buf)
}

// LKey returns the local key.
func (m *MR) LKey() ib.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

// RKey returns the remote key, the same number.
func (m *MR) RKey() ib.Key { return m.LKey() }

// SGE names a part of the region.
func (m *MR) SGE(off, n int) ib.SGE { return objects.SGE(m, off, n) }

// Rereg changes the region's memory, PD or access rights, as mask says.
func (m *MR) Rereg(mask ib.ReregMask, pd ib.PD, init ib.MRInit) error {
	const op = "re-register memory"
	if err := m.err(op); err != nil {
		return err
	}
	r := abi.ReregMR{MR: m.handle, Mask: uint32(mask), RegMR: abi.RegMR{Access: uint32(init.Access),
		IOVA: iova(&init, init.Access)}}
	if mask&ib.ReregPD != 0 {
		p, err := owned[*PD](m.dev, op, "PD", pd)
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
	m.key = ib.Key(reply.Key)
	if mask&ib.ReregTranslation != 0 {
		m.addr, m.buf = r.IOVA, init.Buf
	}
	return nil
}

// MW is a memory window.
type MW struct {
	object
	typ ib.MWType

	mu  sync.Mutex
	key ib.Key
}

// AllocMW allocates a memory window.
func (p *PD) AllocMW(t ib.MWType) (ib.MW, error) {
	if err := p.err("allocate MW"); err != nil {
		return nil, err
	}
	r, _, err := ask[abi.RegReply](p.dev.link, abi.OpAllocMW, abi.AllocMW{PD: p.handle, Type: uint32(t)}, 0)
	if err != nil {
		return nil, err
	}
	return &MW{object: object{dev: p.dev, handle: r.Handle}, typ: t, key: ib.Key(r.Key)}, nil
}

// Type returns the kind of window.
func (w *MW) Type() ib.MWType { return w.typ }

// RKey returns the current key of a window of type 1. For type 2 only the upper 24 bits of the
// returned key identify the window.
func (w *MW) RKey() ib.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.key
}

// Bind posts the binding of a window of type 1.
func (w *MW) Bind(qp ib.QP, id uint64, flags ib.SendFlags, b ib.MWBind) error {
	const op = "bind MW"
	if err := w.err(op); err != nil {
		return err
	}
	q, err := owned[*QP](w.dev, op, "QP", qp)
	if err != nil {
		return err
	}
	if w.typ != ib.MWType1 {
		return ib.Refuse(op, "window", w.typ, "type 1; post a BindMW request for windows of type 2", ib.ErrInvalid)
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
