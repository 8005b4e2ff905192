package launch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/dropin"
)

// becomeEnv has the socket of a daemon in a process of TestExec that becomes a program.
const becomeEnv = "GOROCE_BECOME_TEST"

// answer greets the client of a connection, and gives it a hold, or says that it knows no holds.
func answer(c *abi.Conn, hold *os.File) error {
	for {
		h, _, _, err := c.Receive()
		if err != nil {
			return err
		}
		switch {
		case h.Op == abi.OpHello:
			err = c.Send(h, abi.Put(nil, &abi.HelloReply{Version: abi.Version}))
		case hold != nil:
			err = c.Send(h, nil, int(hold.Fd()))
		default:
			body, status := abi.PutError(nil, driver.Refuse("request", "Op", uint16(h.Op), "1 to 48",
				ib.ErrNotSupported))
			h.Status = status
			err = c.Send(h, body)
		}
		if err != nil {
			return err
		}
	}
}

// fakeDaemon answers clients at a socket, and has what programs need named in the environment.
func fakeDaemon(t *testing.T, hold *os.File) (path string) {
	t.Helper()
	libs := t.TempDir()
	for _, name := range []string{dropin.Verbs, dropin.Sys} {
		if err := os.WriteFile(filepath.Join(libs, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(dropin.Variable, libs)
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-ended // nobody uses the hold any more
	})
	go func() {
		defer close(ended)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			_ = answer(abi.NewConn(c), hold) // until the client leaves
			_ = c.Close()
		}
	}()
	return path
}

// list is a program that lists its descriptors, and what they are: lines that end with "100 -> pipe:[1]".
var list = []string{"sh", "-c", "ls -l /proc/$$/fd; exit"}

// descriptors runs this test in another process, which becomes the program list, and returns what that has beside its
// standard streams.
func descriptors(t *testing.T, socket string) (found []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), becomeEnv+"="+socket)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if i := slices.Index(words, "->"); i > 0 && !slices.Contains([]string{"0", "1", "2"}, words[i-1]) {
			found = append(found, words[i-1]+" "+words[i+1])
		}
	}
	return found
}

// become becomes the program list, with a daemon if there is a socket of one.
func become(t *testing.T, socket string) {
	if socket == "none" {
		t.Fatal(syscall.Exec("/bin/sh", list, os.Environ()))
	}
	ready, err := Prepare(t.Context(), socket, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(ready.Exec("/bin/sh", list))
}

// TestExec: a program inherits the hold, and nothing else of what has led to the daemon.
func TestExec(t *testing.T) {
	if socket := os.Getenv(becomeEnv); socket != "" {
		become(t, socket)
	}
	hold, daemons, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the daemon's end
		_ = daemons.Close()
		_ = hold.Close()
	})
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", hold.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	socket := fakeDaemon(t, hold)
	want := append(descriptors(t, "none"), "100 "+name)
	got := descriptors(t, socket)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the program's descriptors (-want +got):\n%s", diff)
	}
}

// TestNoHold: a daemon that is too old to give a hold is named, and what helps.
func TestNoHold(t *testing.T) {
	socket := fakeDaemon(t, nil)
	_, err := Prepare(t.Context(), socket, func(string) {})
	if !errors.Is(err, ib.ErrNotSupported) || !strings.Contains(err.Error(), socket) ||
		!strings.Contains(err.Error(), "install the same goroced") {
		t.Errorf("refused with %v, want %v, %q and %q", err, ib.ErrNotSupported, socket, "install the same goroced")
	}
}
