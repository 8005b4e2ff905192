//go:build linux

// Package action tests the GitHub Action in .github/actions/rdma without GitHub: it runs the shell steps of the action,
// and of the example workflows, with the variables and the files by which a runner and its steps talk.
package action

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

const (
	folder = "../../.github/actions/rdma"
	name   = "goroce/goroce/.github/actions/rdma@" // by which workflows use it
)

// temp is the runner's folder for files. All jobs have it, one after the other, so that goroced is built once.
var temp string

func TestMain(m *testing.M) {
	var err error
	if temp, err = os.MkdirTemp("", "runner"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(temp)
	os.Exit(code)
}

// action is what GitHub knows of a composite action.
type action struct {
	Name, Description string
	Inputs            map[string]struct{ Description, Default string }
	Outputs           map[string]struct{ Description, Value string }
	Runs              struct {
		Using string
		Steps []step
	}
}

// workflow is what the examples have of a workflow.
type workflow struct {
	Name string
	On   []string
	Jobs map[string]struct {
		RunsOn string `yaml:"runs-on"`
		Steps  []step
	}
}

type step struct {
	Name, ID, Uses, Shell, Run string
	Env, With                  map[string]string
}

// read decodes a file. A key that is not known is an error.
func read[T any](t *testing.T, file string) (v T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

// job is a job on a runner.
type job struct {
	t         *testing.T
	workspace string
	env       []string          // of the runner, and what steps have added by GITHUB_ENV
	path      string            // what steps have added by GITHUB_PATH, and the runner's
	outputs   map[string]string // of the steps that were run
}

// newJob returns a job whose commands find the programs of a folder first.
func newJob(t *testing.T, programs string) *job {
	t.Helper()
	j := &job{t: t, workspace: t.TempDir(), path: programs + ":" + os.Getenv("PATH"),
		outputs: map[string]string{}}
	t.Cleanup(j.end)
	for _, v := range os.Environ() {
		if n, _, _ := strings.Cut(v, "="); !strings.HasPrefix(n, "GOROCE") && !strings.HasPrefix(n, "LD_") &&
			!strings.HasPrefix(n, "GITHUB_") && n != "PATH" {
			j.env = append(j.env, v)
		}
	}
	if strings.Contains(os.Getenv("GOFLAGS"), trimpath) {
		j.env = append(j.env, "GOENV="+goConfig(t))
	}
	action, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	j.env = append(j.env, "CI=true", "GITHUB_ACTIONS=true", "RUNNER_OS=Linux", "RUNNER_TEMP="+temp,
		"GITHUB_WORKSPACE="+j.workspace, "GITHUB_ACTION_PATH="+action,
		// Of the job: its device has an address that no other daemon of this machine has.
		"GOROCED_DEVICE_ADDRESSES="+linktest.Loopback().String())
	return j
}

const trimpath = "-trimpath"

// goConfig returns a copy of go's configuration file with the flag by which these tests were compiled. Steps clear the
// variable GOFLAGS; without the flag they would compile all packages again.
func goConfig(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("go", "env", "GOENV").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "env")
	write(t, file, string(text)+"\nGOFLAGS="+trimpath+"\n", 0o600)
	return file
}

// end ends what still runs, as the runner does at the end of a job.
func (j *job) end() {
	file := filepath.Join(temp, "goroce/goroced.pid")
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	defer os.Remove(file)
	if _, err := os.Lstat(filepath.Join(temp, "goroce/goroced.sock")); os.IsNotExist(err) {
		return // the daemon has ended, and its PID may be another process's
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGTERM)
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		j.t.Error(err)
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-look.C {
		if _, err := os.Lstat(filepath.Join(temp, "goroce/goroced.sock")); os.IsNotExist(err) {
			return
		}
	}
	j.t.Error("the daemon does not end")
}

var expression = regexp.MustCompile(`\$\{\{ *([a-z0-9.-]+) *\}\}`)

// evaluate replaces the expressions of GitHub in a text.
func (j *job) evaluate(text string, values map[string]string) string {
	return expression.ReplaceAllStringFunc(text, func(e string) string {
		v, ok := values[expression.FindStringSubmatch(e)[1]]
		if !ok {
			j.t.Fatalf("%s has no value", e)
		}
		return v
	})
}

// run runs a shell step as GitHub does: bash -eo pipefail, the files of GITHUB_ENV and its like empty before.
func (j *job) run(s step, values map[string]string) (string, error) {
	j.t.Helper()
	if expression.MatchString(s.Run) {
		j.t.Errorf("the script of %q has expressions: who sets an input could run commands", s.Name)
	}
	script := filepath.Join(temp, "step.sh")
	if err := os.WriteFile(script, []byte(s.Run), 0o600); err != nil {
		j.t.Fatal(err)
	}
	cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", script)
	cmd.Dir = j.workspace
	cmd.Env = append(slices.Clone(j.env), "PATH="+j.path)
	for _, n := range slices.Sorted(maps.Keys(s.Env)) {
		cmd.Env = append(cmd.Env, n+"="+j.evaluate(s.Env[n], values))
	}
	files := map[string]string{}
	for _, n := range []string{"GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT"} {
		files[n] = filepath.Join(temp, n)
		if err := os.WriteFile(files[n], nil, 0o600); err != nil {
			j.t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, n+"="+files[n])
	}
	out, err := cmd.CombinedOutput()
	j.env = append(j.env, j.lines(files["GITHUB_ENV"])...)
	for _, dir := range j.lines(files["GITHUB_PATH"]) {
		j.path = dir + ":" + j.path
	}
	for _, l := range j.lines(files["GITHUB_OUTPUT"]) {
		n, v, _ := strings.Cut(l, "=")
		j.outputs["steps."+s.ID+".outputs."+n] = v
	}
	return string(out), err
}

func (j *job) lines(file string) (list []string) {
	j.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		j.t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		list = append(list, strings.TrimSuffix(l, "\n"))
	}
	return list
}

