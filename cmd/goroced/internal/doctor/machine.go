package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// checkPtrace checks whether a daemon may access any memory of clients of its own user by process_vm_readv, for which
// the rules of ptrace apply (Linux documentation, Yama). If not, these clients must permit it themselves, as those of
// other users do (procmem.Bind).
func checkPtrace(e *env) []Finding {
	scope := e.read("/proc/sys/kernel/yama/ptrace_scope")
	remedy, limits := map[string]Finding{
		"1": {Remedy: "allow it for all of one user's processes:", Command: "sysctl -w kernel.yama.ptrace_scope=0"},
		"2": {Remedy: "give the daemon CAP_SYS_PTRACE, or sysctl -w kernel.yama.ptrace_scope=0:",
			Command: e.setcap(sysPtrace)},
		"3": {Remedy: "boot with another value; this one cannot be changed (/etc/sysctl.d/*ptrace*)"},
	}[scope]
	switch {
	case limits && (scope == "3" || !e.has(sysPtrace)):
		remedy.Status = Warn
		remedy.Text = "kernel.yama.ptrace_scope is " + scope +
			": a daemon reaches any memory of clients of its own user only by a file that they open for it, which " +
			"takes more system calls; memfds are not concerned"
		return []Finding{remedy}
	case e.has(sysPtrace):
		return ok("a daemon reaches the memory of clients of its own user (CAP_SYS_PTRACE)")
	}
	return ok("a daemon reaches the memory of clients of its own user")
}

// quickClocks can be read without a system call (vDSO), on amd64 and arm64.
var quickClocks = []string{"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"}

func checkClock(e *env) []Finding {
	const dir = "/sys/devices/system/clocksource/clocksource0/"
	clock := e.read(dir + "current_clocksource")
	if clock == "" {
		return ok("the clock source cannot be seen")
	}
	if slices.Contains(quickClocks, clock) {
		return ok("clock source " + clock)
	}
	f := Finding{Status: Warn, Text: fmt.Sprintf("clock source %s: reading the time takes a system call", clock),
		Remedy: "boot with tsc=reliable if the processors' counters run together"}
	for _, c := range strings.Fields(e.read(dir + "available_clocksource")) {
		if slices.Contains(quickClocks, c) {
			f.Remedy, f.Command = "choose a quicker one:",
				fmt.Sprintf("echo %s >%scurrent_clocksource", c, e.path(dir)+"/")
			break
		}
	}
	return []Finding{f}
}

// checkCPU looks for a control group's limit below one processor: it would stop a polling shard in the middle of a
// message.
func checkCPU(e *env) []Finding {
	least, where := 0.0, ""
	for line := range strings.Lines(e.read("/proc/thread-self/cgroup")) {
		// Fields: hierarchy, controllers ("" in version 2), path.
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "" && !slices.Contains(strings.Split(f[1], ","), "cpu") {
			continue
		}
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			if limit, file := e.quota(f[1], dir); file != "" && (where == "" || limit < least) {
				least, where = limit, file
			}
			if dir == "/" {
				break
			}
		}
	}
	switch {
	case where == "":
		return ok("no limit")
	case least < 1:
		return []Finding{{Status: Warn, Text: fmt.Sprintf("a control group allows %.2f processors (%s)", least, where),
			Remedy: "allow at least one: CPUQuota=100% (systemd), --cpus 1 (containers), limits.cpu: 1 (Kubernetes)"}}
	}
	return ok(fmt.Sprintf("a control group allows %.2f processors", least))
}

// quota returns how many processors a control group allows, and the file that says so; "" if there is no limit.
func (e *env) quota(controllers, dir string) (float64, string) {
	file := path.Join("/sys/fs/cgroup", dir, "cpu.max") // version 2: "QUOTA PERIOD", or "max PERIOD"
	f := strings.Fields(e.read(file))
	if controllers != "" {
		base := path.Join("/sys/fs/cgroup", controllers, dir)
		file = path.Join(base, "cpu.cfs_quota_us")
		f = []string{e.read(file), e.read(path.Join(base, "cpu.cfs_period_us"))}
	}
	if len(f) != 2 {
		return 0, ""
	}
	quota, err1 := strconv.ParseFloat(f[0], 64)
	period, err2 := strconv.ParseFloat(f[1], 64)
	if err1 != nil || err2 != nil || quota <= 0 || period <= 0 {
		return 0, ""
	}
	return quota / period, file
}
