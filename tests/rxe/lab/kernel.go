package lab

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goroce/goroce/tests/require"
)

// Kernel names a series of stock kernels of Debian 12.
type Kernel string

const (
	Linux61  Kernel = "6.1"  // the release's own kernel
	Linux612 Kernel = "6.12" // the newest in its archive; has ATOMIC WRITE, FLUSH, work queues
)

// Kernels returns the kernels for tests that run against every peer: 6.1, and with
// GOROCE_FULL=1 in the environment 6.12 as well.
func Kernels() []Kernel {
	if require.Full() {
		return []Kernel{Linux61, Linux612}
	}
	return []Kernel{Linux61}
}

//go:embed kernel.sh
var kernelScript []byte

// unpacked is a kernel in the cache.
type unpacked struct {
	dir     string
	release string // as uname -r prints it
}

func (k unpacked) vmlinux() string { return filepath.Join(k.dir, "vmlinux") }

// cacheDir is where kernels and boot images are kept between runs.
func cacheDir() string {
	if dir := os.Getenv("GOROCE_LAB_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/goroce-lab"
}

// fetch returns the kernel from the cache, which kernel.sh fills if need be.
func (k Kernel) fetch(cache string) (unpacked, error) {
	dir := filepath.Join(cache, string(k))
	release, err := os.ReadFile(filepath.Join(dir, "release"))
	if os.IsNotExist(err) {
		cmd := exec.Command("bash", "-s", "--", cache, string(k))
		cmd.Stdin = bytes.NewReader(kernelScript)
		if output, err := cmd.CombinedOutput(); err != nil {
			return unpacked{}, fmt.Errorf("kernel %s is not in %s and cannot be fetched (.ci/packages does it where "+
				"packages can be had): %w\n%s", k, cache, err, output)
		}
		release, err = os.ReadFile(filepath.Join(dir, "release"))
	}
	if err != nil {
		return unpacked{}, fmt.Errorf("kernel %s: %w", k, err)
	}
	return unpacked{dir: dir, release: strings.TrimSpace(string(release))}, nil
}
