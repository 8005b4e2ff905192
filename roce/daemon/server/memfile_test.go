package server

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

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
		path := filepath.Join(dir, "goroce-test-"+filepath.Base(t.TempDir()))
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		must(t, err)
		must(t, errors.Join(unix.Unlink(path), unix.Ftruncate(fd, 8192)))
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
