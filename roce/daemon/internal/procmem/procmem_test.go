//go:build linux

package procmem

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/uffd"
)

// The other process is this program again. It maps memory and executes commands.
const childEnv = "PROCMEM_TEST_CHILD"

const (
	pageSize  = 4096
	childSize = 1 << 20
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
		return
	}
	os.Exit(m.Run())
}

// runChild maps memory between unmapped pages, prints its address, and executes commands.
func runChild() {
	all, err := unix.Mmap(-1, 0, childSize+2*pageSize, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err == nil {
		err = unix.Mprotect(all[pageSize:pageSize+childSize], unix.PROT_READ|unix.PROT_WRITE)
	}
	if err != nil {
		fmt.Println("cannot map:", err)
		return
	}
	buf := all[pageSize : pageSize+childSize]
	fmt.Println(uintptr(unsafe.Pointer(&buf[0])))
	var uffd int
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "crc":
			fmt.Println(crc32.ChecksumIEEE(buf))
		case "protect":
			fmt.Println(unix.Mprotect(buf[:pageSize], unix.PROT_READ))
		case "unmap": // the last page
			_, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(&buf[childSize-pageSize])), pageSize, 0)
			fmt.Println(errno == 0)
		case "poll":
			fmt.Println(poll(buf))
		case "exec":
			fmt.Println(unix.Exec("/proc/self/exe", os.Args, os.Environ()))
		case "hide":
			fmt.Println(unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
		case "hang":
			uffd, err = hang(buf[:pageSize])
			fmt.Println(err)
		case "fault": // wait for one
			_, err := unix.Read(uffd, make([]byte, 32))
			fmt.Println(err)
		case "resolve":
			fmt.Println(resolve(uffd, buf[:pageSize]))
		}
	}
}

// child is the test's view of the other process.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	p    *Process
	addr uint64
}

func start(t testing.TB) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	pidfd, err := unix.PidfdOpen(c.cmd.Process.Pid, 0)
	if err != nil {
		require.Missing(t, "needs pidfd_open: %v", err)
	}
	t.Cleanup(func() { unix.Close(pidfd) })
	c.p = NewProcess(c.cmd.Process.Pid, pidfd)
	c.hear()
	return c
}

