package server

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// prey is a process with the sessions of a fuzz target. What they register of its memory may be any of
// it, so a server that writes there may end the process. Another one takes its place then.
type prey struct {
	cmd  *exec.Cmd
	conn *abi.Conn
	mem  int // its /proc/PID/mem
}

// preyVariable is in the environment of such a process.
const preyVariable = "GOROCE_TEST_PREY"

// Memory that such a process has, at an address that inputs know.
const (
	preyAddr  = 0x1_0000_0000
	preyBytes = 1 << 16
)

// servePrey answers each message by the two ends of a connection, which belong to this process. It returns
// when its own connection ends.
func servePrey() {
	const fixed = unix.MAP_FIXED_NOREPLACE | unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	addr := preyAddr // a variable, as vet forbids to make a pointer of a constant
	if _, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&addr)), preyBytes,
		unix.PROT_READ|unix.PROT_WRITE, fixed); err != nil {
		panic(err)
	}
	c, err := net.FileConn(os.NewFile(3, "connection"))
	if err != nil {
		panic(err)
	}
	conn := abi.NewConn(c.(*net.UnixConn))
	for {
		h, _, _, err := conn.Receive()
		if err != nil {
			return
		}
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			panic(err)
		}
		if conn.Send(h, nil, ends[:]...) != nil {
			return
		}
		abi.CloseAll(ends[:])
	}
}

// start starts the process.
func (p *prey) start(t testing.TB) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	theirs := os.NewFile(uintptr(ends[1]), "connection")
	defer theirs.Close()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env, p.cmd.ExtraFiles = append(os.Environ(), preyVariable+"=1"), []*os.File{theirs}
	must(t, p.cmd.Start())
	p.conn = abi.NewConn(connOf(t, ends[0]))
	p.mem, err = unix.Open(fmt.Sprintf("/proc/%d/mem", p.cmd.Process.Pid), unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
}

// end ends the process.
func (p *prey) end() {
	_, _ = p.conn.Close(), unix.Close(p.mem)
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the error is that it was killed
}

// connect returns both ends of a connection of the process.
func (p *prey) connect(t testing.TB) (theirs, ours *net.UnixConn) {
	t.Helper()
	for range 3 {
		if p.conn.Send(abi.Header{}, nil) == nil {
			if _, _, fds, err := p.conn.Receive(); err == nil && len(fds) == 2 {
				return connOf(t, fds[0]), connOf(t, fds[1])
			}
		}
		p.end()
		p.start(t)
	}
	t.Fatal("the client's process does not live")
	return nil, nil
}
