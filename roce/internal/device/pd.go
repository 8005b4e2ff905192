package device

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce/internal/objects"
)

// PD is a protection domain of the software device.
type PD struct {
	driver.Implementation

	dev    *Device
	core   *mr.PD
	tenant Tenant  // nil for this process
	own    *Worker // the tenant's worker; nil for this process, and for tenants without one
	dead   atomic.Bool
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (ib.PD, error) {
	p, err := d.allocPD(nil, nil)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (d *Device) allocPD(t Tenant, w *Worker) (*PD, error) {
	if err := d.open("allocate PD"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if d.pds == maxPDs {
		return nil, limitError("allocate PD", "PDs", maxPDs)
	}
	core, err := d.mem.NewPD()
	if err != nil {
		return nil, err
	}
	d.pds++
	p := &PD{dev: d, core: core, tenant: t, own: w}
	core.Owner = p
	return p, nil
}

// Close frees the domain. It is busy while regions, windows, QPs, SRQs or AHs use it.
func (p *PD) Close() error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if p.dead.Load() || p.dev.closed.Load() {
		return nil
	}
	if err := p.dev.mem.FreePD(p.core); err != nil {
		return err
	}
	p.dead.Store(true)
	p.dev.pds--
	return nil
}

// MR is a memory region of the software device. Its methods may be called from several goroutines.
type MR struct {
	driver.Implementation

	dev *Device

	// Held while shards end their turns (letGo), but not while a worker does.
	mu   sync.Mutex
	pd   *PD // this and the following change with Rereg
	core *mr.Region
	buf  []byte // keeps the memory alive
}

// RegMR registers memory of this process.
func (p *PD) RegMR(init ib.MRInit) (ib.MR, error) {
	if err := p.dev.open("register memory"); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	// Go does not move memory of the heap, and buf keeps it: the addresses hold as long as the MR. Nothing is
	// pinned, for no hardware touches it.
	core, err := p.dev.mem.Register(p.core, mr.Bytes(init.Buf), iova(&init, init.Access), init.Access)
	if err != nil {
		return nil, err
	}
	return &MR{dev: p.dev, pd: p, core: core, buf: init.Buf}, nil
}

// iova returns the address at which memory is registered with these rights.
func iova(init *ib.MRInit, access ib.Access) uint64 {
	// The pointer itself, as ibv_reg_mr has it: programs send pointers to their peers.
	if init.IOVA == 0 && access&ib.ZeroBased == 0 {
		return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(init.Buf))))
	}
	return init.IOVA
}

// region returns the current registration. Rereg may replace it at any time; what it was can still be read.
func (m *MR) region() *mr.Region {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core
}

// Addr returns the address of the first byte.
func (m *MR) Addr() uint64 { return m.region().Addr() }

// Len returns the length in bytes.
func (m *MR) Len() int { return int(m.region().Len()) }

// LKey returns the local key.
func (m *MR) LKey() ib.Key { return m.region().Key() }

// RKey returns the remote key, the same number.
func (m *MR) RKey() ib.Key { return m.region().Key() }

// SGE names a part of the region.
func (m *MR) SGE(off, n int) ib.SGE { return objects.SGE(m, off, n) }

// Rereg replaces the registration, and waits until the device does not touch the old memory
// any more.
func (m *MR) Rereg(mask ib.ReregMask, pd ib.PD, init ib.MRInit) error {
	gone, err := m.rereg(mask, pd, &init)
	if err != nil {
		return err
	}
	<-gone
	return nil
}

func (m *MR) rereg(mask ib.ReregMask, pd ib.PD, init *ib.MRInit) (gone <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// ZeroBased among the rights that are to hold decides about the address.
	access := m.core.Access()
	if mask&ib.ReregAccess != 0 {
		access = init.Access
	}
	if gone, err = m.replace(m.dev.mem.Reregister, mask, pd, mr.Bytes(init.Buf), iova(init, access),
		init.Access); err != nil {
		return nil, err
	}
	if mask&ib.ReregTranslation != 0 {
		m.buf = init.Buf
	}
	return gone, nil
}

// replace replaces the registration. gone is closed when the device does not touch the old memory
// any more. The caller holds mu, but must not hold it while it waits for gone: an access to slow
// memory may never return.
func (m *MR) replace(change reregister, mask ib.ReregMask, pd ib.PD, mem mr.Memory, iova uint64,
	access ib.Access) (gone <-chan struct{}, err error) {
	// The old domain's worker may be in an access to the old memory, whichever domain the MR has then.
	before := m.pd
	if err := m.register(change, mask, pd, mem, iova, access); err != nil {
		return nil, err
	}
	return before.letGo(), nil
}

// reregister is a method of mr.Table: Reregister or ReregisterSameKey.
type reregister func(r *mr.Region, mask ib.ReregMask, pd *mr.PD, m mr.Memory, iova uint64,
	access ib.Access) (*mr.Region, error)

// register is replace without the wait.
func (m *MR) register(change reregister, mask ib.ReregMask, pd ib.PD, mem mr.Memory, iova uint64,
	access ib.Access) (err error) {
	const op = "re-register memory"
	if err := m.dev.open(op); err != nil {
		return err
	}
	defer m.dev.mu.Unlock()
	next := m.pd
	if mask&ib.ReregPD != 0 {
		if next, err = owned[*PD](m.dev, op, "PD", pd); err != nil {
			return err
		}
	}
	core, err := change(m.core, mask, next.core, mem, iova, access)
	if err != nil {
		return err
	}
	m.core, m.pd = core, next
	return nil
}

// Close revokes the key and waits until the shards and the worker of the domain do not touch
// the memory any more.
func (m *MR) Close() error {
	gone, err := m.Deregister()
	if err != nil {
		return err
	}
	<-gone
	return nil
}

// Deregister revokes the key. When it returns, the shards do not touch the memory any more; gone
// is closed when the worker of the domain does not touch it any more either. Until then the
// memory must stay mapped, even if the worker is closed.
func (m *MR) Deregister() (gone <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.dev.mem.Deregister(m.core); err != nil && !errors.Is(err, ib.ErrClosed) {
		return nil, err
	}
	// Also if it was deregistered before: who did that may still wait for the same turn.
	return m.pd.letGo(), nil
}
