package server

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// onTmpfs reports whether a directory lies on a tmpfs.
func onTmpfs(t *testing.T, dir string) bool {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(dir, &fs))
	return fs.Type == unix.TMPFS_MAGIC
}

// TestMemFile checks whose files may shrink while they are registered, and which files are refused all the same.
func TestMemFile(t *testing.T) {
	s, _ := newServer(t)
	own := uint32(os.Getuid())
	memfd := func(size int64, flags, seals int) int {
		fd, err := unix.MemfdCreate("shrinks", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
		must(t, err)
		must(t, unix.Ftruncate(fd, size))
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		must(t, err)
		return fd
	}
	good := func() int { return memfd(8192, 0, 0) }
	open := func(dir string) int {
		f, err := os.CreateTemp(dir, "goroce-test-*")
		must(t, err)
		defer f.Close()
		must(t, errors.Join(os.Remove(f.Name()), f.Truncate(8192)))
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	for _, c := range []struct {
		name string
		uid  uint32
		may  bool // Options.OwnProcesses
		kind uint32
		file func() int
		want error
	}{
		{"memfd", own, true, abi.MemFile, good, nil},
		{"sealed memfd", own, true, abi.MemFile, func() int { return memfd(8192, 0, unix.F_SEAL_SHRINK) }, nil},
		{"/dev/shm", own, true, abi.MemFile, func() int { return open("/dev/shm") }, nil},
		{"memfd of the wrong kind", own, true, abi.MemFD, good, ib.ErrInvalid},
		{"own processes are not allowed", own, false, abi.MemFile, good, abi.ErrPermission},
		{"another user's", own + 1, true, abi.MemFile, good, abi.ErrPermission},
		{"too short", own, true, abi.MemFile, func() int { return memfd(4096, 0, 0) }, ib.ErrInvalid},
		{"read only", own, true, abi.MemFile, func() int { return memfd(8192, 0, unix.F_SEAL_WRITE) }, ib.ErrInvalid},
		{"file of a disk", own, true, abi.MemFile, func() int { return open(".") }, ib.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "file of a disk" && onTmpfs(t, ".") {
				require.Missing(t, "needs the repository on a disk: files on a tmpfs, as here, may be registered")
			}
			s.SetProcesses(c.may, true)
			n := newBareSession(t, s)
			pd := n.make(abi.OpAllocPD, nil)
			fd := c.file()
			defer unix.Close(fd)
			n.who.Uid = c.uid
			defer func() { n.who.Uid = own }() // whose account is charged
			_, err := n.answer(abi.OpRegMR, abi.Put(nil, &abi.RegMR{PD: pd, Kind: c.kind, Access: 7, Addr: 100,
				Length: 5000}), []int{fd})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
