package perf

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the machine of the measurement.
type Machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Load   string `json:"load"` // load average of the last minute: what else ran
}

// String formats the description on one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, load %s at the start", m.short(), m.Load)
}

// short leaves out what differs between runs.
func (m Machine) short() string {
	return fmt.Sprintf("%d x %s, Linux %s, %s", m.CPUs, m.CPU, m.Kernel, m.Go)
}

func thisMachine() Machine {
	m := Machine{CPU: runtime.GOARCH, CPUs: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version(), Load: "unknown"}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m
}
