package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// heirEnv is set in a process that has inherited a connection of TestOtherProcess, as its descriptor 3.
const heirEnv = "GOROCE_HEIR_TEST"

// heirRequests are what the heir of a connection asks for, in this order.
var heirRequests = []struct {
	op   abi.Op
	body []byte
}{
	{abi.OpHello, abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version})},
	{abi.OpQueryDevice, abi.Put(nil, &abi.Open{})},
	{abi.OpOpen, abi.Put(nil, &abi.Open{})},
	{abi.OpAllocPD, nil},
	{abi.OpRegMR, abi.Put(nil, &abi.RegMR{PD: 1, Kind: abi.MemProcess, Addr: 1 << 16, Length: 8})},
	{abi.OpClose, abi.Put(nil, &abi.Close{Handle: 1, Kind: abi.KindPD})},
	{math.MaxUint16, nil},
}

// heir asks for everything on descriptor 3, and says what it was refused with.
func heir(t *testing.T) {
	c, err := net.FileConn(os.NewFile(3, "connection"))
	must(t, err)
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	conn := abi.NewConn(c.(*net.UnixConn))
	for _, r := range heirRequests {
		must(t, conn.Send(abi.Header{Op: r.op}, r.body))
		h, body, fds, err := conn.Receive()
		must(t, err)
		if h.Status != abi.Permission || len(fds) > 0 {
			t.Errorf("%v: status %d with %d descriptors, want %d with none: %v", r.op, h.Status, len(fds),
				abi.Permission, abi.GetError(body, h.Status))
		}
	}
}

// inherit starts this test in another process, which has the connection, and waits for its end.
func inherit(t *testing.T, c *abi.Conn) {
	t.Helper()
	file, err := c.File()
	must(t, err)
	defer file.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), heirEnv+"=1")
	cmd.ExtraFiles = []*os.File{file}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("another process that has the connection: %v\n%s", err, out)
	}
	must(t, unix.SetNonblock(int(file.Fd()), true)) // os/exec has made it block, for this process too
}

// TestOtherProcess checks that a connection is a session of the process that has connected, and of no other that has a
// descriptor of it, whatever state the session is in. The session goes on, and the log says it once.
func TestOtherProcess(t *testing.T) {
	if os.Getenv(heirEnv) != "" {
		heir(t)
		return
	}
	log := make(lines, 64)
	s, dial := byHand(t, func(s *Server) {
		s.SetProcesses(true, true)
		s.log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	c := dial()
	inherit(t, c)
	greet(t, c)
	inherit(t, c)
	ask[abi.OpenReply](t, c, abi.OpOpen, abi.Open{})
	pd := ask[abi.Object](t, c, abi.OpAllocPD, struct{}{})
	before := fmt.Sprint(s.Usage())
	inherit(t, c)
	if after := fmt.Sprint(s.Usage()); after != before {
		t.Errorf("the user holds %s, want %s as before", after, before)
	}
	ask[abi.CloseReply](t, c, abi.OpClose, abi.Close{Handle: pd.Handle, Kind: abi.KindPD})
	if len(log) != 1 {
		t.Errorf("%d warnings, want one", len(log))
	}
	if line := <-log; !strings.Contains(line, fmt.Sprintf(" pid=%d ", os.Getpid())) ||
		!strings.Contains(line, " sender=") || strings.Contains(line, fmt.Sprintf(" sender=%d ", os.Getpid())) {
		t.Errorf("the log says %s, want our pid, and another as sender", line)
	}
}

// TestSender checks who may send on a connection, also where the kernel shows no process.
func TestSender(t *testing.T) {
	past := exec.Command("true")
	must(t, past.Start())
	fd, err := unix.PidfdOpen(past.Process.Pid, 0)
	must(t, err)
	must(t, past.Wait())
	ended := pidfd{fd, new(abi.Conn).NewFile(fd, "process")}
	defer ended.close()
	s, _ := newServer(t)
	for _, c := range []struct {
		name        string
		op          abi.Op
		who, sender *unix.Ucred
		process     pidfd
		ok          bool
	}{
		{"itself", abi.OpOpen, &unix.Ucred{Pid: 7, Uid: 1}, &unix.Ucred{Pid: 7, Uid: 1}, pidfd{}, true},
		{"itself, as another user", abi.OpOpen, &unix.Ucred{Pid: 7}, &unix.Ucred{Pid: 7, Uid: 1}, pidfd{}, true},
		{"another", abi.OpOpen, &unix.Ucred{Pid: 7}, &unix.Ucred{Pid: 8}, pidfd{}, false},
		{"another, hello", abi.OpHello, &unix.Ucred{Pid: 7}, &unix.Ucred{Pid: 8}, pidfd{}, false},
		{"of its number, after its end", abi.OpOpen, &unix.Ucred{Pid: 7}, &unix.Ucred{Pid: 7}, ended, false},
		{"unseen", abi.OpOpen, &unix.Ucred{Uid: 1}, &unix.Ucred{Uid: 1}, pidfd{}, true},
		{"unseen, of another user", abi.OpOpen, &unix.Ucred{}, &unix.Ucred{Uid: 1}, pidfd{}, false},
		{"unseen, on that of a process that is seen", abi.OpOpen, &unix.Ucred{Pid: 7}, &unix.Ucred{}, pidfd{}, false},
		{"untold, hello", abi.OpHello, &unix.Ucred{Pid: 7}, &unix.Ucred{Uid: 65534}, pidfd{}, true},
		{"untold", abi.OpHello, &unix.Ucred{Pid: 7}, nil, pidfd{}, false},
	} {
		session := &session{srv: s, who: c.who, pidfd: c.process}
		err := session.checkSender(&message{Header: abi.Header{Op: c.op}, sender: c.sender})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, abi.ErrPermission) {
			t.Errorf("%s: %v, want allowed: %v", c.name, err, c.ok)
		}
	}
}

// TestHelloWaits checks that a client may connect, and say hello, before the daemon is there: the service manager has
// its socket.
func TestHelloWaits(t *testing.T) {
	s, listener := newServer(t)
	u, err := net.DialUnix("unixpacket", nil, listener.Addr().(*net.UnixAddr))
	must(t, err)
	defer u.Close()
	must(t, u.SetDeadline(time.Now().Add(30*time.Second)))
	c := abi.NewConn(u)
	must(t, c.Send(abi.Header{Op: abi.OpHello, Seq: uint32(abi.OpHello)}, heirRequests[0].body))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	defer func() {
		cancel()
		must(t, <-served)
	}()
	must(t, answered(t, c, abi.OpHello))
	ask[abi.OpenReply](t, c, abi.OpOpen, abi.Open{})
}