// use runs the action with inputs, up to the first step that fails.
func (j *job) use(a action, with map[string]string) (string, error) {
	j.t.Helper()
	values := map[string]string{}
	for n, in := range a.Inputs {
		values["inputs."+n] = in.Default
	}
	for n, v := range with {
		if _, ok := a.Inputs[n]; !ok {
			j.t.Fatalf("the action has no input %s", n)
		}
		values["inputs."+n] = v
	}
	var all strings.Builder
	for _, s := range a.Runs.Steps {
		if s.Shell != "bash" || s.Uses != "" || s.Name == "" {
			j.t.Fatalf("step %+v, want bash, with a name", s)
		}
		out, err := j.run(s, values)
		fmt.Fprintf(&all, "## %s\n%s", s.Name, out)
		if err != nil {
			return all.String(), err
		}
	}
	return all.String(), nil
}

// play runs the steps of an example. What other actions do is done here already.
func (j *job) play(file string) {
	j.t.Helper()
	a, w := read[action](j.t, "action.yml"), read[workflow](j.t, "examples/"+file)
	used := 0
	for _, s := range w.Jobs["test"].Steps {
		var out string
		var err error
		switch {
		case strings.HasPrefix(s.Uses, name):
			out, err = j.use(a, s.With)
			used++
		case s.Uses == "":
			out, err = j.run(s, nil)
		case !strings.HasPrefix(s.Uses, "actions/"):
			j.t.Fatalf("an unknown action: %s", s.Uses)
		}
		j.t.Logf("%s%s\n%s", s.Uses, s.Run, out)
		if err != nil {
			j.t.Fatal(err)
		}
	}
	if used != 1 {
		j.t.Errorf("the action was used %d times, want once", used)
	}
	for n, o := range a.Outputs {
		if info, err := os.Stat(j.evaluate(o.Value, j.outputs)); err != nil {
			j.t.Errorf("output %s: %v, %v", n, info, err)
		}
	}
}

// write writes a file of the project.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// sudo makes a folder with a sudo that does nothing: what workflows install is there, or the test is skipped.
func sudo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sudo"), "#!/bin/sh\n", 0o755)
	return dir
}

// TestC: a project in C++ whose `make check` runs a program with two QPs.
func TestC(t *testing.T) {
	require.FullRun(t, "it builds the libraries, which tests/dropin does, too")
	for _, program := range []string{"make", "c++", "cc", "ibv_devinfo"} {
		require.Command(t, program)
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		require.Missing(t, "libibverbs-dev is not installed")
	}
	source, err := os.ReadFile("../../examples/cpp/ping.cpp")
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(t, sudo(t))
	write(t, filepath.Join(j.workspace, "ping.cpp"), string(source), 0o600)
	write(t, filepath.Join(j.workspace, "Makefile"),
		"check: ping\n\t./ping\nping: ping.cpp\n\tc++ -std=c++17 -o ping ping.cpp -libverbs\n", 0o600)
	j.play("c.yml")
}

// TestPrograms: projects whose jobs run programs of packages.
func TestPrograms(t *testing.T) {
	require.FullRun(t, "it builds the libraries, which tests/dropin does, too")
	for _, c := range []struct {
		file     string
		programs []string
	}{
		{"perftest.yml", []string{"ib_write_bw"}},
		{"mpi.yml", []string{"mpirun.openmpi", "NPopenmpi", "ibv_devinfo"}},
		{"ucx.yml", []string{"ucx_info", "ucx_perftest"}},
		{"storage.yml", []string{"fio", "ibv_devinfo"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			for _, program := range append(c.programs, "cc", "ss") {
				require.Command(t, program)
			}
			j := newJob(t, sudo(t))
			// Open MPI wants to be asked for it by root, which the user of a runner is not.
			j.env = append(j.env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			j.play(c.file)
		})
	}
}

// TestGo: a project in Go whose tests need the daemon.
func TestGo(t *testing.T) {
	j := newJob(t, sudo(t))
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	// The project has what goroce has, and goroce from here.
	text := strings.Replace(string(module), "module github.com/goroce/goroce", "module example.com/project", 1) +
		"\nrequire github.com/goroce/goroce v0.0.0\n\nreplace github.com/goroce/goroce => " + root + "\n"
	write(t, filepath.Join(j.workspace, "go.mod"), text, 0o600)
	write(t, filepath.Join(j.workspace, "go.sum"), string(sums), 0o600)
	write(t, filepath.Join(j.workspace, "project_test.go"), project, 0o600)
	j.env = append(j.env, "GOFLAGS=")
	j.play("go.yml")
	for _, v := range j.env {
		if strings.HasPrefix(v, "LD_") {
			t.Errorf("a project in Go has %s, want none such", v)
		}
	}
}

// project is the test of a project in Go.
const project = `package project

import (
	"os"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
)

func TestDevice(t *testing.T) {
	dev, err := client.Dial(t.Context(), client.Options{Socket: os.Getenv("GOROCED_SOCKET")})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if port, err := dev.QueryPort(1); err != nil || port.State != ib.PortActive {
		t.Fatal(port, err)
	}
}
`

// TestFails: a device that cannot be had fails the job, with an error that GitHub shows, in the daemon's words.
func TestFails(t *testing.T) {
	j := newJob(t, sudo(t))
	out, err := j.use(read[action](t, "action.yml"), map[string]string{"netif": "no such"})
	if err == nil || !strings.Contains(out, "::error::the daemon does not run: ") || !strings.Contains(out, "no such") {
		t.Errorf("%v, want that there is no such daemon\n%s", err, out)
	}
}
