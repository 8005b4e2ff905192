package device

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
)

// MW is a memory window of the software device.
type MW struct {
	driver.Implementation

	pd   *PD
	core *mr.Window

	mu  sync.Mutex
	key ib.Key // type 1: key of the latest Bind, which may not have been carried out yet
}

// AllocMW makes a memory window.
func (p *PD) AllocMW(t ib.MWType) (ib.MW, error) {
	if err := p.dev.open("allocate MW"); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	core, err := p.dev.mem.AllocWindow(p.core, t)
	if err != nil {
		return nil, err
	}
	return &MW{pd: p, core: core, key: core.Key()}, nil
}

// Type returns the kind of window.
func (w *MW) Type() ib.MWType { return w.core.Type() }

// RKey returns the current key.
func (w *MW) RKey() ib.Key {
	if w.core.Type() == ib.MWType2 {
		return w.core.Key()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.key
}

// Bind posts the binding of a window of type 1.
func (w *MW) Bind(qp ib.QP, id uint64, flags ib.SendFlags, b ib.MWBind) error {
	const op = "bind MW"
	q, err := owned[*QP](w.pd.dev, op, "QP", qp)
	if err != nil {
		return err
	}
	if w.core.Type() != ib.MWType1 {
		return driver.Refuse(op, "window", w.core.Type(),
			"type 1; post a BindMW request for windows of type 2", ib.ErrInvalid)
	}
	// Binds of one window are posted in the order of their keys.
	w.mu.Lock()
	defer w.mu.Unlock()
	// As ibv_bind_mw does, it gives out the next key before the request was carried out: later requests of the QP,
	// which may carry the key to a peer, come after it.
	key := ib.NextKey(w.key)
	if _, err := q.PostSend([]ib.SendWR{{ID: id, Opcode: ib.WRBindMW, Flags: flags, RKey: key, Bind: b}}); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	w.key = key
	return nil
}

// Close frees the window. When it returns, no access by the window begins any more; a turn of the domain's worker that
// is under way may still access slow memory. MR.Close waits for that turn.
func (w *MW) Close() error {
	err := w.pd.dev.mem.FreeWindow(w.core)
	if errors.Is(err, ib.ErrClosed) {
		return nil
	}
	if err != nil {
		return err
	}
	// A shard that found the window before may be copying by it.
	w.pd.dev.engine.Quiesce()
	return nil
}
