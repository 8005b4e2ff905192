package hostmem

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

func alloc(t *testing.T, size int, o Options) *Buffer {
	t.Helper()
	b, err := Alloc(size, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestAlloc(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		o    Options
	}{
		{"one byte", 1, Options{}},
		{"odd", 12345, Options{}},
		{"populated", 1 << 20, Options{Populate: true}},
		{"private", 12345, Options{Private: true}},
		{"private, populated", 1 << 20, Options{Private: true, Populate: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			buf := alloc(t, c.size, c.o)
			b := buf.Bytes()
			if len(b) != c.size || cap(b) != c.size {
				t.Errorf("length %d, capacity %d, want %d", len(b), cap(b), c.size)
			}
			if p := uintptr(unsafe.Pointer(&b[0])); p%uintptr(os.Getpagesize()) != 0 {
				t.Errorf("address %#x is not page aligned", p)
			}
			if c.o.Populate {
				wantResident(t, b)
			}
			if !bytes.Equal(b, make([]byte, c.size)) {
				t.Error("not zero")
			}
			b[0], b[c.size-1] = 1, 2
			if (buf.FD() == -1) != c.o.Private {
				t.Errorf("descriptor %d", buf.FD())
			}
		})
	}
}

// wantResident asks the kernel whether all pages of b are there.
func wantResident(t *testing.T, b []byte) {
	t.Helper()
	pages := make([]byte, (len(b)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatalf("mincore: %v", errno)
	}
	for i, p := range pages {
		if p&1 == 0 {
			t.Errorf("page %d of %d is not resident", i, len(pages))
			return
		}
	}
}

// What one side writes the other reads, and neither can take the pages away.
func TestShared(t *testing.T) {
	const size = 100000
	a := alloc(t, size, Options{})
	b, err := Map(a.FD(), size, Options{Populate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	wantResident(t, b.Bytes())
	a.Bytes()[size-1] = 7
	b.Bytes()[0] = 8
	if b.Bytes()[size-1] != 7 || a.Bytes()[0] != 8 {
		t.Error("the two mappings are not of the same memory")
	}
	if b.FD() != -1 {
		t.Errorf("mapped memory has descriptor %d", b.FD())
	}
	if err := unix.Ftruncate(a.FD(), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate: %v, want EPERM", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Bytes()[size-1] != 7 {
		t.Error("the second mapping went with the first")
	}
}

func TestClose(t *testing.T) {
	b := alloc(t, 1, Options{})
	fd := b.FD()
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if b.Bytes() != nil || b.FD() != -1 {
		t.Errorf("after Close: %d bytes, descriptor %d", len(b.Bytes()), b.FD())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("descriptor after Close: %v, want EBADF", err)
	}
}

// sealed returns a memfd of a page with the given seals.
func sealed(t *testing.T, flags, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|flags)
	if err != nil {
		require.Missing(t, "needs memfd_create with flags %#x: %v", flags, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	size := int64(4096)
	if flags&unix.MFD_HUGETLB != 0 {
		size = 1 << 30 // a multiple of every usual size of huge pages
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestMapRefuses(t *testing.T) {
	good := func(t *testing.T) int { return sealed(t, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK) }
	for _, c := range []struct {
		name string
		fd   func(*testing.T) int
		size int
		o    Options
		want string // in the error; empty if the memory is taken
	}{
		{"good", good, 4096, Options{}, ""},
		{"part of the file", good, 100, Options{}, ""},
		{"sealed against growth too", func(t *testing.T) int {
			return sealed(t, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
		}, 4096, Options{}, ""},
		{"beyond the file", good, 4097, Options{}, "at most the 4096 bytes"},
		{"no size", good, 0, Options{}, "1 to"},
		{"negative size", good, -1, Options{}, "1 to"},
		{"huge size", good, MaxSize + 1, Options{}, "1 to"},
		{"private", good, 4096, Options{Private: true}, "shared"},
		{"no seal", func(t *testing.T) int { return sealed(t, unix.MFD_ALLOW_SEALING, 0) }, 4096, Options{},
			"F_SEAL_SHRINK set"},
		{"wrong seal", func(t *testing.T) int { return sealed(t, unix.MFD_ALLOW_SEALING, unix.F_SEAL_GROW) }, 4096,
			Options{}, "F_SEAL_SHRINK set"},
		{"future writes sealed", func(t *testing.T) int {
			return sealed(t, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK|unix.F_SEAL_FUTURE_WRITE)
		}, 4096, Options{}, "F_SEAL_FUTURE_WRITE"},
		{"writes sealed", func(t *testing.T) int {
			return sealed(t, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE)
		}, 4096, Options{}, "F_SEAL_WRITE"},
		{"huge pages", func(t *testing.T) int {
			return sealed(t, unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB, unix.F_SEAL_SHRINK)
		}, 4096, Options{}, "ordinary pages"},
		{"not a memfd", func(t *testing.T) int {
			f, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return int(f.Fd())
		}, 4096, Options{}, "memfd"},
		{"no descriptor", func(*testing.T) int { return -1 }, 4096, Options{}, "memfd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := Map(c.fd(t), c.size, c.o)
			if err == nil {
				defer b.Close()
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ib.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
	for _, size := range []int{0, -1, MaxSize + 1} {
		if _, err := Alloc(size, Options{}); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("Alloc(%d): %v", size, err)
		}
	}
}

// A kernel that does not know MADV_POPULATE_WRITE gets the pages touched, and what
// is in them stays.
func TestTouch(t *testing.T) {
	b := alloc(t, 10*os.Getpagesize()-1, Options{}).Bytes()
	b[0], b[len(b)-1] = 1, 2
	touch(b)
	wantResident(t, b)
	if b[0] != 1 || b[len(b)-1] != 2 || bytes.Count(b, []byte{0}) != len(b)-2 {
		t.Error("touching changed the contents")
	}
}

func TestLock(t *testing.T) {
	withoutIPCLock(t, 1<<16, func() {
		b, err := Alloc(1<<12, Options{Lock: true})
		if err != nil {
			t.Errorf("a page within the limit: %v", err)
			return
		}
		defer b.Close()
		wantResident(t, b.Bytes())

		before := openFiles(t)
		_, err = Alloc(1<<20, Options{Lock: true})
		var lockErr *LockError
		if !errors.As(err, &lockErr) || !errors.Is(err, ib.ErrLimit) {
			t.Errorf("beyond the limit: %v", err)
			return
		}
		if lockErr.Size != 1<<20 || lockErr.Limit != 1<<16 ||
			!strings.Contains(err.Error(), "RLIMIT_MEMLOCK is 65536") {
			t.Errorf("error %v", err)
		}
		if after := openFiles(t); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}

// withoutIPCLock runs f on a thread for which RLIMIT_MEMLOCK counts, also if the
// process is root's, and lowers the limit meanwhile.
func withoutIPCLock(t *testing.T, limit uint64, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		require.Missing(t, "needs to lower RLIMIT_MEMLOCK from %d to %d: %v", old.Cur, limit, err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			t.Errorf("capget: %v", err)
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err := unix.Capset(&header, &caps[0]); err != nil {
			t.Errorf("capset: %v", err)
			return
		}
		f()
	}()
	<-done
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
