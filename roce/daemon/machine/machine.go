//go:build linux

// Package machine tells how much memory, and how many mappings, descriptors and threads, this process
// may have on this machine and in its container or systemd unit. The daemon derives limits from that.
package machine

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Capacity is how much this process can have of each resource.
type Capacity struct {
	Memory      int64 // bytes
	Mappings    int64 // of memory; beyond them mmap(2) fails, which Go's runtime does not survive
	Descriptors int64
	Threads     int64 // beyond them clone(2) fails, or Go's runtime ends the process
}

// Defaults, used where the system does not tell a limit.
const (
	usualMappings = 65530  // DEFAULT_MAX_MAP_COUNT of Linux
	goThreads     = 10_000 // of Go's runtime (debug.SetMaxThreads)
)

// Read asks the kernel for the capacity. If /proc/sys is hidden, as it is with ProcSubset=pid in
// the systemd unit, Linux's defaults are used.
func Read() Capacity {
	c := Capacity{Memory: math.MaxInt64, Mappings: usualMappings, Descriptors: math.MaxInt64, Threads: goThreads}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		c.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	if n, ok := number("/proc/sys/vm/max_map_count"); ok {
		c.Mappings = n
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		c.Descriptors = int64(min(limit.Cur, math.MaxInt64))
	}
	list, _ := os.ReadFile("/proc/self/cgroup")
	c.Memory = min(c.Memory, leastOf("/sys/fs/cgroup", string(list), "memory", "memory.max", "memory.limit_in_bytes"))
	c.Threads = min(c.Threads, leastOf("/sys/fs/cgroup", string(list), "pids", "pids.max", "pids.max"))
	return c
}

// leastOf returns the lowest limit that a cgroup controller sets for the process, in its own
// group or an enclosing one. The limit is in file for cgroups version 2, in file1 for version 1.
// list is /proc/self/cgroup (cgroups(7)): lines of number, controllers and path, where lines of
// version 2 name no controller.
func leastOf(root, list, controller, file, file1 string) int64 {
	least := int64(math.MaxInt64)
	for line := range strings.Lines(list) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		base, name := root, file
		if part[1] != "" {
			if !strings.Contains(","+part[1]+",", ","+controller+",") {
				continue
			}
			base, name = path.Join(root, controller), file1
		}
		for group := path.Clean("/" + part[2]); ; group = path.Dir(group) {
			if n, ok := number(path.Join(base, group, name)); ok {
				least = min(least, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}

// number reads a number from a file. It returns false for other contents, such as "max".
func number(file string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
