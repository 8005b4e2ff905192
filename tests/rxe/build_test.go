package rxe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// work is a directory from which any user can run what the tests have built.
var work string

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "goroce-rxe-"); err == nil {
		err = os.Chmod(work, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := lab.Main(m)
	_ = os.RemoveAll(work)
	os.Exit(code)
}

// built has the outcome of each command that has built something: the tests share it.
var built sync.Map // from a name to a func() error

// output stands for the path of what a command builds.
const output = "OUTPUT"

// buildOnce runs a compiler, unless another test has, and returns the path of what it builds.
func buildOnce(t *testing.T, name, cgo string, command ...string) (path string) {
	t.Helper()
	path = filepath.Join(work, name)
	build, _ := built.LoadOrStore(name, sync.OnceValue(func() error {
		args := slices.Clone(command)
		args[slices.Index(args, output)] = path
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", args, err, out)
		}
		return nil
	}))
	if err := build.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return path
}

// build compiles goroced.
func build(t *testing.T) string {
	t.Helper()
	return buildOnce(t, "goroced", "0", "go", "build", "-o", output, "../../cmd/goroced")
}

// buildRNIC compiles goroced with libibverbs and librdmacm, for the guest, which has the libraries.
func buildRNIC(t *testing.T) string {
	t.Helper()
	requireRNIC(t)
	return buildOnce(t, "goroced-rnic", "1", "go", "build", "-tags", "rnic", "-o", output, "../../cmd/goroced")
}

// buildRnicTest compiles the tests of package rnic.
func buildRnicTest(t *testing.T) string {
	t.Helper()
	requireRNIC(t)
	return buildOnce(t, "rnic.test", "1", "go", "test", "-c", "-tags", "rnic", "-o", output, "../../roce/rnic")
}

// buildConformance compiles the command for our end, and that for a guest, whose device package rnic drives.
func buildConformance(t *testing.T) (ours, guests string) {
	t.Helper()
	requireRNIC(t)
	const source = "../conformance/cmd/conformance"
	return buildOnce(t, "conformance", "0", "go", "build", "-o", output, source),
		buildOnce(t, "conformance-rnic", "1", "go", "build", "-tags", "rnic", "-o", output, source)
}

// requireRNIC skips the test where package rnic cannot be built.
func requireRNIC(t *testing.T) {
	t.Helper()
	require.Command(t, "gcc")
	for _, header := range []string{"infiniband/verbs.h", "rdma/rdma_cma.h"} {
		if _, err := os.Stat("/usr/include/" + header); err != nil {
			require.Missing(t, "package rnic needs libibverbs-dev and librdmacm-dev (.ci/packages installs them): %v",
				err)
		}
	}
}

// buildCM compiles our programs, and cmtool for the guest.
func buildCM(t *testing.T) cmPrograms {
	t.Helper()
	lab.Require(t, lab.Kernels()...)
	require.Command(t, "gcc")
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "needs librdmacm-dev: %v", err)
	}
	return cmPrograms{
		"goroced": build(t),
		"cmpeer":  buildOnce(t, "cmpeer", "1", "go", "build", "-o", output, "./cmd/cmpeer"),
		"cmtool": buildOnce(t, "cmtool", "1", "gcc", "-Wall", "-Wextra", "-Werror", "-o", output, "testdata/cmtool.c",
			"-lrdmacm", "-libverbs"),
	}
}

// libraries are those for programs in C.
var libraries = sync.OnceValues(func() (string, error) { return dropin.Build(context.Background(), work) })

// buildLibraries builds the libraries for programs in C, and returns their folder.
func buildLibraries(t *testing.T) string {
	t.Helper()
	libs, err := libraries()
	if err != nil {
		t.Fatal(err)
	}
	return libs
}