// hear reads the address of the child's memory.
func (c *child) hear() {
	c.t.Helper()
	if _, err := fmt.Sscan(c.line(), &c.addr); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (c *child) tell(command string) string {
	c.t.Helper()
	fmt.Fprintln(c.in, command)
	return c.line()
}

func (c *child) memory(length uint64) *Memory {
	c.t.Helper()
	m, err := c.p.Memory(c.addr, length)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *child) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestMemory checks that writes reach the other process's memory, and that reads return its contents.
func TestMemory(t *testing.T) {
	t.Run("of whatever it runs", func(t *testing.T) { testMemory(t, start(t)) })
	t.Run("bound", func(t *testing.T) { testMemory(t, start(t).bind()) })
}

func testMemory(t *testing.T, c *child) {
	m := c.memory(childSize)
	want := make([]byte, childSize)
	for i := range want {
		want[i] = byte(i * 7)
	}
	c.must(m.WriteAt(want, 0))
	var pieces []mr.Piece
	for i := range 100 { // more than a call takes; some are adjacent
		at := 5000*i - i%3*(4900)
		b := bytes.Repeat([]byte{byte(i)}, 100)
		copy(want[at:], b)
		pieces = append(pieces, mr.Piece{Off: uint64(at), B: b})
	}
	c.must(m.WriteVector(append(pieces, mr.Piece{Off: childSize})))
	if got := c.tell("crc"); got != fmt.Sprint(crc32.ChecksumIEEE(want)) {
		t.Error("the other process has other bytes")
	}
	got := make([]byte, childSize-1)
	c.must(m.ReadAt(got, 1))
	if !bytes.Equal(got, want[1:]) {
		t.Error("other bytes were read")
	}
}

// TestAtomics checks that atomics of several goroutines are atomic with each other.
func TestAtomics(t *testing.T) {
	c := start(t)
	var all sync.WaitGroup
	for range 4 {
		m := c.memory(64) // regions of one process
		all.Go(func() {
			for range 500 {
				if _, err := m.FetchAdd(8, 3); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	m := c.memory(64)
	for _, step := range []struct{ compare, swap, old uint64 }{{1, 9, 6000}, {6000, 9, 6000}, {9, 9, 9}} {
		if old, err := m.CompareSwap(8, step.compare, step.swap); err != nil || old != step.old {
			t.Errorf("compare %d: %d, %v, want %d", step.compare, old, err, step.old)
		}
	}
	word := make([]byte, 8)
	c.must(m.ReadAt(word, 8))
	if v := binary.NativeEndian.Uint64(word); v != 9 {
		t.Errorf("%d in memory, want 9", v)
	}
}

// TestErrors checks that errors say which access has failed, and why.
func TestErrors(t *testing.T) {
	c := start(t)
	over, err := c.p.Memory(c.addr, childSize+pageSize)
	c.must(err)
	b := make([]byte, pageSize)
	var access *AccessError
	err = over.WriteVector([]mr.Piece{{Off: 64, B: b}, {Off: childSize - 100, B: b}})
	// The kernel reports the bytes it has moved by whole pieces, or by pages.
	if !errors.Is(err, ErrUnmapped) || !errors.As(err, &access) || !access.Write ||
		access.Addr != c.addr+childSize && access.Addr != c.addr+childSize-100 {
		t.Errorf("a hole: %v, want %v of a write to %#x, or 100 before", err, ErrUnmapped, c.addr+childSize)
	}
	if got := c.tell("protect"); got != "<nil>" {
		t.Fatal(got)
	}
	m := c.memory(childSize)
	if err := m.WriteAt(b, 0); !errors.Is(err, ErrUnmapped) {
		t.Errorf("memory that is read-only: %v, want %v", err, ErrUnmapped)
	}
	c.must(m.ReadAt(b, 0))
	for _, p := range []struct{ off, n uint64 }{{childSize, 1}, {childSize + 1, 0}, {1 << 63, 8}, {^uint64(0), 8}} {
		if err := m.ReadAt(b[:p.n], p.off); !errors.Is(err, mr.FaultBounds) {
			t.Errorf("%d bytes at %d: %v, want %v", p.n, p.off, err, mr.FaultBounds)
		}
	}
	for _, p := range []struct{ addr, n uint64 }{{^uint64(0), 1}, {8, ^uint64(0)}, {1 << 63, 1}} {
		if _, err := c.p.Memory(p.addr, p.n); !errors.Is(err, ErrUnmapped) {
			t.Errorf("%d bytes at %#x: %v, want %v", p.n, p.addr, err, ErrUnmapped)
		}
	}
	c.must(c.cmd.Process.Kill())
	c.cmd.Wait()
	for what, err := range map[string]error{"read": m.ReadAt(b, 0), "write": m.WriteAt(b, 0)} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("%s when the process has ended: %v, want %v", what, err, ErrGone)
		}
	}
}

// TestAnotherProcess checks that a PID that another process has reused is not accessed.
func TestAnotherProcess(t *testing.T) {
	old, now := start(t), start(t)
	c := &Process{pid: now.p.pid, pidfd: old.p.pidfd}
	c.seen.Store(clock() - int64(lease))
	old.must(old.cmd.Process.Kill())
	old.cmd.Wait()
	m, err := c.Memory(now.addr, 64)
	now.must(err)
	before := now.tell("crc")
	if err := m.WriteAt([]byte("not for you"), 0); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
	if now.tell("crc") != before {
		t.Error("it was written to")
	}
}

// TestProbe checks that the error for missing permission says how to get it.
func TestProbe(t *testing.T) {
	c := start(t)
	c.must(c.p.Probe())
	if got := c.tell("hide"); got != "<nil>" {
		t.Fatal(got)
	}
	if err := c.p.Probe(); os.Getuid() != 0 && (!errors.Is(err, ErrPermission) ||
		!strings.Contains(err.Error(), "CAP_SYS_PTRACE")) {
		t.Errorf("a process that hides: %v, want ErrPermission", err)
	}
	c.must(c.cmd.Process.Kill())
	c.cmd.Wait()
	if err := c.p.Probe(); !errors.Is(err, ErrGone) {
		t.Errorf("a process that has ended: %v, want ErrGone", err)
	}
}

// TestHang checks that a read of a page under userfaultfd blocks until the page is resolved, and that Waits and Waiting
// tell of the thread that waits.
func TestHang(t *testing.T) {
	c := start(t)
	if got := c.tell("hang"); got != "<nil>" {
		require.Missing(t, uffd.Needs, got)
	}
	m := c.memory(childSize)
	got := make([]byte, 8)
	done, thread := make(chan error, 1), make(chan int, 1)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		done <- m.ReadAt(got, 0)
	}()
	if err := c.tell("fault"); err != "<nil>" {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("it was read before it was there: %v", err)
	default:
	}
	of := <-thread
	var times uint64
	require.Until(t, "the thread waits", func() (waits bool) {
		times, waits = Waits(of)
		return waits
	})
	if again, waits := Waits(of); again != times || !waits {
		t.Errorf("a thread in one wait: waits %v, has begun %d waits, want true, %d", waits, again, times)
	}
	if call, where := Waiting(of); call != "process_vm_readv" || where != "handle_userfault" && where != "unknown" {
		t.Errorf("the thread waits in %s at %s, want process_vm_readv at handle_userfault", call, where)
	}
	if err := c.tell("resolve"); err != "<nil>" {
		t.Fatal(err)
	}
	if err := <-done; err != nil || string(got) != "resolved" {
		t.Errorf("%q, %v; want resolved", got, err)
	}
}

// TestRuns: the thread that asks runs, so it does not wait.
func TestRuns(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, waits := Waits(unix.Gettid()); waits {
		t.Error("a thread that runs: waits true, want false")
	}
}
