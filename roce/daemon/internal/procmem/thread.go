//go:build linux

package procmem

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Waits tells whether a thread of this process waits, for something other than a processor, and how many times it has
// left a processor so far (proc_pid_status(5)). A thread that is gone does not wait.
func Waits(thread int) (times uint64, waits bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", thread))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "State":
			waits = value[0] != 'R'
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			n, _ := strconv.ParseUint(string(value), 10, 64)
			times += n
		}
	}
	return times, waits
}

// calls are those that touch memory of other processes.
var calls = map[string]string{
	strconv.Itoa(unix.SYS_PROCESS_VM_READV):  "process_vm_readv",
	strconv.Itoa(unix.SYS_PROCESS_VM_WRITEV): "process_vm_writev",
	strconv.Itoa(unix.SYS_PREADV):            "preadv",
	strconv.Itoa(unix.SYS_PWRITEV):           "pwritev",
	strconv.Itoa(unix.SYS_PREAD64):           "pread64",
	strconv.Itoa(unix.SYS_PWRITE64):          "pwrite64",
}

// Waiting returns the system call in which a thread of this process waits, and the function of the kernel where it
// does: handle_userfault for example. What the kernel does not say is "unknown".
func Waiting(thread int) (call, where string) {
	of := func(name string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/%s", thread, name))
		first, _, _ := bytes.Cut(text, []byte(" "))
		if err != nil || len(first) == 0 || string(first) == "0" {
			return "unknown"
		}
		return string(bytes.TrimSpace(first))
	}
	call, where = of("syscall"), of("wchan")
	if name, ok := calls[call]; ok {
		call = name
	}
	return call, where
}
