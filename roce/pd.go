package roce

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// PD is a protection domain of the software device.
type PD struct {
	dev  *Device
	core *mr.PD
	dead atomic.Bool
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (ib.PD, error) {
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
	return &PD{dev: d, core: core}, nil
}

// Close frees the domain.
func (p *PD) Close() error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if p.dead.Load() || p.dev.closed {
		return nil
	}
	if err := p.dev.mem.FreePD(p.core); err != nil {
		return err
	}
	p.dead.Store(true)
	p.dev.pds--
	return nil
}

// MR is a memory region of the software device.
type MR struct {
	pd   *PD
	core *mr.Region
	buf  []byte // keeps the memory alive
}

// RegMR registers memory of this process.
func (p *PD) RegMR(init ib.MRInit) (ib.MR, error) {
	if err := p.dev.open("register memory"); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	iova := init.IOVA
	if iova == 0 && init.Access&ib.ZeroBased == 0 {
		iova = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(init.Buf))))
	}
	core, err := p.dev.mem.Register(p.core, mr.Bytes(init.Buf), iova, init.Access)
	if err != nil {
		return nil, err
	}
	return &MR{pd: p, core: core, buf: init.Buf}, nil
}

// Addr returns the address of the first byte.
func (m *MR) Addr() uint64 { return m.core.Addr() }

// Len returns the length in bytes.
func (m *MR) Len() int { return int(m.core.Len()) }

// LKey returns the local key.
func (m *MR) LKey() ib.Key { return m.core.Key() }

// RKey returns the remote key, the same number.
func (m *MR) RKey() ib.Key { return m.core.Key() }

// Close revokes the key and waits for the shard to let go of the memory.
func (m *MR) Close() error {
	err := m.pd.dev.mem.Deregister(m.core)
	if errors.Is(err, ib.ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("close MR: %w", err)
	}
	m.pd.dev.shard.quiesce()
	return nil
}
