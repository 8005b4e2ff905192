package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// ReadAt fills p with the peer's memory from offset off on, by RDMA READ. It returns how many bytes of p are valid. As
// with io.ReaderAt, the error is io.EOF if the memory ends before p is full. If ctx ends, the error matches ctx.Err();
// after Close, ib.ErrClosed; and if the request fails, an *ib.WCError.
func (m *Memory) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, m.refuse("read", off, len(p))
	}
	want := len(p)
	p = p[:min(int64(want), max(m.Len()-off, 0))]
	n, err := m.each(ctx, "read", p, off, func(ctx context.Context, s *slot, part []byte, at int64) error {
		if err := m.do(ctx, s, len(part), m.request(ib.WRRead, at)); err != nil {
			return err
		}
		copy(part, s.data)
		m.free <- s
		return nil
	})
	if err == nil && n < want {
		err = io.EOF
	}
	return n, err
}

// WriteAt writes p to the peer's memory at offset off, by RDMA WRITE. When it returns without an error the data is in
// the peer's memory. The peer is not told. If p does not fit, nothing is written, and the error matches ib.ErrInvalid.
// It returns how many bytes at the beginning of p are certain to have arrived. Other errors are those of ReadAt.
func (m *Memory) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 || off > m.Len() || int64(len(p)) > m.Len()-off {
		return 0, m.refuse("write", off, len(p))
	}
	return m.each(ctx, "write", p, off, func(ctx context.Context, s *slot, part []byte, at int64) error {
		copy(s.data, part)
		if err := m.do(ctx, s, len(part), m.request(ib.WRWrite, at)); err != nil {
			return err
		}
		m.free <- s
		return nil
	})
}

// CompareSwap compares the 8 bytes at off, a number in the peer's byte order, with compare, and stores swap if they are
// equal: one atomic step for all users of the peer's device. It returns the number that was there before. The address,
// Buffer.Addr + off, must be a multiple of 8.
func (m *Memory) CompareSwap(ctx context.Context, off int64, compare, swap uint64) (uint64, error) {
	wr := m.request(ib.WRCompareSwap, off)
	wr.Compare, wr.Swap = compare, swap
	return m.atomic(ctx, off, wr)
}

// FetchAdd adds a number to the 8 bytes at off, and otherwise is like CompareSwap.
func (m *Memory) FetchAdd(ctx context.Context, off int64, add uint64) (uint64, error) {
	wr := m.request(ib.WRFetchAdd, off)
	wr.Swap = add
	return m.atomic(ctx, off, wr)
}

func (m *Memory) atomic(ctx context.Context, off int64, wr ib.SendWR) (before uint64, err error) {
	const op = "change"
	if off < 0 || off > m.Len()-8 || wr.RemoteAddr%8 != 0 {
		return 0, m.refuse(op, off, 8)
	}
	_, err = m.each(ctx, op, make([]byte, 8), off, func(ctx context.Context, s *slot, _ []byte, _ int64) error {
		if err := m.do(ctx, s, 8, wr); err != nil {
			return err
		}
		before = binary.NativeEndian.Uint64(s.data)
		m.free <- s
		return nil
	})
	return before, err
}

// refuse returns the error for bytes that are not in the memory.
func (m *Memory) refuse(verb string, off int64, n int) error {
	return driver.Refuse(verb+" remote memory", "range", fmt.Sprintf("%d bytes at offset %d", n, off),
		fmt.Sprintf("within 0 to %d; atomics: 8 bytes at a multiple of 8", m.Len()), ib.ErrInvalid)
}

// each calls access for the parts of p that fit into a slot, several at a time, and returns how many bytes come before
// the first part that has failed.
func (m *Memory) each(ctx context.Context, verb string, p []byte, off int64,
	access func(ctx context.Context, s *slot, part []byte, at int64) error) (int, error) {
	ctx, leave, err := m.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	parts := make([]error, (len(p)+slotLen-1)/slotLen)
	var under sync.WaitGroup
	for i := range parts {
		s, err := m.acquire(ctx)
		if err != nil {
			parts[i] = err
			break
		}
		at := i * slotLen
		part := p[at:min(at+slotLen, len(p))]
		if len(parts) == 1 {
			parts[i] = access(ctx, s, part, off)
			break
		}
		under.Go(func() { parts[i] = access(ctx, s, part, off+int64(at)) })
	}
	under.Wait()
	for i, err := range parts {
		if err != nil {
			return i * slotLen, fmt.Errorf("%s %d bytes at offset %d of remote memory: %w", verb, len(p), off, err)
		}
	}
	return len(p), nil
}
