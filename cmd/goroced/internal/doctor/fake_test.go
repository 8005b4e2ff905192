package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link/port"
)

// machine is one with files of a test's choice. All is well on it.
func machine(t *testing.T, files map[string]string) *env {
	t.Helper()
	e := &env{
		root: t.TempDir(), program: "/bin/goroced", patience: 10 * time.Second,
		getenv: func(string) string { return "" },
		subject: subject{netif: &netif{name: "eth0", mtu: 1500, up: true, carrier: true},
			usable: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
		getOwner: func(netip.Addr) port.Owner { return port.Owner{UID: -1} },
		open:     func([]netip.Addr) (string, error) { return "udp", nil },
		probe:    func(string, netip.Addr, netip.Addr) (bool, error) { return false, errors.ErrUnsupported },
		sendAs:   func(int, netip.Addr) error { return nil },
		command:  func(name string, _ ...string) (string, error) { return "", fmt.Errorf("no %s here", name) },
		memlock:  func() (uint64, error) { return unix.RLIM_INFINITY, nil },
		sockopt:  func(_, _, value int) (int, error) { return 2 * value, nil },

		libraries: func() (string, error) { return "/usr/lib/goroce", nil },
		compiler:  func() (string, error) { return "/usr/bin/cc", nil },
	}
	for name, content := range files {
		e.write(t, name, content)
	}
	return e
}

func (e *env) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(e.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// setCaps gives the process capabilities.
func (e *env) setCaps(t *testing.T, caps ...capability) {
	t.Helper()
	bits := uint64(0)
	for _, c := range caps {
		bits |= 1 << c.bit
	}
	e.write(t, "/proc/thread-self/status", fmt.Sprintf("Name:\tx\nCapPrm:\tffff\nCapEff:\t%016x\nCapBnd:\tffff\n",
		bits))
}

const clockDir = "/sys/devices/system/clocksource/clocksource0/"

// fileCases are files of a machine with the finding that they lead to.
var fileCases = []struct {
	name    string
	files   map[string]string
	caps    []capability
	check   string
	status  Status
	words   string
	command string
}{
	{name: "yama 0", files: map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "0\n"}, check: "ptrace",
		words: "own user"},
	{name: "yama 1", files: map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "1\n"}, check: "ptrace",
		status: Warn, words: "is 1: a daemon reaches any memory of clients of its own user only by a file",
		command: "sysctl -w kernel.yama.ptrace_scope=0"},
	{name: "yama 1, privileged", files: map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "1\n"},
		caps: []capability{sysPtrace}, check: "ptrace", words: "(CAP_SYS_PTRACE)"},
	{name: "yama 2", files: map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "2\n"}, check: "ptrace",
		status: Warn, words: "is 2: ",
		command: "setcap cap_sys_ptrace+ep /bin/goroced"},
	{name: "yama 3, privileged", files: map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "3\n"},
		caps: []capability{sysPtrace}, check: "ptrace", status: Warn, words: "is 3: "},

	{name: "clock tsc", files: map[string]string{clockDir + "current_clocksource": "tsc\n"}, check: "clock",
		words: "tsc"},
	{name: "clock hpet", files: map[string]string{clockDir + "current_clocksource": "hpet\n",
		clockDir + "available_clocksource": "hpet acpi_pm\n"}, check: "clock", status: Warn, words: "hpet"},

	{name: "cgroup v2, none", files: map[string]string{"/proc/thread-self/cgroup": "0::/a/b\n",
		"/sys/fs/cgroup/a/cpu.max": "max 100000\n"}, check: "cpu", words: "no limit"},
	{name: "cgroup v2, parent", files: map[string]string{"/proc/thread-self/cgroup": "0::/a/b\n",
		"/sys/fs/cgroup/a/cpu.max": "50000 100000\n", "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, check: "cpu",
		status: Warn, words: "0.50 processors (/sys/fs/cgroup/a/cpu.max)"},
	{name: "cgroup v2, container", files: map[string]string{"/proc/thread-self/cgroup": "0::/../x\n",
		"/sys/fs/cgroup/cpu.max": "90000 100000\n"}, check: "cpu", status: Warn, words: "0.90"},
	{name: "cgroup v2, enough", files: map[string]string{"/proc/thread-self/cgroup": "0::/\n",
		"/sys/fs/cgroup/cpu.max": "200000 100000\n"}, check: "cpu", words: "2.00"},
	{name: "cgroup v1", files: map[string]string{"/proc/thread-self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/a\n",
		"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":  "25000\n",
		"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
		"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":    "-1\n",
		"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":   "100000\n"}, check: "cpu", status: Warn, words: "0.25"},

	{name: "links, nobody", check: "links", status: Warn, words: "afxdp lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF",
		command: "setcap cap_net_raw,cap_net_admin,cap_bpf+ep /bin/goroced"},
	{name: "links, raw missing", caps: []capability{netAdmin}, check: "links", status: Warn,
		words: "rawsock lacks CAP_NET_RAW", command: "setcap cap_net_raw+ep /bin/goroced"},
	{name: "links, raw", caps: []capability{netRaw}, check: "links", words: "rawsock has"},
	{name: "links, all", caps: []capability{netRaw, netAdmin, bpf}, check: "links", words: "afxdp has"},

	{name: "links, user namespace",
		files: map[string]string{"/proc/thread-self/uid_map": "         0       1000          1\n"},
		caps:  []capability{netRaw, netAdmin, bpf}, check: "links", status: Warn, words: "afxdp lacks CAP_BPF",
		command: "setcap cap_net_raw,cap_net_admin,cap_bpf+ep /bin/goroced"},
	{name: "links, first namespace",
		files: map[string]string{"/proc/thread-self/uid_map": "         0          0 4294967295\n"},
		caps:  []capability{netRaw, netAdmin, bpf}, check: "links", words: "afxdp has"},
}

