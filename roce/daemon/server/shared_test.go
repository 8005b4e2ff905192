package server

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/uffd"
)

// newMemfd returns a descriptor of a new memfd.
func newMemfd(t testing.TB, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	must(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	must(t, err)
	return fd
}

// memfdBytes is more than the requests of these tests need.
const memfdBytes = 1 << 20

// newSharedMemory returns a memfd as clients share it, which the test has mapped.
func newSharedMemory(t testing.TB) (fd int, buf []byte) {
	t.Helper()
	fd = newMemfd(t, memfdBytes, unix.F_SEAL_SHRINK)
	t.Cleanup(func() { _ = unix.Close(fd) })
	buf, err := unix.Mmap(fd, 0, memfdBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(buf)) })
	return fd, buf
}

// takesMemory are the requests with which a memfd comes.
var takesMemory = []abi.Op{abi.OpShareDoorbells, abi.OpCreateCQ, abi.OpResizeCQ, abi.OpCreateSRQ, abi.OpModifySRQ,
	abi.OpCreateQP, abi.OpShareMemory}

// sharer is a session that has objects with rings, and a request for each kind of memory that a client shares.
type sharer struct {
	*bareSession
	pd, cq, srq abi.Handle
}

func newSharer(t *testing.T, s *Server) *sharer {
	c := &sharer{bareSession: newBareSession(t, s)}
	c.pd = c.make(abi.OpAllocPD, nil)
	c.cq = c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 4}))
	c.srq = c.make(abi.OpCreateSRQ, abi.Put(nil, &abi.CreateSRQ{PD: c.pd, MaxWR: 4, MaxSGE: 1}))
	return c
}

// request returns the body of a request that shares memory.
func (c *sharer) request(op abi.Op) []byte {
	switch op {
	case abi.OpCreateCQ:
		return abi.Put(nil, &abi.CreateCQ{Entries: 8})
	case abi.OpResizeCQ:
		return abi.Put(nil, &abi.ResizeCQ{CQ: c.cq, Entries: 16})
	case abi.OpCreateSRQ:
		return abi.Put(nil, &abi.CreateSRQ{PD: c.pd, MaxWR: 8, MaxSGE: 1})
	case abi.OpModifySRQ:
		return abi.Put(nil, &abi.SRQAttr{SRQ: c.srq, Mask: uint32(ib.SRQMaxWR), MaxWR: 16})
	case abi.OpCreateQP:
		return abi.Put(nil, &abi.CreateQP{PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq, Type: uint32(ib.RC), MaxSendWR: 8,
			MaxRecvWR: 8})
	}
	return nil
}

// share sends a request that shares the memory of a descriptor.
func (c *sharer) share(op abi.Op, fds ...int) error {
	if op == abi.OpShareDoorbells { // which the session has already
		c.closeDoorbells()
		c.shared.free()
		c.shared = nil
	}
	_, err := c.answer(op, c.request(op), fds)
	return err
}

// held returns what the session holds.
func (c *sharer) held() [numResources]int64 {
	c.srv.accounts.mu.Lock()
	defer c.srv.accounts.mu.Unlock()
	return c.own.used
}

// TestNoHoles has a client make holes in the memory that it shares with the server, by its descriptor and by its
// mapping: neither can be done, so no shard ever waits for that in a page fault.
func TestNoHoles(t *testing.T) {
	s, _ := newServer(t)
	for _, op := range takesMemory {
		t.Run(op.String(), func(t *testing.T) {
			c := newSharer(t, s)
			fd, buf := newSharedMemory(t)
			must(t, c.share(op, fd))
			if op == abi.OpShareMemory {
				_, region := c.register(c.pd, c.last, 0, memfdBytes)
				copy(region, "a region")
			}
			const mark = "of the client"
			end := buf[memfdBytes-len(mark):] // where nobody else writes
			copy(end, mark)
			first := slices.Clone(buf[:4096])
			for way, err := range map[string]error{
				"FALLOC_FL_PUNCH_HOLE": unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0,
					memfdBytes),
				"MADV_REMOVE": unix.Madvise(buf, unix.MADV_REMOVE),
				"ftruncate":   unix.Ftruncate(fd, 0),
			} {
				if !errors.Is(err, unix.EPERM) {
					t.Errorf("%s: %v, want EPERM", way, err)
				}
			}
			must(t, unix.Madvise(buf, unix.MADV_DONTNEED)) // only the client's own mapping lets go of its pages
			// A shard that goes to sleep writes to its doorbells meanwhile.
			if string(end) != mark || op != abi.OpShareDoorbells && !slices.Equal(buf[:4096], first) {
				t.Error("the memory has changed")
			}
		})
	}
}

// untouched reports whether nothing has ever been written to, or read from, a memfd by its mappings.
func untouched(t *testing.T, fd int) bool {
	t.Helper()
	_, err := unix.Seek(fd, 0, unix.SEEK_DATA)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		t.Fatal(err)
	}
	return err != nil // there are no pages
}

