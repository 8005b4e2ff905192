package afxdp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

const patience = time.Minute

// gone waits until the kernel has freed a program, which is when no processor can be running it any more.
func gone(t *testing.T, id ebpf.ProgramID) {
	t.Helper()
	require.Until(t, fmt.Sprintf("program %d is gone", id), func() bool {
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Close()
		return false
	})
}

// descriptors returns what the process has open, by number.
func descriptors(t *testing.T) map[string]string {
	t.Helper()
	const dir = "/proc/self/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]string{}
	for _, file := range list {
		if target, err := os.Readlink(dir + "/" + file.Name()); err == nil {
			open[file.Name()] = target
		}
	}
	return open
}

// noMore waits until no more files are open than before. Package netlink closes the socket by which a link hears of
// neighbours on a goroutine of its own, a moment after the link is closed.
func noMore(t *testing.T, before map[string]string) {
	t.Helper()
	require.Until(t, fmt.Sprintf("at most %d files are open, as before: %v", len(before), before), func() bool {
		return len(descriptors(t)) <= len(before)
	})
}

// TestAlone: a link with the only AF_XDP sockets of a namespace waits longer for the kernel to release closed ones.
func TestAlone(t *testing.T) {
	ns, _ := linktest.NewVeth(t, 1500)
	if err := ns.Do(func() error {
		for n := range 3 {
			if !alone(n) || n > 0 && alone(n-1) {
				t.Errorf("with %d sockets: alone with %d is %v, with %d %v; want true, false", n, n, alone(n), n-1,
					alone(n-1))
			}
			fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		released bool
		most     time.Duration
	}{{false, releaseTime}, {true, releaseMost}} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			err := retryWhile(unix.EBUSY, func() bool { return tt.released }, func() error { return unix.EBUSY })
			if waited := time.Since(start); err != unix.EBUSY || waited < tt.most || waited > tt.most+time.Second {
				t.Errorf("released %v: %v after %v, want EBUSY after %v", tt.released, err, waited, tt.most)
			}
		})
	}
}

// Close leaves nothing behind, and neither does an Open that fails.
func TestDetach(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	b := open(t, nb, Options{}, nb.Addr4)
	for _, o := range []Options{{}, {Generic: true}} {
		before := descriptors(t)
		a := open(t, na, o, na.Addr4)
		id := hooked(t, na)
		if info, err := a.program.prog.Info(); err != nil || id == 0 {
			t.Fatalf("program %d is on the interface, %v; want one", id, err)
		} else if mine, _ := info.ID(); uint32(mine) != id {
			t.Errorf("program %d is on the interface, want %d", id, mine)
		}
		linktest.Meet(t, a, b)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if id := hooked(t, na); id != 0 {
			t.Errorf("program %d is on the interface after Close, want none", id)
		}
		gone(t, ebpf.ProgramID(id))
		noMore(t, before)
	}
	mine, before := hooked(t, nb), descriptors(t)
	err := nb.Do(func() error {
		_, err := Open([]netip.Addr{nb.Addr6}, Options{})
		return err
	})
	var refused *Error
	if !errors.As(err, &refused) || !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), fmt.Sprintf("XDP program %d", mine)) {
		t.Errorf("a second link on the interface: %v, want an *Error that names program %d", err, mine)
	}
	if id := hooked(t, nb); id != mine {
		t.Errorf("after that program %d is on the interface, want %d", id, mine)
	}
	noMore(t, before)
}

// holdEnv makes the test binary a process that keeps a link on that address open.
const holdEnv = "GOROCE_AFXDP_HOLD"

// TestHold is that process.
func TestHold(t *testing.T) {
	addr := os.Getenv(holdEnv)
	if addr == "" {
		t.Skip("skipped: needs TestKill, which runs it as a child")
	}
	l, err := Open([]netip.Addr{netip.MustParseAddr(addr)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	in := make([]link.Run, 16)
	for {
		if err := l.Wait(-1, false); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Recv(0, in); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that is killed while frames flow leaves nothing behind: the next one can open a link at once.
func TestKill(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	b := open(t, nb, Options{}, nb.Addr4)
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHold$")
		cmd.Env = append(os.Environ(), holdEnv+"="+na.Addr4.String())
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := na.Do(cmd.Start); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("the child says %q, %v; want ready", line, err)
		}
		id := hooked(t, na)
		if id == 0 {
			t.Fatal("the child has no program on the interface")
		}
		stop := flood(t, b, na.Addr4)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		stop()
		if id := hooked(t, na); id != 0 {
			t.Errorf("program %d is on the interface after the process was killed, want none", id)
		}
		gone(t, ebpf.ProgramID(id))
		a := open(t, na, Options{}, na.Addr4)
		linktest.Meet(t, a, b)
		_ = a.Close()
	}
}

// flood sends frames from b to an address until stop is called.
func flood(t *testing.T, b link.Link, to netip.Addr) (stop func()) {
	t.Helper()
	var psn uint32
	r := linktest.NewRun(b, b, &psn, 8, 1040, 0)
	to16 := to.As16()
	copy(r.Dst[:], to16[:])
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := b.Send(0, []link.Run{r}); err != nil {
				t.Errorf("Send: %v", err)
				return
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}

// A link may be closed while many frames arrive, and opened again.
func TestCloseUnderTraffic(t *testing.T) {
	na, nb := linktest.NewVeth(t, 9000)
	b := open(t, nb, Options{}, nb.Addr4)
	for i := range 6 {
		a := open(t, na, Options{Generic: i%2 == 1}, na.Addr4)
		linktest.Meet(t, a, b)
		stop := flood(t, b, na.Addr4)
		got := make(chan int)
		go func() {
			n := 0
			in := make([]link.Run, 16)
			for {
				if err := a.Wait(-1, false); err != nil {
					got <- n
					return
				}
				k, _ := a.Recv(0, in)
				for _, r := range in[:k] {
					n += len(r.Buf) // may be looked at after Close
				}
				if n > 1<<20 && n < 1<<20+1<<16 {
					go a.Close()
				}
			}
		}()
		select {
		case n := <-got:
			if n == 0 {
				t.Error("nothing arrived")
			}
		case <-time.After(patience):
			t.Error("Close does not end the receiver")
		}
		stop()
		_ = a.Close()
	}
}

// Frames that Recv has returned may be read after Close.
func TestFramesAfterClose(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := open(t, na, Options{}, na.Addr4), open(t, nb, Options{}, nb.Addr4)
	linktest.Meet(t, a, b)
	var psn uint32
	out := linktest.NewRun(a, b, &psn, 1, 1040, 0)
	linktest.SendAll(t, a, []link.Run{out})
	in := make([]link.Run, 1)
	for end := time.Now().Add(patience); ; {
		if n, err := b.Recv(0, in); n == 1 && err == nil {
			break
		}
		if err := b.Wait(patience, false); err != nil || time.Now().After(end) {
			t.Fatalf("nothing arrives: %v", err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(in[0].Buf, out.Buf) {
		t.Error("the frame has changed")
	}
}