// TestFiles: what is read from files, with the problem and without.
func TestFiles(t *testing.T) {
	for _, c := range fileCases {
		t.Run(c.name, func(t *testing.T) {
			e := machine(t, c.files)
			e.setCaps(t, c.caps...)
			found := e.examine()
			f := pick(found, c.check, c.status, c.words)
			if f == nil {
				t.Fatalf("no finding %v %s that says %q:\n%s", c.status, c.check, c.words, text(found))
			}
			if f.Command != c.command || (f.Status != OK) != (f.Remedy != "") {
				t.Errorf("%+v, want command %q, and a remedy if all is not well", *f, c.command)
			}
		})
	}
}

// TestClockRemedy: the command chooses the quick clock source.
func TestClockRemedy(t *testing.T) {
	e := machine(t, map[string]string{clockDir + "current_clocksource": "hpet\n",
		clockDir + "available_clocksource": "hpet tsc acpi_pm\n"})
	f := wantFound(t, e.examine(), "clock", Warn, "hpet")
	if err := shell(f.Command); err != nil {
		t.Fatal(err)
	}
	wantOK(t, e.examine(), "clock")
}

// TestLimits: memory to lock, receive buffers, and what the kernel lacks.
func TestLimits(t *testing.T) {
	e := machine(t, nil)
	for _, check := range []string{"memlock", "buffers", "offload"} {
		wantOK(t, e.examine(), check)
	}

	e.memlock = func() (uint64, error) { return 64 << 10, nil }
	wantFound(t, e.examine(), "memlock", Warn, "64 KiB")
	e.setCaps(t, ipcLock)
	wantOK(t, e.examine(), "memlock")

	e.memlock = func() (uint64, error) { return 0, unix.EPERM }
	wantFound(t, e.examine(), "memlock", Warn, unix.EPERM.Error())

	limit := 3 << 20
	e.sockopt = func(_, option, value int) (int, error) {
		if option == unix.SO_RCVBUFFORCE {
			return 0, unix.EPERM
		}
		return 2 * min(value, limit), nil
	}
	f := wantFound(t, e.examine(), "buffers", Warn, "3072 KiB, not 4096 KiB")
	if _, err := fmt.Sscanf(f.Command, "sysctl -w net.core.rmem_max=%d", &limit); err != nil {
		t.Fatalf("command %q: %v", f.Command, err)
	}
	wantOK(t, e.examine(), "buffers")

	e.sockopt = func(_, option, value int) (int, error) {
		if option == unix.UDP_GRO {
			return 0, unix.ENOPROTOOPT
		}
		return 2 * value, nil
	}
	if f := wantFound(t, e.examine(), "offload", Warn, "UDP_GRO"); strings.Contains(f.Text, "UDP_SEGMENT") {
		t.Error(f.Text)
	}
	e.sockopt = func(int, int, int) (int, error) { return 0, unix.EMFILE }
	wantFound(t, e.examine(), "buffers", Fail, unix.EMFILE.Error())
}

// TestChecksums: an interface that cannot complete checksums; one that cuts packets
// itself.
func TestChecksums(t *testing.T) {
	e := machine(t, nil)
	features := ""
	e.command = func(name string, _ ...string) (string, error) {
		if name != "ethtool" {
			return "", fmt.Errorf("no %s here", name)
		}
		return features, nil
	}
	features = "Features for eth0:\ntx-checksumming: off [fixed]\ntx-udp-segmentation: off [fixed]\n"
	if f := wantFound(t, e.examine(), "offload", Warn, "does not complete checksums"); f.Command != "" ||
		!strings.Contains(f.Remedy, "it cannot") {
		t.Errorf("%+v, want no command, and that it cannot", f)
	}
	features = "Features for eth0:\ntx-checksumming: on\ntx-udp-segmentation: on [fixed]\n"
	if f := pick(e.examine(), "offload", OK, "eth0 cuts the packets"); f == nil {
		t.Error(text(e.examine()))
	}
}

// TestKernelHasPort: rdma_rxe, by the names of its devices.
func TestKernelHasPort(t *testing.T) {
	e := machine(t, map[string]string{"/sys/class/infiniband/rxe0/parent": "eth0\n",
		"/sys/class/infiniband/mlx5_0/fw_ver": "1\n"})
	e.getOwner = func(netip.Addr) port.Owner { return port.Owner{Kernel: true} }
	if f := wantFound(t, e.examine(), "port", Fail, "rdma_rxe"); f.Command != "rdma link delete rxe0" {
		t.Errorf("command %q, want %q", f.Command, "rdma link delete rxe0")
	}
}

// TestDeviceRefused: what nothing else explains is shown as it is.
func TestDeviceRefused(t *testing.T) {
	e := machine(t, nil)
	e.open = func([]netip.Addr) (string, error) { return "", errors.New("the moon is full") }
	wantFound(t, e.examine(), "device", Fail, "the moon is full")
}
