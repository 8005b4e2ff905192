package hostmem

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// MaxSize is the largest buffer, in bytes.
const MaxSize = 1 << 46

// Options say how to allocate memory.
type Options struct {
	// Private memory has no file: it cannot be shared. Alloc only.
	Private bool
	// Populate allocates all pages at once, so that lack of memory is an error of the call and not a fault, or a slow
	// first access, later.
	Populate bool
	// Lock keeps all pages in RAM (mlock). It populates too, and counts against
	// RLIMIT_MEMLOCK.
	Lock bool
}

// Buffer is mapped memory. Its methods may be called from several goroutines at once. Bytes and FD must not be used
// after Close.
type Buffer struct {
	mu sync.Mutex
	b  []byte
	fd int // -1 if private, or mapped from another owner's descriptor
}

// Alloc returns size bytes, zeroed and page aligned: a new memfd sealed with F_SEAL_SHRINK, or private memory.
func Alloc(size int, o Options) (*Buffer, error) {
	if err := checkSize("allocate memory", size); err != nil {
		return nil, err
	}
	if o.Private {
		return mapBuffer(-1, size, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, o)
	}
	fd, err := unix.MemfdCreate("goroce", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("allocate memory: memfd_create: %w", err)
	}
	buf, err := mapNew(fd, size, o)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	buf.fd = fd
	return buf, nil
}

// mapNew sets the size and the seal of a new memfd, and maps it.
func mapNew(fd, size int, o Options) (*Buffer, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("allocate memory: %d bytes: ftruncate: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, fmt.Errorf("allocate memory: seal with F_SEAL_SHRINK: %w", err)
	}
	return mapBuffer(fd, size, unix.MAP_SHARED, o)
}

// Map maps the first size bytes of a memfd that another process made. It accepts only memory that the other process
// cannot remove any more; otherwise an *ib.AttrError says which seal or size is wrong. The caller keeps fd and may
// close it when Map has returned.
func Map(fd, size int, o Options) (*Buffer, error) {
	if err := checkSize("map memory", size); err != nil {
		return nil, err
	}
	if o.Private {
		return nil, ib.Refuse("map memory", "Private", true, "false: a memfd is shared", ib.ErrInvalid)
	}
	if err := checkFile(fd, size); err != nil {
		return nil, err
	}
	return mapBuffer(fd, size, unix.MAP_SHARED, o)
}

// checkFile refuses descriptors that cannot be mapped, or whose mapping could fault. It checks the seal before the
// size: a file with the seal cannot shrink any more.
func checkFile(fd, size int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return ib.Refuse("map memory", "fd", fmt.Sprintf("%d (F_GET_SEALS: %v)", fd, err),
			"memfds made with MFD_ALLOW_SEALING", ib.ErrInvalid)
	}
	if seals&(unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_WRITE) != 0 {
		return ib.Refuse("map memory", "seals", fmt.Sprintf("%#x", seals),
			"neither F_SEAL_FUTURE_WRITE nor F_SEAL_WRITE: with them the kernel refuses "+
				"every new mapping that can write, and the device has to", ib.ErrInvalid)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return ib.Refuse("map memory", "seals", fmt.Sprintf("%#x", seals),
			"F_SEAL_SHRINK set: without it the file could be truncated under the mapping, "+
				"and the next access would be a SIGBUS", ib.ErrInvalid)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("map memory: fstatfs: %w", err)
	}
	if uint32(fs.Type) == unix.HUGETLBFS_MAGIC {
		return ib.Refuse("map memory", "fd", "a memfd of huge pages",
			"memfds of ordinary pages: huge pages that are sealed but not reserved are a SIGBUS when the pool runs dry",
			ib.ErrInvalid)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("map memory: fstat: %w", err)
	}
	if st.Size < int64(size) {
		return ib.Refuse("map memory", "size", size, fmt.Sprintf("at most the %d bytes that the file has", st.Size),
			ib.ErrInvalid)
	}
	return nil
}

// mapBuffer maps memory, and populates and locks it as o says.
func mapBuffer(fd, size, flags int, o Options) (*Buffer, error) {
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, fmt.Errorf("map memory: %d bytes: mmap: %w", size, err)
	}
	if o.Populate {
		err = populate(b)
	}
	if err == nil && o.Lock {
		err = lock(b)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(b))
	}
	return &Buffer{b: b, fd: -1}, nil
}

// populate allocates all pages for writing.
func populate(b []byte) error {
	err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("map memory: populate %d bytes: %w", len(b), err)
	}
	touch(b) // kernels before 5.14 do not support MADV_POPULATE_WRITE
	return nil
}

// touch writes to every page without changing a byte. It adds 0 atomically, which is safe while others use the memory.
func touch(b []byte) {
	for i := 0; i < len(b); i += os.Getpagesize() {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&b[i])), 0)
	}
}

// LockError reports that memory could not be locked into RAM. It matches
// ib.ErrLimit when the limit is the reason.
type LockError struct {
	Size  int    // bytes to lock
	Limit uint64 // RLIMIT_MEMLOCK: how many bytes the process may lock in total
	Err   error  // the kernel's error
}

func (e *LockError) Error() string {
	return fmt.Sprintf("lock %d bytes into RAM: %v; RLIMIT_MEMLOCK is %d bytes: raise it (ulimit -l, LimitMEMLOCK=), "+
		"or do without Lock", e.Size, e.Err, e.Limit)
}

// Unwrap returns the kernel's error.
func (e *LockError) Unwrap() error { return e.Err }

// Is makes the error match ib.ErrLimit if RLIMIT_MEMLOCK is the cause.
func (e *LockError) Is(target error) bool {
	return target == ib.ErrLimit && (e.Err == unix.ENOMEM || e.Err == unix.EPERM || e.Err == unix.EAGAIN)
}

func lock(b []byte) error {
	err := unix.Mlock(b)
	if err == nil {
		return nil
	}
	var limit unix.Rlimit
	if e := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); e != nil {
		return errors.Join(err, e)
	}
	return &LockError{Size: len(b), Limit: limit.Cur, Err: err}
}

// Bytes returns the memory, nil after Close.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b
}

// FD returns the memfd, for another process. The Buffer keeps it. Private memory, mapped memory and a closed Buffer
// have none: -1.
func (b *Buffer) FD() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fd
}

// Close unmaps the memory. An access afterwards is a SIGSEGV, so close the regions and rings in it first. Close is
// idempotent.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.b == nil {
		return nil
	}
	err := unix.Munmap(b.b)
	b.b = nil
	if b.fd >= 0 {
		err = errors.Join(err, unix.Close(b.fd))
		b.fd = -1
	}
	return err
}

func checkSize(op string, size int) error {
	if size < 1 || size > MaxSize {
		return ib.Refuse(op, "size", size, fmt.Sprintf("1 to %d bytes", MaxSize), ib.ErrInvalid)
	}
	return nil
}
