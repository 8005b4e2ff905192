package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/remote"
	"github.com/goroce/goroce/roce/simtest"
)

const memoryAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic

// offer connects a and b, where b offers n bytes of memory in its private data, with these rights. It returns the
// memory at both ends.
func offer(t *testing.T, a, b *node, n int, access ib.Access) (_ *remote.Memory, buf []byte,
	client, server *rdmacm.Conn) {
	t.Helper()
	pd, err := b.dev.AllocPD()
	must(t, err)
	buf = ib.Alloc(b.dev, n)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: access})
	must(t, err)
	private, err := ib.RemoteBufferOf(mr).MarshalBinary()
	must(t, err)
	client, server = connect(t, a, b, rdmacm.Config{},
		rdmacm.Config{PD: pd, Access: memoryAccess, PrivateData: private})
	var remoteBuf ib.RemoteBuffer
	must(t, remoteBuf.UnmarshalBinary(client.PrivateData()))
	mem, err := client.Memory(remoteBuf)
	must(t, err)
	return mem, buf, client, server
}

// TestMemory writes and reads from several goroutines, pieces that are smaller and larger than a slot.
func TestMemory(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		const area = 300_000
		mem, buf, _, _ := offer(t, a, b, 4*area, memoryAccess)
		var done sync.WaitGroup
		for i := range 4 {
			done.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				want := make([]byte, area)
				for round := range 8 {
					from := rng.IntN(area)
					part := want[from : from+rng.IntN(area-from+1)]
					for j := range part {
						part[j] = byte(rng.Uint32())
					}
					if n, err := mem.WriteAt(patience(t), part, int64(i*area+from)); err != nil || n != len(part) {
						t.Errorf("write of %d bytes: %d, %v; want %d", len(part), n, err, len(part))
					}
					got := make([]byte, area)
					if n, err := mem.ReadAt(patience(t), got, int64(i*area)); err != nil || n != area {
						t.Errorf("read: %d, %v; want %d", n, err, area)
					}
					if !bytes.Equal(got, want) || !bytes.Equal(buf[i*area:][:area], want) {
						t.Errorf("goroutine %d, round %d: other bytes arrived", i, round)
					}
				}
			})
		}
		done.Wait()
	})
}

// TestMemoryRange: ReadAt ends with io.EOF, as io.ReaderAt does, and a write beyond the end writes nothing.
func TestMemoryRange(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		mem, buf, _, _ := offer(t, a, b, 100, memoryAccess)
		copy(buf, "0123456789")
		copy(buf[95:], "tail!")
		got := make([]byte, 10)
		for _, c := range []struct {
			off  int64
			want string
			err  error
		}{{0, "0123456789", nil}, {95, "tail!", io.EOF}, {100, "", io.EOF}, {1 << 40, "", io.EOF},
			{-1, "", ib.ErrInvalid}} {
			n, err := mem.ReadAt(patience(t), got, c.off)
			if string(got[:n]) != c.want || !errors.Is(err, c.err) {
				t.Errorf("read at %d: %q, %v; want %q, %v", c.off, got[:n], err, c.want, c.err)
			}
		}
		for _, off := range []int64{-1, 91, 101, 1 << 62} {
			if n, err := mem.WriteAt(patience(t), got, off); n != 0 || !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("write at %d: %d, %v; want 0 and %v", off, n, err, ib.ErrInvalid)
			}
		}
		for _, off := range []int64{-8, 4, 96, 1 << 62} {
			if _, err := mem.FetchAdd(patience(t), off, 1); !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("add at %d: %v, want %v", off, err, ib.ErrInvalid)
			}
		}
		if string(buf[:10]) != "0123456789" || string(buf[95:]) != "tail!" {
			t.Error("a refused write has written")
		}
	})
}