// TestSealedBeforeTouched: of a memfd in which a client can make holes the server touches no page. It refuses one
// that it cannot seal, and says what is wrong.
func TestSealedBeforeTouched(t *testing.T) {
	s, _ := newServer(t)
	for _, op := range takesMemory {
		for _, x := range []struct {
			what  string
			size  int64
			seals int
			attr  string
		}{
			{"no more seals", memfdBytes, unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL, "seals"},
			{"it may shrink", memfdBytes, 0, "seals"},
			{"nobody writes", memfdBytes, unix.F_SEAL_SHRINK | unix.F_SEAL_WRITE, "seals"},
			{"nobody maps it for writing", memfdBytes, unix.F_SEAL_SHRINK | unix.F_SEAL_FUTURE_WRITE, "seals"},
			{"empty", 0, unix.F_SEAL_SHRINK, "bytes of the memfd"},
		} {
			t.Run(op.String()+"/"+x.what, func(t *testing.T) {
				c := newSharer(t, s)
				fd := newMemfd(t, x.size, x.seals)
				defer unix.Close(fd)
				before := c.held()
				var refused *ib.AttrError
				if err := c.share(op, fd); !errors.As(err, &refused) || !errors.Is(err, ib.ErrInvalid) ||
					refused.Attr != x.attr || refused.Op != op.String() {
					t.Errorf("%v, want a refusal of %q", err, x.attr)
				}
				if !untouched(t, fd) {
					t.Error("the server has touched it")
				}
				if now := c.held(); now != before {
					t.Errorf("held %v, want %v as before", now, before)
				}
			})
		}
		c := newSharer(t, s)
		fd, _ := newSharedMemory(t)
		for _, fds := range [][]int{nil, {fd, fd}} {
			if err := c.share(op, fds...); !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("%v with %d descriptors: %v, want ErrInvalid", op, len(fds), err)
			}
		}
	}
}

// TestSealedMemory checks that TestSealedBeforeTouched would notice: it tells memory that was touched from other.
func TestSealedMemory(t *testing.T) {
	fd, buf := newSharedMemory(t)
	if !untouched(t, fd) {
		t.Error("new memory counts as touched")
	}
	if *(*byte)(unsafe.Pointer(&buf[5000])) != 0 || untouched(t, fd) {
		t.Error("memory that was read counts as untouched")
	}
}

// TestMostShards opens a device of as many shards as there can be: a reply has room for all their eventfds.
func TestMostShards(t *testing.T) {
	s, listener := newShardedServer(t, link.MaxShards)
	s.SetProcesses(true, true)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	c := newPairClient(t, listener.Addr().String())
	c.exchange(0)
	must(t, c.dev.Close())
	cancel()
	must(t, <-ended)
}

// slowWriter is a thread of a client that writes to a memfd by write(2), from a page that does not come.
type slowWriter struct {
	fault uffd.Fault
	page  []byte
	ended chan error
}

// newSlowWriter returns a writer that holds the lock of the file's inode.
func newSlowWriter(t *testing.T, fd int) *slowWriter {
	t.Helper()
	w := &slowWriter{ended: make(chan error, 1)}
	var err error
	w.page, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	if w.fault, err = uffd.Hang(w.page); err != nil {
		require.Missing(t, uffd.Needs, err)
	}
	t.Cleanup(func() { _ = unix.Close(int(w.fault)) }) // ends the wait in any case
	go func() {
		_, err := unix.Pwrite(fd, w.page, 0)
		w.ended <- err
	}()
	must(t, w.fault.Wait())
	return w
}

// end lets the page come.
func (w *slowWriter) end(t *testing.T) {
	t.Helper()
	must(t, w.fault.Resolve(w.page))
	must(t, <-w.ended)
}

// TestSealWaits: a client that keeps the kernel from sealing the memory that it shares waits alone, until its memory
// comes or its session ends.
func TestSealWaits(t *testing.T) {
	s, _ := newServer(t)
	for _, op := range takesMemory {
		t.Run(op.String(), func(t *testing.T) {
			c, other := newSharer(t, s), newSharer(t, s)
			fd, _ := newSharedMemory(t)
			w := newSlowWriter(t, fd)
			shared := make(chan error, 1)
			go func() { shared <- c.share(op, fd) }()
			require.Until(t, "the session waits for the seal", func() bool {
				c.user.closer.files.mu.Lock()
				defer c.user.closer.files.mu.Unlock()
				return c.user.closer.files.workers > 0
			})
			for _, op := range takesMemory {
				fd, _ := newSharedMemory(t)
				if err := other.share(op, fd); err != nil {
					t.Errorf("%v of another client: got %v, want success", op, err)
				}
			}
			if len(shared) > 0 {
				t.Errorf("got an answer (%v) while the file cannot be sealed", <-shared)
			}
			w.end(t)
			if err := <-shared; err != nil {
				t.Errorf("with the page there: got %v, want success", err)
			}
		})
	}
	t.Run("the session ends", func(t *testing.T) {
		c := newSharer(t, s)
		fd, _ := newSharedMemory(t)
		w := newSlowWriter(t, fd)
		shared := make(chan error, 1)
		go func() { shared <- c.share(abi.OpCreateCQ, fd) }()
		require.Until(t, "the session waits for the seal", func() bool { return c.ties.Load() > 1 })
		c.hangUp()
		if err := <-shared; !errors.Is(err, ib.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		w.end(t)
	})
}
