package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// Who has a file of tmpfs, or a mapping of it, for writing can make holes in it (FALLOC_FL_PUNCH_HOLE,
// MADV_REMOVE). Whoever touches a page there meanwhile waits in the page fault, and a thread of a Go program that
// waits there may hold up all others. F_SEAL_FUTURE_WRITE makes both fail with EPERM, from the end of a call that
// is under way on. It forbids new mappings for writing, too. So the daemon maps a file first, then seals it, and
// only then touches it.

// fileID identifies a file while it exists.
type fileID struct{ dev, ino uint64 }

// memfd is what the server knows of a file before it maps it.
type memfd struct {
	id     fileID
	size   uint64
	sealed bool // with F_SEAL_FUTURE_WRITE: nobody can map it for writing, or make holes in it
}

// checkMemfd refuses files that are not plain memory, that could become shorter, or that cannot be sealed. The first
// question is safe for any file that a client may send: only tmpfs and hugetlbfs have seals, for others the kernel
// says EINVAL without asking their file system, which the client itself may serve (FUSE). Seals are never taken off,
// so what is found about them stays true; others may add some at any moment.
func checkMemfd(op abi.Op, fd int) (m memfd, err error) {
	bad := func(attr string, value any, allowed string) (memfd, error) {
		return m, driver.Refuse(op.String(), attr, value, allowed, ib.ErrInvalid)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return bad("descriptor", err, "a memfd that was made with MFD_ALLOW_SEALING")
	}
	m.sealed = seals&unix.F_SEAL_FUTURE_WRITE != 0
	have := fmt.Sprintf("%#x", seals)
	switch {
	case seals&unix.F_SEAL_SHRINK == 0:
		return bad("seals", have, "F_SEAL_SHRINK among them, so that the memory stays")
	case seals&unix.F_SEAL_WRITE != 0:
		return bad("seals", have, "no F_SEAL_WRITE: the daemon maps the memory for writing")
	case seals&unix.F_SEAL_SEAL != 0 && !m.sealed:
		return bad("seals", have,
			"no F_SEAL_SEAL: the daemon adds F_SEAL_FUTURE_WRITE, so that nobody can make holes in the memory")
	}
	// A file that is mapped already is mapped again without mmap(2), which would check the mode.
	if mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || mode&unix.O_ACCMODE != unix.O_RDWR {
		return bad("access mode", fmt.Sprintf("%#x", mode&unix.O_ACCMODE), "O_RDWR: the daemon maps it for writing")
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return m, os.NewSyscallError("fstatfs", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return bad("memfd", fmt.Sprintf("file system %#x", fs.Type),
			"plain memory; huge pages that are not reserved could be missing when they are needed")
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return m, os.NewSyscallError("fstat", err)
	}
	m.id, m.size = fileID{uint64(st.Dev), st.Ino}, uint64(st.Size)
	return m, nil
}

// mapMemfd maps the first bytes of a memfd, which must not be touched before it is sealed.
func mapMemfd(op abi.Op, fd int, size uint64) ([]byte, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%v: map %d bytes: %w: %w", op, size, err, ib.ErrLimit)
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// seal keeps everybody from making holes in a memfd, and from mapping it for writing. The kernel locks the file's inode
// for that, as it does for write(2). Who writes from a page that does not come (userfaultfd, FUSE) holds that lock, and
// no signal ends the wait. So the user's closer does it, and no lock of the daemon is held meanwhile: other users do
// not wait, and the threads that hang are few. A session that has waited for takeLimit is refused.
func (c *session) seal(op abi.Op, fd int) error {
	// A descriptor of its own, as the one that the client has sent is closed when the session has given up.
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%v: duplicate the descriptor: %w: %w", op, err, ib.ErrLimit)
	}
	sealed := make(chan error, 1) // so that the closer's thread does not wait for a session that has given up
	c.ties.Add(1)
	c.user.closer.files.do(func() {
		_, err := unix.FcntlInt(uintptr(own), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
		_ = unix.Close(own)
		sealed <- err
		c.untie()
	})
	limit := time.NewTimer(takeLimit)
	defer limit.Stop()
	bad := func(value any, allowed string) error {
		return driver.Refuse(op.String(), "adding F_SEAL_FUTURE_WRITE", value, allowed, ib.ErrInvalid)
	}
	select {
	case err = <-sealed:
		if err != nil {
			return bad(err, "a memfd whose seals may be added to")
		}
		return nil
	case <-limit.C:
		return bad(fmt.Sprintf("waited for %v", takeLimit), "a memfd that nobody is writing to by write(2)")
	case <-c.ending:
		return fmt.Errorf("%v: seal the memfd: %w", op, ib.ErrClosed)
	}
}

// memfds are the files of all sessions. A file that is sealed can be mapped only from a mapping that is there: so
// several connections of a user can share one memfd, whichever is the first.
type memfds struct {
	mu  sync.Mutex
	all map[fileID][]*file

	reach sync.Mutex // see again
}

// open maps the first extent of a file, its base. On success the base of f is set, and others may map from it until
// forget.
func (l *memfds) open(f *file, op abi.Op, fd int, m *memfd) (err error) {
	size := min(roundUp(m.size, uint64(os.Getpagesize())), extentBytes)
	if !m.sealed {
		f.base, err = mapMemfd(op, fd, size)
		if err == nil {
			l.add(f) // before others can find it sealed
			if err = f.session.seal(op, fd); err != nil {
				l.forget(f)
				_ = unmap(f.base)
			}
		}
		// EPERM of mmap(2): another connection has sealed the file since checkMemfd. Then its mapping is in the list.
		if !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.all[f.id] {
		// Other users may have a descriptor of it because its owner counts on the seal.
		if o.session.who.Uid == f.session.who.Uid {
			if f.base, err = l.again(o.base, 0, size); err != nil {
				return fmt.Errorf("%v: map %d bytes: %w: %w", op, size, err, ib.ErrLimit)
			}
			l.all[f.id] = append(l.all[f.id], f)
			return nil
		}
	}
	return driver.Refuse(op.String(), "seals", "F_SEAL_FUTURE_WRITE",
		"none that forbids to map the memory for writing, as a daemon adds when the memory is shared with it, unless "+
			"a connection of this user still shares it; take new memory, or register it as memory of the process",
		ib.ErrInvalid)
}

func (l *memfds) add(f *file) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[fileID][]*file{}
	}
	l.all[f.id] = append(l.all[f.id], f)
}

// forget makes others not use the base of f any more. When it returns nobody maps from it, so that the caller may
// unmap it: open maps from bases of others with mu held.
func (l *memfds) forget(f *file) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[f.id] = slices.DeleteFunc(l.all[f.id], func(o *file) bool { return o == f })
	if len(l.all[f.id]) == 0 {
		delete(l.all, f.id)
	}
}

// again maps a range of a file of which base is the beginning. mremap(2) maps everything up to the end of the range for
// a moment: one caller at a time, as addresses could run out.
func (l *memfds) again(base []byte, start, end uint64) ([]byte, error) {
	l.reach.Lock()
	defer l.reach.Unlock()
	// With an old size of 0 mremap(2) makes a second mapping of shared pages and leaves the first as it is. It asks
	// for no descriptor, and no seal forbids it.
	p, err := unix.MremapPtr(unsafe.Pointer(unsafe.SliceData(base)), 0, nil, uintptr(end), unix.MREMAP_MAYMOVE)
	if err != nil {
		return nil, os.NewSyscallError("mremap", err)
	}
	if start > 0 {
		if err := unix.MunmapPtr(p, uintptr(start)); err != nil {
			_ = unix.MunmapPtr(p, uintptr(end))
			return nil, os.NewSyscallError("munmap", err)
		}
	}
	return unsafe.Slice((*byte)(unsafe.Add(p, start)), end-start), nil
}