// TestMemoryAtomics: a counter and a lock that many goroutines use.
func TestMemoryAtomics(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		const goroutines, each = 4, 20
		mem, buf, _, _ := offer(t, a, b, 24, memoryAccess)
		var done sync.WaitGroup
		counted := 0 // guarded by the lock at offset 8
		for range goroutines {
			done.Go(func() {
				for range each {
					_, err := mem.FetchAdd(patience(t), 0, 1)
					must(t, err)
					for was := uint64(1); was != 0; {
						was, err = mem.CompareSwap(patience(t), 8, 0, 1)
						must(t, err)
					}
					counted++
					_, err = mem.CompareSwap(patience(t), 8, 1, 0)
					must(t, err)
				}
			})
		}
		done.Wait()
		if was, err := mem.FetchAdd(patience(t), 0, 0); err != nil || was != goroutines*each ||
			counted != goroutines*each {
			t.Errorf("counted %d and %d, %v; want %d", was, counted, err, goroutines*each)
		}
		if !bytes.Equal(buf[8:], make([]byte, 16)) {
			t.Errorf("the lock and what is behind it: % x, want zeros", buf[8:])
		}
	})
}

// TestMemoryErrors: the status is in the error, and after the end of the connection its cause.
func TestMemoryErrors(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		mem, _, client, _ := offer(t, a, b, 100, ib.LocalWrite)
		_, err := mem.WriteAt(patience(t), []byte("x"), 0)
		if !errors.Is(err, &ib.WCError{Status: ib.WCRemAccessErr}) {
			t.Errorf("write without the right: %v, want %v", err, ib.WCRemAccessErr)
		}
		if _, err = mem.WriteAt(patience(t), []byte("x"), 0); !errors.Is(err, &ib.WCError{Status: ib.WCWRFlushErr}) {
			t.Errorf("write on a QP in ERR: %v, want %v", err, ib.WCWRFlushErr)
		}
		must(t, client.Close())
		if _, err = mem.WriteAt(patience(t), []byte("x"), 0); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("write after Close: %v, want %v", err, ib.ErrClosed)
		}
		if _, err = client.Memory(mem.Buffer()); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("memory of a closed connection: %v, want %v", err, ib.ErrClosed)
		}

		mem, _, client, server := offer(t, a, b, 100, memoryAccess)
		must(t, server.Disconnect(patience(t)))
		<-client.Done()
		if _, err = mem.ReadAt(patience(t), make([]byte, 1), 0); !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("read after the peer has disconnected: %v, want %v", err, rdmacm.ErrDisconnected)
		}
	})
}

// TestMemoryAbandoned: a call whose context ends returns at once, though its request is under way, and nobody touches
// its slice any more. Close ends the others.
func TestMemoryAbandoned(t *testing.T) {
	silent := &mute{}
	muted := func(l link.Link) link.Link { silent.Link = l; return silent }
	simulateOn(t, simtest.Config{Wrap: only(1, muted)}, func(t *testing.T, hosts []*node) {
		a, b := hosts[0], hosts[1]
		mem, _, client, _ := offer(t, a, b, 4<<20, memoryAccess)
		silent.on.Store(true)
		p := make([]byte, mem.Len())
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			n, err := mem.ReadAt(ctx, p, 0)
			cancel()
			if n != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("read: %d, %v; want 0 and %v", n, err, context.DeadlineExceeded)
			}
			clear(p) // a race if the device or a goroutine still wrote
		}
		ended := make(chan error, 1)
		go func() {
			_, err := mem.ReadAt(t.Context(), p, 0)
			ended <- err
		}()
		must(t, mem.Close())
		if err := <-ended; !errors.Is(err, ib.ErrClosed) {
			t.Errorf("a read under way, after Close: %v, want %v", err, ib.ErrClosed)
		}
		must(t, mem.Close())
		must(t, client.Close())
	})
}

// mute is a link that sends nothing while it is on.
type mute struct {
	link.Link
	on atomic.Bool
}

func (m *mute) Send(now ib.Instant, runs []link.Run) (int, error) {
	if m.on.Load() {
		return len(runs), nil
	}
	return m.Link.Send(now, runs)
}

// TestMemoryForeign: a completion of the application on the Memory's CQ is an error that says so, not a hang.
func TestMemoryForeign(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		mem, _, client, _ := offer(t, a, b, 100, memoryAccess)
		_, err := client.QP().PostSend([]ib.SendWR{{ID: 3, Opcode: ib.WRWrite, Flags: ib.SendSignaled,
			RemoteAddr: mem.Buffer().Addr, RKey: mem.Buffer().RKey}})
		must(t, err)
		if _, err = mem.WriteAt(patience(t), []byte("x"), 0); !errors.Is(err, ib.ErrForeign) {
			t.Errorf("%v, want ib.ErrForeign", err)
		}
	})
}
