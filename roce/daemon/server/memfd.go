package server

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// files are the memfds that a session shares for its regions. A process may have few mappings (vm.max_map_count), so
// regions share them: each file is mapped in extents, and an extent is unmapped with the last region in it. A page
// counts as pinned once, however many regions contain it. The daemon keeps no descriptor of a file: the mapping of
// the base keeps the file, and further extents are mapped from it (memfds.again).
type files struct {
	// Held while pages are mapped and populated. The session's goroutine takes it, and reap; no shard does.
	mu   sync.Mutex
	list map[fileID]*file
}

// file is a memfd that a session shares, as long as there is a handle or a region of it.
type file struct {
	session *session // whose account is charged
	id      fileID
	base    []byte // the first extent, which stays as long as the file; never changes
	size    uint64 // when it was shared last; it never shrinks
	handles int    // what OpShareMemory has returned, and the client has not closed
	extents []*extent
	pinned  cover // how many regions have each page
}

// extent is a mapped range of a file.
type extent struct {
	start uint64 // in the file
	pages []byte
	users int // regions, and the file itself of its base
}

// extentBytes is the unit of mapping: an extent begins and ends at a multiple of it, or at the
// end of the file. So the mapping of a large file with few regions stays small, and leaves
// addresses for others.
const extentBytes = 64 << 20

// mostFileBytes bounds the offsets of regions, in bytes: again takes as much of the address space for a moment.
const mostFileBytes = 1 << 40

// shareMemory carries out OpShareMemory. Nothing is pinned yet: regions pin what they have. To share a file twice
// gives two handles of one mapping.
func shareMemory(c *session, _ []byte, fds []int) (reply, error) {
	const op = abi.OpShareMemory
	if len(fds) != 1 {
		return noBody(driver.Refuse(op.String(), "descriptors", len(fds), "one, of a memfd", ib.ErrInvalid))
	}
	if err := c.take(op, heap, fileHeap); err != nil {
		return noBody(err)
	}
	f, err := c.files.share(c, op, fds[0])
	if err != nil {
		return noBody(err)
	}
	h := c.add(&object{kind: abi.KindSharedMemory, value: f, close: func() error { return nil },
		free: func() { c.files.unshare(f) }})
	return withBody(abi.Object{Handle: h})
}

// share returns the file of a descriptor, with one more handle.
func (l *files) share(c *session, op abi.Op, fd int) (*file, error) {
	m, err := checkMemfd(op, fd)
	if err != nil {
		return nil, err
	}
	if m.size == 0 {
		return nil, driver.Refuse(op.String(), "bytes of the memfd", 0, "at least 1", ib.ErrInvalid)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.list[m.id]
	if f == nil {
		if f, err = c.newFile(op, fd, &m); err != nil {
			return nil, err
		}
		if l.list == nil {
			l.list = map[fileID]*file{}
		}
		l.list[m.id] = f
	}
	// It may have grown since: F_SEAL_SHRINK forbids the other direction only.
	f.size = m.size
	f.handles++
	return f, nil
}

// newFile maps the first extent of a file. The caller holds files.mu.
func (c *session) newFile(op abi.Op, fd int, m *memfd) (*file, error) {
	if err := c.book(op, mappings, 1); err != nil {
		return nil, err
	}
	f := &file{session: c, id: m.id}
	if err := c.srv.memfds.open(f, op, fd, m); err != nil {
		c.give([]held{{mappings, 1}})
		return nil, err
	}
	f.extents = []*extent{{pages: f.base, users: 1}}
	return f, nil
}

// unshare ends a handle.
func (l *files) unshare(f *file) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.handles--
	l.end(f)
}

// end ends a file that nobody has any more. The caller holds mu.
func (l *files) end(f *file) {
	// Regions keep a file whose handle the client has closed.
	if f.handles > 0 || len(f.pinned) > 0 {
		return
	}
	delete(l.list, f.id)
	f.session.srv.memfds.forget(f)
	f.drop(f.extents[0])
}

// drop ends a use of an extent. Resources are subtracted from the account after the unmapping. The caller holds mu,
// and has made sure that nobody is in the pages.
func (f *file) drop(e *extent) {
	if e.users--; e.users > 0 {
		return
	}
	_ = unmap(e.pages)
	f.extents = slices.DeleteFunc(f.extents, func(o *extent) bool { return o == e })
	f.session.give([]held{{mappings, 1}})
}

