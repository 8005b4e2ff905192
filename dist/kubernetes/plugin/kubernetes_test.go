package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// node is a Kubernetes node whose folders are below one of this machine's, with the image's files among them.
type node struct {
	root string
	in   *linktest.Namespace // its network
}

// newNode returns a node that has the folders of the DaemonSet.
func newNode(t *testing.T, daemonSet *appsv1.DaemonSet) *node {
	t.Helper()
	in, _ := linktest.NewVeth(t, 1500)
	root, err := os.MkdirTemp("", "node") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	n := &node{root, in}
	folders := []string{root + "/usr/bin", root + "/usr/lib"}
	for _, c := range daemonSet.Spec.Template.Spec.Containers {
		for _, m := range c.VolumeMounts {
			folders = append(folders, n.path(m.MountPath))
		}
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build(t, root+"/usr/bin/goroced", "../../../cmd/goroced")
	build(t, root+"/usr/bin/goroced-device-plugin", ".")
	libs, err := dropin.Build(t.Context(), root+"/usr/lib")
	if err := errors.Join(err, os.Symlink(libs, root+"/usr/lib/goroce"), os.Chmod(root, 0o755)); err != nil {
		t.Fatal(err)
	}
	return n
}

// path returns a text in which the folders of a node are those of this one.
func (n *node) path(s string) string {
	return regexp.MustCompile(`/(var|run)/[a-z]`).ReplaceAllStringFunc(s, func(p string) string { return n.root + p })
}

// process is a program that runs, or has run.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	out  bytes.Buffer // both streams, once done is closed
	err  error        // once done is closed
}

// start starts a program in the network of the node, as a user. It is killed at the end of the test, if it still runs.
func (n *node) start(t *testing.T, user uint32, args, env []string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir, p.cmd.Env = &p.out, &p.out, "/", env
	p.cmd.WaitDelay = time.Second // for what a child of it holds open
	// Pdeathsig is sent when the thread ends that has started the process: Run keeps that thread.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: user, Gid: user}}
	go func() {
		p.err = n.in.Do(p.cmd.Run)
		close(p.done)
	}()
	t.Cleanup(func() {
		<-p.done
		if t.Failed() {
			t.Logf("%q: %v\n%s", p.cmd.Args, p.err, p.out.String())
		}
	})
	return p
}

// wait waits until the program ends, and returns what it has written.
func (p *process) wait(t *testing.T) (string, error) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%q does not end within %v", p.cmd.Args, patience)
	}
	return p.out.String(), p.err
}

// container starts a container of the DaemonSet: as root without capabilities, with the arguments and the environment
// that it has there, and more arguments.
func (n *node) container(t *testing.T, c *corev1.Container, args ...string) *process {
	t.Helper()
	if s := c.SecurityContext; *s.RunAsUser != 0 || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		len(s.Capabilities.Add) > 0 || *s.AllowPrivilegeEscalation {
		t.Fatalf("%s runs with %+v, want root without privileges or capabilities", c.Name, s)
	}
	program := "/usr/bin/goroced" // the image's entry point
	if len(c.Command) > 0 {
		program = c.Command[0]
	}
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, v := range c.Env {
		value := n.path(v.Value)
		if v.ValueFrom != nil && v.ValueFrom.FieldRef.FieldPath == "status.hostIP" {
			value = n.in.Addr4.String()
		}
		env = append(env, v.Name+"="+value)
	}
	return n.start(t, 0, slices.Concat([]string{"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all",
		n.root + program}, c.Args, args), env)
}

// inPod are the words before a command that is to run as in a pod, with user, PID, mount, IPC and UTS namespaces of its
// own. The network is the node's: the daemon's addresses are those of the node.
var inPod = []string{"unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts"}

// nobody is an ordinary user.
const nobody = 65534

// pong is what ibv_rc_pingpong says at the end.
var pong = regexp.MustCompile(` iters in .* seconds = .* usec/iter`)

// TestKubernetes: the DaemonSet's containers on a node, a kubelet, and two pods of the example, which have nothing but
// what the kubelet is told. Both have namespaces of their own; one is root's, the other an ordinary user's.
func TestKubernetes(t *testing.T) {
	require.Root(t)
	for _, name := range []string{"cc", "setpriv", "unshare", "ibv_rc_pingpong"} {
		require.Command(t, name)
	}
	daemonSet, service, job := readObjects(t)
	n := newNode(t, daemonSet)
	if out, err := n.start(t, nobody, append(slices.Clone(inPod), "true"), nil).wait(t); err != nil {
		require.Missing(t, "an ordinary user cannot make namespaces: %v: %s", err, out)
	}
	containers := daemonSet.Spec.Template.Spec.Containers
	daemon := n.container(t, &containers[0])
	plugins := n.path("/var/lib/kubelet/device-plugins")
	k := startKubelet(t, plugins, nil)
	n.container(t, &containers[1], "--kubelet-dir", plugins, "--lib-dir", n.path("/var/lib/goroce/lib"),
		"--cdi-dir", n.path("/var/run/cdi"))
	plugin := k.plugin(t)
	ids := plugin.await(t, 32, "Healthy")
	select {
	case <-daemon.done:
		t.Fatal("the daemon has ended")
	default:
	}
	probe := containers[0].ReadinessProbe.Exec.Command
	status := n.start(t, 0, append([]string{n.root + probe[0]}, probe[1:]...),
		[]string{"GOROCED_ADMIN=" + n.path("/run/goroce-admin/goroced-admin.sock")})
	if out, err := status.wait(t); err != nil || !strings.Contains(out, "goroce0: active for ") {
		t.Errorf("the readiness probe: %v, want goroce0 active\n%s", err, out)
	}

	bin := filepath.Join(n.root, "bin") // packages of the script are installed
	if err := errors.Join(os.Mkdir(bin, 0o755),
		os.WriteFile(filepath.Join(bin, "apt-get"), []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	c := job.Spec.Template.Spec.Containers[0]
	script := strings.ReplaceAll(c.Args[0], job.Name+"-0."+service.Name, n.in.Addr4.String())
	pod := func(index string, user uint32, enter []string) *process {
		r, err := plugin.allocate(t.Context(), ids[0])
		if err != nil {
			t.Fatal(err)
		}
		ids = ids[1:]
		env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "JOB_COMPLETION_INDEX=" + index}
		for name, value := range r.Envs {
			env = append(env, name+"="+value)
		}
		return n.start(t, user, slices.Concat(enter, c.Command, []string{script}), env)
	}
	server := pod("0", 0, slices.DeleteFunc(slices.Clone(inPod),
		func(flag string) bool { return flag == "--map-root-user" }))
	for _, p := range []*process{pod("1", nobody, inPod), server} {
		if out, err := p.wait(t); err != nil || !strings.Contains(out, "goroce0") || !pong.MatchString(out) {
			t.Errorf("%v, want a ping-pong on goroce0\n%s", err, out)
		}
	}
}
