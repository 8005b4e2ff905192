package lab

import (
	"context"
	"os/exec"
	"os/user"
	"syscall"
	"time"
)

// outputDelay is how long a host command's output may stay open after it
// ended: a child that it left behind may hold it.
const outputDelay = 5 * time.Second

// HostCommand returns the command that runs a program as root in HostNS. The process
// that it starts is the program itself, which is killed when ctx or this process
// ends.
func (l *Lab) HostCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	return inNamespace(ctx, l.HostNS, name, args...)
}

// HostCommandAs is HostCommand as another user, "nobody" say, with no
// supplementary group and no capability. The user must be able to reach the
// program: a test's t.TempDir is closed to others until its parent is opened.
// For an unknown user the command's Start returns an error.
func (l *Lab) HostCommandAs(ctx context.Context, username, name string, args ...string) *exec.Cmd {
	account, err := user.Lookup(username)
	if err != nil {
		cmd := l.HostCommand(ctx, name, args...)
		cmd.Err = err
		return cmd
	}
	// The kernel clears the parent death signal when the user changes, so set it again.
	drop := []string{
		"--reuid=" + account.Uid, "--regid=" + account.Gid, "--clear-groups",
		"--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--pdeathsig=KILL", "--", name,
	}
	return l.HostCommand(ctx, "setpriv", append(drop, args...)...)
}

// WireCommand is HostCommand in WireNS, which has the devices br0, host (connected to
// HostNS), tap1 (connected to the first guest), tap2 ...: "tcpdump -i tap1" captures
// that guest's packets.
func (l *Lab) WireCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	return inNamespace(ctx, l.WireNS, name, args...)
}

func inNamespace(ctx context.Context, namespace, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", namespace, name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = outputDelay
	return cmd
}
