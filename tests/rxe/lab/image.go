package lab

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed init
var initScript []byte

// The programs of a guest, in its /usr/bin. Dash is the shell, since busybox's shell
// prefers its own applets, such as "ip", to programs. Busybox provides the commands
// that are not in the list.
var (
	guestPrograms = []string{
		shell, "busybox", "ip", "rdma", "tc", "ethtool",
		"ibv_devices", "ibv_devinfo", "ibv_asyncwatch",
		"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong",
		"ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat",
		"ib_read_bw", "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat",
		"rping", "ucmatose", "udaddy", "mckey", "rdma_server", "rdma_client", "rdma_xserver", "rdma_xclient",
	}
	optionalGuestPrograms = []string{"rstream", "riostream", "rcopy", "cmtime", "udpong", "qperf", "iperf3"}
)

const shell = "dash"

// guestModules are loaded at boot, after the modules they depend on. Without
// a crc32 module rdma_rxe refuses to add a link.
var guestModules = []string{
	"virtio_pci", "virtio_console", "virtio_net",
	"crc32_generic", "crc32_pclmul", "rdma_rxe", "ib_uverbs", "rdma_ucm", "sch_netem", "dummy",
}

// Libraries that programs load by name, so that ldd does not show them: the rxe
// provider of libibverbs, and the library that libc needs to end a thread.
const (
	rxeDriver       = "/etc/libibverbs.d/rxe.driver"
	rxeProviderGlob = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so"
	libgcc          = "/lib/x86_64-linux-gnu/libgcc_s.so.1"
)

// imageLifetime is how long an outdated image stays in the cache: another working
// tree may be using it.
const imageLifetime = 24 * time.Hour

// bootImage returns the path of the initramfs for kernel k. Its name holds the
// hash of its contents, so an image is written only when an input has changed.
func bootImage(cache string, k unpacked) (string, error) {
	contents, err := buildImage(cache, k)
	if err != nil {
		return "", fmt.Errorf("build boot image for %s: %w", k.release, err)
	}
	sum := sha256.Sum256(contents)
	path := filepath.Join(cache, fmt.Sprintf("image-%x.cpio", sum[:16]))
	if now := time.Now(); os.Chtimes(path, now, now) == nil {
		return path, nil
	}
	if err := writeWhole(path, contents); err != nil {
		return "", err
	}
	return path, removeOldImages(cache)
}

// writeWhole writes a file atomically.
func writeWhole(path string, contents []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "image-*.new")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(contents)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func removeOldImages(cache string) error {
	paths, err := filepath.Glob(filepath.Join(cache, "image-*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > imageLifetime {
			_ = os.Remove(path)
		}
	}
	return nil
}

func buildImage(cache string, k unpacked) ([]byte, error) {
	var a archive
	a.addFile("/init", 0o755, initScript)
	if err := addAgent(&a, cache); err != nil {
		return nil, err
	}
	if err := addModules(&a, k); err != nil {
		return nil, err
	}
	if err := addPrograms(&a); err != nil {
		return nil, err
	}
	return a.finish(), nil
}

// addCopy adds a file of this machine.
func addCopy(a *archive, name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.addFile(name, 0o755, data)
	return nil
}

// addAgent builds the guest's agent.
func addAgent(a *archive, cache string) error {
	dir, err := os.MkdirTemp(cache, "agent-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "agent")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary,
		"github.com/goroce/goroce/tests/rxe/lab/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of the guest's agent: %w\n%s", err, output)
	}
	return addCopy(a, "/agent", binary)
}

// addModules adds the modules and /modules/order, which lists them in the order in
// which they are loaded.
func addModules(a *archive, k unpacked) error {
	var order []string
	seen := make(map[string]bool)
	for _, module := range guestModules {
		output, err := exec.Command("modprobe", "-d", k.dir, "-S", k.release, "--show-depends", module).Output()
		if err != nil {
			return fmt.Errorf("dependencies of module %s: %w", module, err)
		}
		for line := range strings.Lines(string(output)) {
			// Lines read "insmod PATH", with options that this machine has for the module, or, for what is in the
			// kernel, "builtin NAME".
			path, found := strings.CutPrefix(strings.TrimSpace(line), "insmod ")
			path, _, _ = strings.Cut(path, " ")
			if !found || seen[path] {
				continue
			}
			seen[path] = true
			name := filepath.Base(path)
			order = append(order, name)
			if err := addCopy(a, "/modules/"+name, path); err != nil {
				return err
			}
		}
	}
	a.addFile("/modules/order", 0o644, []byte(strings.Join(order, "\n")+"\n"))
	return nil
}

// addPrograms adds the shell, busybox, the tools, rxe's provider, and the
// shared libraries of them all.
func addPrograms(a *archive) error {
	from := map[string]string{rxeDriver: rxeDriver, libgcc: libgcc} // the path here, by the path in the guest
	providers, err := filepath.Glob(rxeProviderGlob)
	if err != nil || len(providers) == 0 {
		return fmt.Errorf("%s: no such file (package ibverbs-providers has it)", rxeProviderGlob)
	}
	binaries := providers
	for _, provider := range providers {
		from[provider] = provider
	}
	for _, name := range slices.Concat(guestPrograms, optionalGuestPrograms) {
		path, err := findProgram(name)
		if err != nil {
			continue // Require has checked the programs that a guest must have
		}
		from["/usr/bin/"+name] = path
		if name == shell {
			from["/bin/sh"], from["/usr/bin/sh"] = path, path
		}
		binaries = append(binaries, path)
	}
	libraries, err := sharedLibraries(binaries)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		from[library] = library
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if err := addCopy(a, name, from[name]); err != nil {
			return err
		}
	}
	return nil
}

// sharedLibraries returns the sorted paths of the libraries with which the binaries
// are linked, including the dynamic loader. A static binary needs none.
func sharedLibraries(binaries []string) ([]string, error) {
	// The exit status is 1 when one of the binaries is static.
	output, err := exec.Command("ldd", binaries...).Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("ldd: %w", err)
	}
	found := make(map[string]bool)
	for line := range strings.Lines(string(output)) {
		// "libc.so.6 => /lib/.../libc.so.6 (0x...)" or "/lib64/ld-linux-x86-64.so.2 (0x...)".
		if strings.HasSuffix(line, "=> not found\n") {
			return nil, fmt.Errorf("ldd: %s", strings.TrimSpace(line))
		}
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") && !strings.HasSuffix(field, ":") {
				found[field] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// findProgram searches Debian's program directories, whatever the PATH.
func findProgram(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("program %s is not installed", name)
}
