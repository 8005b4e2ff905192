package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// shared holds the labs that the tests of this process share, by the kernels of
// their guests. A lab that could not start is not tried again.
var shared struct {
	mu   sync.Mutex
	labs map[string]sharedLab
}

type sharedLab struct {
	*Lab
	err error
}

// Main runs the tests of a package that uses Shared, and closes the shared labs. It returns the
// exit code for TestMain. It prints which rows were tried twice; see [Row].
func Main(m *testing.M) int {
	code := m.Run()
	reportRetried()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Shared returns the lab with one guest for each kernel, or with one guest with 6.1
// if none is named. It boots the lab the first time, and again if a guest has died
// since. The wire is reset when the test ends. If no lab is possible the test is
// skipped; see Require.
func Shared(t testing.TB, kernels ...Kernel) *Lab {
	t.Helper()
	if len(kernels) == 0 {
		kernels = []Kernel{Linux61}
	}
	Require(t, kernels...)
	l, err := sharedWith(kernels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Reset(); err != nil {
			t.Errorf("reset the wire: %v", err)
		}
	})
	return l
}

func sharedWith(kernels []Kernel) (*Lab, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	key := fmt.Sprint(kernels)
	entry, found := shared.labs[key]
	if found && (entry.err != nil || entry.alive()) {
		return entry.Lab, entry.err
	}
	if found {
		_ = entry.Close()
	}
	if shared.labs == nil {
		shared.labs = make(map[string]sharedLab)
	}
	entry.Lab, entry.err = Start(context.Background(), Config{Kernels: kernels})
	shared.labs[key] = entry
	return entry.Lab, entry.err
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, entry := range shared.labs {
		if entry.Lab != nil {
			errs = append(errs, entry.Close())
		}
	}
	shared.labs = nil
	return errors.Join(errs...)
}

// ForEachKernel runs a test against every peer of [Kernels], as parallel subtests, since
// a guest uses one processor. They begin when the calling test has returned.
func ForEachKernel(t *testing.T, test func(*testing.T, Kernel)) {
	t.Helper()
	Require(t, Kernels()...)
	for _, kernel := range Kernels() {
		t.Run(string(kernel), func(t *testing.T) {
			t.Parallel()
			test(t, kernel)
		})
	}
}

// Require ends the test with the reason if a lab with these kernels is not possible:
// it needs root, an amd64 machine, the programs that .ci/packages installs, and the
// kernels, cached or downloadable.
func Require(t testing.TB, kernels ...Kernel) {
	t.Helper()
	require.Root(t)
	if runtime.GOARCH != "amd64" {
		require.Missing(t, "the rxe lab needs an amd64 machine: its guests run this machine's programs")
	}
	for _, name := range []string{"qemu-system-x86_64", "ip", "iptables", "ip6tables", "ethtool", "modprobe", "ldd",
		"setpriv", "go"} {
		require.Command(t, name)
	}
	for _, name := range guestPrograms {
		if _, err := findProgram(name); err != nil {
			require.Missing(t, "%v (.ci/packages installs it)", err)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		require.Missing(t, "the rxe lab needs tap devices: %v", err)
	}
	for _, kernel := range kernels {
		if _, err := kernel.fetch(cacheDir()); err != nil {
			require.Missing(t, "%v", err)
		}
	}
}
