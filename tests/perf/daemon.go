package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/daemon/server"
)

// Memory of the clients of daemons.
const (
	memfd         = "memfd"   // client.Alloc
	processMemory = "process" // Go's heap; of a program in C what it registers, left where it is (GOROCE_MR)
	asItIs        = "malloc"  // what a program in C registers; the library may move it to a file
)

// daemonKind is the job of a daemon, which is a further process of an end.
const daemonKind = "daemon"

// daemon is a process that serves one device, and its socket.
type daemon struct {
	cmd   *exec.Cmd
	leash io.Closer // closing it ends the process
	dir   string
}

// startDaemon starts the daemon of j's end.
func startDaemon(j *Job) (_ *daemon, err error) {
	dir, err := os.MkdirTemp("", "goroce-perf")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: d.socket()})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), jobEnv+"="+(&Job{Kind: daemonKind, Self: j.Self, Leash: true}).text())
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{file}
	if d.leash, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d.cmd = cmd
	return d, nil
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "socket") }

// stop ends the daemon.
func (d *daemon) stop() {
	if d.cmd != nil {
		_ = d.leash.Close()
		_ = d.cmd.Wait() // its error says that it was killed
	}
	_ = os.RemoveAll(d.dir)
}

// cpu returns the processor time of the daemon; 0 if there is none.
func (d *daemon) cpu() time.Duration {
	if d == nil {
		return 0
	}
	const cpuClock = 2 // CPUCLOCK_SCHED; the clock ID contains the process ID (clock_getcpuclockid)
	var t unix.Timespec
	if unix.ClockGettime(int32(^d.cmd.Process.Pid<<3|cpuClock), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// resident returns the resident memory of the daemon in MiB.
func (d *daemon) resident() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kib); n == 1 {
			return kib / 1024, nil
		}
	}
	return 0, errors.New("the daemon's status shows no memory")
}

// serveDevice runs a daemon until its leash is closed: it serves a device at the socket with descriptor 3.
func serveDevice(j *Job) error {
	dev, err := openDevice(j)
	if err != nil {
		return err
	}
	s, err := server.New([]roce.Device{dev}, server.Options{OwnProcesses: true})
	if err != nil {
		return err
	}
	file := os.NewFile(3, "socket")
	l, err := net.FileListener(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return errors.Join(file.Close(), s.Serve(context.Background(), l.(*net.UnixListener)))
}

// served is a device of a daemon. Closing it ends the daemon.
type served struct {
	*client.Device
	daemon *daemon
}

// openServed starts the daemon of j's end and opens its device.
func openServed(j *Job) (*served, error) {
	d, err := startDaemon(j)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.timeout())
	defer cancel()
	dev, err := client.Dial(ctx, client.Options{Socket: d.socket()})
	if err != nil {
		d.stop()
		return nil, err
	}
	j.daemon = d
	return &served{dev, d}, nil
}

// Close closes the device, and ends the daemon.
func (s *served) Close() error {
	err := s.Device.Close()
	s.daemon.stop()
	return err
}

var _ ib.Device = (*served)(nil)