// acquire returns a part of a file. It cannot disappear while the file is there: nobody can make the file shorter, or
// holes in it, and the pages are populated. The error is ib.ErrInvalid for a range that the file does not have,
// ib.ErrLimit if the account, or the machine, does not allow it.
func (l *files) acquire(f *file, op abi.Op, addr, length uint64) (*mapping, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// In this order no sum can overflow.
	if addr > f.size || length > f.size-addr || addr+length > mostFileBytes {
		return nil, driver.Refuse(op.String(), "range", fmt.Sprintf("%d bytes from %d on", length, addr),
			fmt.Sprintf("within the %d bytes that the memfd had when it was shared, and within %d", f.size,
				uint64(mostFileBytes)), ib.ErrInvalid)
	}
	if length == 0 {
		return &mapping{Memory: mr.Bytes(nil)}, nil
	}
	page := uint64(os.Getpagesize())
	m := &mapping{files: l, file: f, from: addr &^ (page - 1), to: roundUp(addr+length, page)}
	// Only pages that no other region has: many regions of one buffer cost it once.
	fresh := int64(f.pinned.add(m.from, m.to, 1))
	err := f.session.book(op, pinned, fresh)
	if err == nil {
		if err = f.populate(op, m); err != nil {
			f.session.give([]held{{pinned, fresh}})
		}
	}
	if err != nil {
		f.pinned.add(m.from, m.to, -1)
		return nil, err
	}
	at := addr - m.extent.start
	// Direct: shards copy into it themselves, without a worker.
	m.Memory = mr.Bytes(m.extent.pages[at : at+length : at+length])
	return m, nil
}

// populate finds the extent of a mapping, or maps it, and populates the pages. The caller holds mu. Pages of a region
// that are another one's, too, are there already, and cost no more.
func (f *file) populate(op abi.Op, m *mapping) (err error) {
	i := slices.IndexFunc(f.extents, func(e *extent) bool {
		return e.start <= m.from && m.to <= e.start+uint64(len(e.pages))
	})
	var e *extent
	if i >= 0 {
		e = f.extents[i]
		e.users++
	} else if e, err = f.mapExtent(op, m.from, m.to); err != nil {
		return err
	}
	pages := e.pages[m.from-e.start : m.to-e.start]
	// Now, in the session's goroutine: a page that is missing later would be allocated by a fault in a shard, which
	// may wait for the kernel's memory, or get none.
	if err := unix.Madvise(pages, unix.MADV_POPULATE_WRITE); err != nil {
		f.drop(e)
		return fmt.Errorf("%v: there is no memory for %d bytes: %w: %w", op, len(pages), err, ib.ErrLimit)
	}
	m.extent = e
	return nil
}

// mapExtent maps the range from..to, extended to multiples of extentBytes, for one user.
func (f *file) mapExtent(op abi.Op, from, to uint64) (*extent, error) {
	if err := f.session.book(op, mappings, 1); err != nil {
		return nil, err
	}
	start, end := from&^(extentBytes-1), min(roundUp(to, extentBytes), roundUp(f.size, uint64(os.Getpagesize())))
	pages, err := f.session.srv.memfds.again(f.base, start, end)
	if err != nil {
		f.session.give([]held{{mappings, 1}})
		return nil, fmt.Errorf("%v: map %d bytes: %w: %w", op, end-start, err, ib.ErrLimit)
	}
	e := &extent{start: start, pages: pages, users: 1}
	f.extents = append(f.extents, e)
	return e, nil
}

// release ends the use of a mapping. It is called once the region is deregistered, and no shard or worker is in the
// memory (session.retire, reap).
func (l *files) release(m *mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := m.file
	// Pages that another region has stay pinned, and booked.
	freed := int64(f.pinned.add(m.from, m.to, -1))
	f.drop(m.extent)
	f.session.give([]held{{pinned, freed}})
	l.end(f)
}

// roundUp rounds up to a multiple of a power of two; file offsets are below 1<<63.
func roundUp(n, multiple uint64) uint64 { return (n + multiple - 1) &^ (multiple - 1) }
