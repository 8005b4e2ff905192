// Package remote reads and writes the memory of a peer as if it were a file: ReadAt, WriteAt and atomics with a
// context, over a connected queue pair.
//
//	var buf ib.RemoteBuffer
//	err := buf.UnmarshalBinary(conn.PrivateData()) // what the peer offers
//	mem, err := conn.Memory(buf)                   // conn is an rdmacm.Conn
//	n, err := mem.WriteAt(ctx, []byte("hello"), 0)
//
// Data is copied through registered memory of the package, so any slice will do, and once a call has returned, also
// because its context has ended, the device does not touch the caller's slice. Applications that cannot afford the copy
// post requests themselves.
package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Config says what a Memory works with.
type Config struct {
	Device ib.Device
	PD     ib.PD // of QP
	// QP is connected, of type RC, with at least one SGE for each send request. Its send queue and CQ belong to the
	// Memory until Close. CQ is the QP's send CQ; it has no channel, and no other queue completes there: if the
	// application receives on this QP, it has another CQ for that.
	QP     ib.QP
	CQ     ib.CQ
	Buffer ib.RemoteBuffer
	// Cause, if not nil, returns why the connection has ended, or nil. Errors of flushed requests then say it.
	Cause func() error
}

// Memory is memory of a peer. Its methods may be called from several goroutines at once.
type Memory struct {
	o          Config
	buf        []byte
	mr         ib.MR
	slots      []slot
	free       chan *slot    // those without a request
	collecting chan struct{} // full while a goroutine collects completions, for all
	wcs        [16]ib.WC     // used by that goroutine

	open       sync.RWMutex // held for reading by calls
	ctx        context.Context
	cancel     context.CancelFunc // ends calls, by Close
	background sync.WaitGroup     // requests that were abandoned and are not complete
}

// slot is a part of the registered memory, with at most one request on it.
type slot struct {
	index int
	data  []byte
	done  chan ib.WC // the completion of its request
}

const (
	maxSlots = 16
	slotLen  = 64 << 10
	idTag    = 0x72656d6f << 32 // "remo": marks the IDs of a Memory's requests
)

