package server

import (
	"errors"
	"fmt"
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

// register registers a part of shared memory, and returns the handle of the region and the server's view of it.
func (c *bareSession) register(pd, file abi.Handle, addr, length uint64) (abi.Handle, []byte) {
	c.t.Helper()
	h := c.make(abi.OpRegMR, abi.Put(nil, &abi.RegMR{PD: pd, Kind: abi.MemFD, File: file, Access: 7, Addr: addr,
		Length: length}))
	return h, c.objects[h].value.(*region).mapping.Direct()
}

// mapped returns how many mappings of shared memory the session has.
func (c *bareSession) mapped() int64 {
	c.srv.accounts.mu.Lock()
	defer c.srv.accounts.mu.Unlock()
	return c.own.used[mappings] - 1 // its doorbells
}

// TestShareMemory: a memfd is mapped once by a session, as long as there is a handle or a region of it, and regions
// anywhere in it are what the client has there.
func TestShareMemory(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	pd := c.make(abi.OpAllocPD, nil)
	const size, far = 1 << 30, 700 << 20
	fd := newMemfd(t, size, unix.F_SEAL_SHRINK)
	defer unix.Close(fd)
	mine, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(mine)
	check := func(what string, mappings int64) {
		t.Helper()
		if n := c.mapped(); n != mappings {
			t.Errorf("%s: %d mappings, want %d", what, n, mappings)
		}
	}
	one, two := c.make(abi.OpShareMemory, nil, fd), c.make(abi.OpShareMemory, nil, fd)
	check("two handles", 1)
	must(t, c.close(one))
	near, theirs := c.register(pd, two, 100, 5000)
	check("a region at the beginning", 1)
	copy(theirs, "near")
	away, also := c.register(pd, two, far+10, 5000)
	check("a region far away", 2)
	copy(also, "far")
	if string(mine[100:104]) != "near" || string(mine[far+10:far+13]) != "far" {
		t.Errorf("%q and %q; want near and far", mine[100:104], mine[far+10:far+13])
	}
	must(t, c.close(two))
	mine[far+14] = 7
	if also[4] != 7 {
		t.Error("without a handle, a region is not what the client has there any more")
	}
	must(t, c.close(away))
	check("the region far away is closed", 1)
	must(t, c.close(near))
	check("all is closed", 0)
	if _, err := c.answer(abi.OpShareMemory, nil, []int{fd}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("a memfd that nobody shares any more, and nobody can map: %v, want ErrInvalid", err)
	}
}

// TestShareAgain: sessions of one user share a memfd one after the other, which takes one that has it; another user
// cannot, and not by a descriptor that is not for writing.
func TestShareAgain(t *testing.T) {
	s, _ := newServer(t)
	fd := newMemfd(t, memfdBytes, unix.F_SEAL_SHRINK)
	defer unix.Close(fd)
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	toRead, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(toRead)
	var before []byte
	var last *bareSession
	for round := range 3 {
		c := newBareSession(t, s)
		file := c.make(abi.OpShareMemory, nil, fd)
		_, now := c.register(c.make(abi.OpAllocPD, nil), file, 0, 4096)
		if round > 0 && before[0] != byte(round) {
			t.Errorf("round %d: %d in the memory that both sessions have, want it", round, before[0])
		}
		now[0] = byte(round + 1)
		if round > 0 && before[0] != byte(round+1) {
			t.Errorf("round %d: the sessions share other memory", round)
		}
		if last != nil {
			last.leave()
			<-last.worker.Done()
		}
		before, last = now, c
	}
	refuses := func(c *bareSession, fd int, attr string) {
		t.Helper()
		var refused *ib.AttrError
		_, err := c.answer(abi.OpShareMemory, nil, []int{fd})
		if !errors.As(err, &refused) || !errors.Is(err, ib.ErrInvalid) || refused.Attr != attr {
			t.Errorf("%v, want a refusal of %q", err, attr)
		}
	}
	other := newBareSession(t, s)
	other.who.Uid++
	refuses(other, fd, "seals")
	other.who.Uid-- // whose account is charged
	refuses(other, toRead, "access mode")
	last.leave()
	require.Until(t, "the memory is unmapped", func() bool {
		s.memfds.mu.Lock()
		defer s.memfds.mu.Unlock()
		return len(s.memfds.all) == 0
	})
	refuses(other, fd, "seals")
}

// TestNamedFiles: files with names are no memory that the daemon maps: it cannot keep others from making holes in them.
func TestNamedFiles(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	for dir, attr := range map[string]string{"/dev/shm": "seals", ".": "descriptor"} {
		if dir == "." && onTmpfs(t, ".") {
			require.Missing(t, "needs the repository on a disk")
		}
		f, err := os.CreateTemp(dir, "goroce-test-*")
		must(t, err)
		defer f.Close()
		must(t, errors.Join(os.Remove(f.Name()), f.Truncate(8192)))
		var refused *ib.AttrError
		_, err = c.answer(abi.OpShareMemory, nil, []int{int(f.Fd())})
		if !errors.As(err, &refused) || !errors.Is(err, ib.ErrInvalid) || refused.Attr != attr {
			t.Errorf("a file in %s: %v, want a refusal of %q", dir, err, attr)
		}
	}
}
