package server

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// files are the memfds, and files of tmpfs, of which a session has registered ranges. A process may have few mappings
// (vm.max_map_count), so registrations share them: each file is mapped in extents, and an extent
// is unmapped with the last registration in it. A page counts as pinned once, however many
// registrations contain it.
type files struct {
	mu   sync.Mutex
	list map[fileID]*file
}

// fileID identifies a file while it exists.
type fileID struct{ dev, ino uint64 }

type file struct {
	session *session // whose account is charged
	id      fileID
	extents []*extent
	pinned  cover
}

// extent is a mapped range of a file.
type extent struct {
	start uint64 // in the file
	pages []byte
	users int // registrations
}

// extentBytes is the unit of mapping: an extent begins and ends at a multiple of it, or at the
// end of the file. So the mapping of a large file with few registrations stays small, and leaves
// addresses for others.
const extentBytes = 64 << 20

// acquire maps the part of a file that a request names. Memory of kind MemFD cannot disappear while
// it is mapped: the file cannot shrink (F_SEAL_SHRINK), and its pages are populated.
func (l *files) acquire(c *session, op abi.Op, fds []int, r *abi.RegMR) (*mapping, error) {
	addr, length := r.Addr, r.Length
	if len(fds) != 1 {
		return nil, ib.Refuse(op.String(), "descriptors", len(fds), "one, of a memfd", ib.ErrInvalid)
	}
	id, size, err := checkFile(op, fds[0], r.Kind == abi.MemFile)
	if err != nil {
		return nil, err
	}
	if addr > size || length > size-addr {
		return nil, ib.Refuse(op.String(), "range", fmt.Sprintf("%d bytes from %d on", length, addr),
			fmt.Sprintf("within the %d bytes of the memfd", size), ib.ErrInvalid)
	}
	if length == 0 {
		return &mapping{Memory: mr.Bytes(nil)}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.list[id]
	if f == nil {
		f = &file{session: c, id: id}
	}
	page := uint64(os.Getpagesize())
	m := &mapping{files: l, file: f, from: addr &^ (page - 1), to: roundUp(addr+length, page)}
	fresh := f.pinned.add(m.from, m.to, 1)
	if err := c.book(op, pinned, int64(fresh)); err != nil {
		f.pinned.add(m.from, m.to, -1)
		return nil, err
	}
	if l.list == nil {
		l.list = map[fileID]*file{}
	}
	l.list[id] = f
	if err := f.populate(op, fds[0], size, m); err != nil {
		l.drop(m)
		return nil, err
	}
	at := addr - m.extent.start
	m.Memory = mr.Bytes(m.extent.pages[at : at+length : at+length])
	return m, nil
}

// checkFile refuses files whose memory could disappear, unless they may shrink, and returns the file's
// identity and size.
func checkFile(op abi.Op, fd int, mayShrink bool) (id fileID, size uint64, err error) {
	bad := func(attr string, value any, allowed string) (fileID, uint64, error) {
		return id, 0, ib.Refuse(op.String(), attr, value, allowed, ib.ErrInvalid)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return bad("descriptor", err, "a memfd that was made with MFD_ALLOW_SEALING")
	}
	if seals&unix.F_SEAL_SHRINK == 0 && !mayShrink {
		return bad("seals", fmt.Sprintf("%#x", seals), "F_SEAL_SHRINK among them, so that the memory stays")
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return bad("seals", fmt.Sprintf("%#x", seals),
			"neither F_SEAL_WRITE nor F_SEAL_FUTURE_WRITE: the daemon maps it for writing")
	}
	// If its extent is mapped already there is no mmap(2) that would check the mode.
	if mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || mode&unix.O_ACCMODE != unix.O_RDWR {
		return bad("access mode", fmt.Sprintf("%#x", mode&unix.O_ACCMODE), "O_RDWR: the daemon maps it for writing")
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return id, 0, os.NewSyscallError("fstatfs", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return bad("memfd", fmt.Sprintf("file system %#x", fs.Type),
			"plain memory; huge pages that are not reserved could be missing when they are needed")
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return id, 0, os.NewSyscallError("fstat", err)
	}
	return fileID{uint64(st.Dev), st.Ino}, uint64(st.Size), nil
}

// populate finds the extent of a mapping, or maps it, and populates the pages.
func (f *file) populate(op abi.Op, fd int, size uint64, m *mapping) error {
	i := slices.IndexFunc(f.extents, func(e *extent) bool {
		return e.start <= m.from &&
			m.to <= e.start+uint64(len(e.pages))
	})
	if i < 0 {
		e, err := f.mapExtent(op, fd, size, m.from, m.to)
		if err != nil {
			return err
		}
		i = len(f.extents)
		f.extents = append(f.extents, e)
	}
	m.extent = f.extents[i]
	m.extent.users++
	pages := m.extent.pages[m.from-m.extent.start : m.to-m.extent.start]
	if err := unix.Madvise(pages, unix.MADV_POPULATE_WRITE); err != nil {
		return fmt.Errorf("%v: there is no memory for %d bytes: %w: %w", op, len(pages), err, ib.ErrLimit)
	}
	return nil
}

// mapExtent maps the range from..to, extended to multiples of extentBytes.
func (f *file) mapExtent(op abi.Op, fd int, size, from, to uint64) (*extent, error) {
	if err := f.session.book(op, mappings, 1); err != nil {
		return nil, err
	}
	start, end := from&^(extentBytes-1), min(roundUp(to, extentBytes), roundUp(size, uint64(os.Getpagesize())))
	pages, err := unix.Mmap(fd, int64(start), int(min(end-start, math.MaxInt)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		f.session.give([]held{{mappings, 1}})
		return nil, fmt.Errorf("%v: map %d bytes: %w: %w", op, end-start, err, ib.ErrLimit)
	}
	return &extent{start: start, pages: pages}, nil
}

// release ends the use of a mapping.
func (l *files) release(m *mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(m)
}

// drop is release with mu held. Resources are subtracted from the account after the unmapping.
func (l *files) drop(m *mapping) {
	f, e := m.file, m.extent
	back := []held{{pinned, int64(f.pinned.add(m.from, m.to, -1))}}
	if e != nil {
		if e.users--; e.users == 0 {
			_ = unmap(e.pages)
			f.extents = slices.DeleteFunc(f.extents, func(o *extent) bool { return o == e })
			back = append(back, held{mappings, 1})
		}
	}
	if len(f.pinned) == 0 {
		delete(l.list, f.id)
	}
	f.session.give(back)
}

// roundUp rounds up to a multiple of a power of two; file offsets are below 1<<63.
func roundUp(n, multiple uint64) uint64 { return (n + multiple - 1) &^ (multiple - 1) }