// New returns a Memory for o.Buffer. The caller closes it, before the QP.
func New(o Config) (*Memory, error) {
	const op = "open remote memory"
	if t := o.QP.Type(); t != ib.RC {
		return nil, driver.Refuse(op, "QP", t, "a QP of type RC", ib.ErrInvalid)
	}
	attr, err := o.QP.Query()
	if err != nil {
		return nil, err
	}
	n := min(maxSlots, attr.Cap.MaxSendWR)
	if n == 0 {
		return nil, driver.Refuse(op, "QPCap.MaxSendWR", 0, "1 at least, 16 for the best throughput", ib.ErrInvalid)
	}
	m := &Memory{o: o, buf: ib.Alloc(o.Device, n*slotLen), slots: make([]slot, n), free: make(chan *slot, n),
		collecting: make(chan struct{}, 1)}
	if m.mr, err = o.PD.RegMR(ib.MRInit{Buf: m.buf, Access: ib.LocalWrite}); err != nil {
		ib.Free(o.Device, m.buf)
		return nil, err
	}
	for i := range m.slots {
		m.slots[i] = slot{i, m.buf[i*slotLen:][:slotLen], make(chan ib.WC, 1)}
		m.free <- &m.slots[i]
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Buffer returns the buffer that the Memory is for.
func (m *Memory) Buffer() ib.RemoteBuffer { return m.o.Buffer }

// Len returns the length of the memory, in bytes.
func (m *Memory) Len() int64 { return int64(m.o.Buffer.Length) }

// Close ends calls that are under way, with errors that match ib.ErrClosed, and frees what the Memory holds. It is
// idempotent. If a request has not completed yet, the QP cannot be used any more.
func (m *Memory) Close() error {
	m.cancel()
	m.open.Lock()
	defer m.open.Unlock()
	m.background.Wait()
	if m.buf == nil {
		return nil
	}
	if err := m.mr.Close(); err != nil {
		return err
	}
	ib.Free(m.o.Device, m.buf)
	m.buf = nil
	return nil
}

// enter begins a call. ctx ends with the Memory, too. The caller calls leave.
func (m *Memory) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	m.open.RLock()
	if m.ctx.Err() != nil {
		m.open.RUnlock()
		return nil, nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(m.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		m.open.RUnlock()
	}, nil
}

// ended returns the error of a call whose ctx has ended: that of the caller's context, or errClosed.
func (m *Memory) ended(ctx context.Context) error {
	if m.ctx.Err() != nil {
		return errClosed
	}
	return ctx.Err()
}

var errClosed = fmt.Errorf("remote memory: %w", ib.ErrClosed)

// request returns a request on the peer's memory at off, without its SGE.
func (m *Memory) request(op ib.WROpcode, off int64) ib.SendWR {
	return ib.SendWR{Opcode: op, RemoteAddr: m.o.Buffer.Addr + uint64(off), RKey: m.o.Buffer.RKey}
}

// acquire waits for a slot without a request.
func (m *Memory) acquire(ctx context.Context) (*slot, error) {
	select {
	case s := <-m.free:
		return s, nil
	case <-ctx.Done():
		return nil, m.ended(ctx)
	}
}

// do posts a request on s, with n bytes of its data, and waits for its completion. If do returns an error the slot is
// not the caller's any more.
func (m *Memory) do(ctx context.Context, s *slot, n int, wr ib.SendWR) error {
	wr.ID, wr.Flags = idTag|uint64(s.index), ib.SendSignaled
	wr.SGL = []ib.SGE{m.mr.SGE(s.index*slotLen, n)}
	if _, err := m.o.QP.PostSend([]ib.SendWR{wr}); err != nil {
		m.free <- s
		return err
	}
	wc, err := m.await(ctx, s)
	if err != nil { // the device may still use the slot
		m.background.Go(func() {
			if _, err := m.await(m.ctx, s); err == nil {
				m.free <- s
			}
		})
		return err
	}
	if err := wc.Err(); err != nil {
		m.free <- s
		return m.explain(err)
	}
	return nil
}

// explain adds the connection's end to the error of a request that was flushed because of it.
func (m *Memory) explain(err error) error {
	if m.o.Cause == nil || !errors.Is(err, &ib.WCError{Status: ib.WCWRFlushErr}) {
		return err
	}
	if cause := m.o.Cause(); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// await waits for the completion of the request on s. One of the goroutines that wait collects completions for all.
func (m *Memory) await(ctx context.Context, s *slot) (ib.WC, error) {
	for {
		select {
		case wc := <-s.done:
			return wc, nil
		case m.collecting <- struct{}{}:
			err := m.collect(ctx, s)
			<-m.collecting
			if err != nil {
				return ib.WC{}, err
			}
		case <-ctx.Done():
			return ib.WC{}, m.ended(ctx)
		}
	}
}

// collect hands completions to their slots until s has its own.
func (m *Memory) collect(ctx context.Context, s *slot) error {
	for len(s.done) == 0 {
		n, err := m.o.CQ.Wait(ctx, m.wcs[:])
		if err != nil {
			if ctx.Err() != nil {
				err = m.ended(ctx)
			}
			return err
		}
		for i := range m.wcs[:n] {
			err = errors.Join(err, m.hand(m.wcs[i]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hand gives a completion to its slot.
func (m *Memory) hand(wc ib.WC) error {
	i := wc.ID &^ idTag
	if wc.ID&idTag != idTag || i >= uint64(len(m.slots)) || wc.QPN != m.o.QP.Num() || len(m.slots[i].done) > 0 {
		return fmt.Errorf("completion of request %d on QP %#x: %w; give the remote memory a CQ of its own "+
			"(rdmacm.Config.RecvCQ for receives)", wc.ID, uint32(wc.QPN), errForeign)
	}
	m.slots[i].done <- wc
	return nil
}

var errForeign = fmt.Errorf("of another user of the CQ (%w)", ib.ErrForeign)
