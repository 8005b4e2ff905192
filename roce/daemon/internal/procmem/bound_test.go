//go:build linux

package procmem

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/tests/require"
)

// bind replaces c's Process with one of Bind, for the memory that the child has now.
func (c *child) bind() *child {
	c.t.Helper()
	p, err := Bind(c.p.pid, c.p.pidfd, int(c.file("mem").Fd()))
	c.must(err)
	c.t.Cleanup(p.Close)
	c.p = p
	return c
}

// file opens one of the process's files in /proc, as the process itself could.
func (c *child) file(name string) *os.File {
	c.t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", c.p.pid, name), os.O_RDWR, 0)
	c.must(err)
	c.t.Cleanup(func() { f.Close() })
	return f
}

// TestBoundErrors checks that errors say which access has failed, and why.
func TestBoundErrors(t *testing.T) {
	c := start(t).bind()
	if got := c.tell("unmap"); got != "true" {
		t.Fatal(got)
	}
	const hole = childSize - pageSize
	b, m := make([]byte, pageSize), c.memory(childSize)
	var access *AccessError
	err := m.WriteVector([]mr.Piece{{Off: 64, B: b}, {Off: hole - 100, B: b}})
	if !errors.Is(err, ErrUnmapped) || !errors.As(err, &access) || !access.Write || access.Addr != c.addr+hole-100 {
		t.Errorf("a hole: %v, want %v of a write to %#x", err, ErrUnmapped, c.addr+hole-100)
	}
	for _, p := range []struct{ off, n uint64 }{{childSize, 1}, {childSize + 1, 0}, {1 << 63, 8}, {^uint64(0), 8}} {
		if err := m.ReadAt(b[:p.n], p.off); !errors.Is(err, mr.FaultBounds) {
			t.Errorf("%d bytes at %d: %v, want %v", p.n, p.off, err, mr.FaultBounds)
		}
	}
	c.must(c.p.Probe())
	file := c.file("mem")
	c.must(c.cmd.Process.Kill())
	c.cmd.Wait()
	for what, err := range map[string]error{"read": m.ReadAt(b, 0), "write": m.WriteAt(b, 0), "probe": c.p.Probe()} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("%s when the process has ended: %v, want %v", what, err, ErrGone)
		}
	}
	if p, err := Bind(c.p.pid, c.p.pidfd, int(file.Fd())); err == nil {
		p.Close()
		t.Error("bound when the process has ended")
	}
}

// TestAnotherProgram checks that bound memory ends with the program that had it, and that the
// next program of the same process is not accessed.
func TestAnotherProgram(t *testing.T) {
	c := start(t)
	successor := *c
	m := c.bind().memory(64)
	c.must(m.WriteAt([]byte("for you"), 0))
	if _, err := c.in.Write([]byte("exec\n")); err != nil {
		t.Fatal(err)
	}
	successor.hear()
	before := successor.tell("crc")
	again, err := c.p.Memory(successor.addr, 64)
	c.must(err)
	for _, m := range []*Memory{m, again} {
		if err := m.WriteAt([]byte("not for you"), 0); !errors.Is(err, ErrGone) {
			t.Errorf("at %#x of the program, of which the successor has %#x: %v, want ErrGone", m.addr, successor.addr,
				err)
		}
	}
	if err := c.p.Probe(); !errors.Is(err, ErrGone) {
		t.Errorf("probe: %v, want ErrGone", err)
	}
	if successor.tell("crc") != before {
		t.Error("it was written to")
	}
	successor.must(successor.memory(64).WriteAt([]byte("for you"), 0)) // not bound: reaches the new program
}

// TestNotMemory checks that Bind refuses files other than the memory of the process.
func TestNotMemory(t *testing.T) {
	c, other := start(t), start(t)
	plain, err := os.Create(t.TempDir() + "/mem")
	c.must(err)
	r, w, err := os.Pipe()
	c.must(err)
	defer r.Close()
	defer w.Close()
	defer plain.Close()
	for what, f := range map[string]*os.File{
		"another process's": other.file("mem"), "the thread's": c.file(fmt.Sprintf("task/%d/mem", c.p.pid)),
		"another file": c.file("comm"), "no file of /proc": plain, "a pipe": w,
	} {
		if p, err := Bind(c.p.pid, c.p.pidfd, int(f.Fd())); !errors.Is(err, ErrNotMemory) {
			t.Errorf("%s: %v, %v, want ErrNotMemory", what, p, err)
		}
	}
}

// TestInodesWrapped checks that a file of procfs is not taken for a process's memory because its inode has the number
// of that: the numbers wrap. A user could have the daemon write to a file that checks the rights of the writer.
func TestInodesWrapped(t *testing.T) {
	c := start(t)
	for _, name := range []string{"comm", "oom_score_adj", "mem"} {
		f := c.file(name)
		err := checkFile(c.p.pid, int(f.Fd()), func(_, _ *unix.Statx_t) bool { return true })
		if got, want := err == nil, name == "mem"; got != want {
			t.Errorf("%s with the inode number of mem: got %v, want taken %v", name, err, want)
		}
	}
}

// otherProc opens a file of the process in another instance of procfs, as a process in a container has it.
func (c *child) otherProc(name string, flags int) *os.File {
	c.t.Helper()
	require.Root(c.t)
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	c.must(err)
	defer unix.Close(fs)
	c.must(unix.FsconfigCreate(fs))
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	c.must(err)
	defer unix.Close(mount)
	fd, err := unix.Openat(mount, fmt.Sprintf("%d/%s", c.p.pid, name), flags|unix.O_CLOEXEC, 0)
	c.must(err)
	f := os.NewFile(uintptr(fd), name)
	c.t.Cleanup(func() { f.Close() })
	return f
}

// TestOtherProc: the memory of a process in a container is accessed by the file of the procfs there. Its other files,
// and memory that is only open for reading, are refused.
func TestOtherProc(t *testing.T) {
	c := start(t)
	p, err := Bind(c.p.pid, c.p.pidfd, int(c.otherProc("mem", unix.O_RDWR).Fd()))
	c.must(err)
	t.Cleanup(p.Close)
	before := c.tell("crc")
	c.p = p
	c.must(c.memory(64).WriteAt([]byte("for you"), 0))
	if c.tell("crc") == before {
		t.Error("nothing was written")
	}
	for _, f := range []*os.File{c.otherProc("mem", unix.O_RDONLY), c.otherProc("comm", unix.O_RDWR),
		c.otherProc("uid_map", unix.O_RDWR), c.otherProc("clear_refs", unix.O_WRONLY),
		c.otherProc("oom_score_adj", unix.O_RDWR), c.otherProc("status", unix.O_RDONLY)} {
		if p, err := Bind(c.p.pid, c.p.pidfd, int(f.Fd())); !errors.Is(err, ErrNotMemory) {
			t.Errorf("%s: %v, %v, want ErrNotMemory", f.Name(), p, err)
		}
	}
}
