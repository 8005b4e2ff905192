package perf

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rows of many processes count the system calls and the wake-ups of the whole machine, by tracepoints of the kernel,
// which cost a counter's increment; strace would stop each process at each call. The processes that measure are those
// of ordinary users, who may not count. So their parent reads the counters all the time, and takes those of their
// interval afterwards.

// tracepoints are what is counted: system calls of all processes, and threads that become runnable.
var tracepoints = [...]string{"raw_syscalls/sys_enter", "sched/sched_wakeup"}

// reading is what the counters had at a time.
type reading struct {
	at     time.Time
	counts [len(tracepoints)]float64
}

// watch reads the counters of the machine until it is stopped.
type watch struct {
	counters [len(tracepoints)][]int // descriptors, one for each processor
	readings []reading
	end      chan struct{}
	ended    chan struct{}
}

// watchEvery is the time between readings, which is small beside an interval.
const watchEvery = 5 * time.Millisecond

// startWatch begins to read. A SkipError says why the kernel does not count here.
func startWatch() (*watch, error) {
	w := &watch{end: make(chan struct{}), ended: make(chan struct{})}
	for i, name := range tracepoints {
		id, err := tracepointID(name)
		for cpu := 0; err == nil && cpu < runtime.NumCPU(); cpu++ {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id,
				Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			var fd int
			if fd, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC); err == nil {
				w.counters[i] = append(w.counters[i], fd)
			}
		}
		if err != nil {
			w.close()
			return nil, &SkipError{fmt.Sprintf("count %s: %v", name, err)}
		}
	}
	go w.run()
	return w, nil
}

// tracepointID returns the number of a tracepoint, from a tracefs that is mounted for the time.
func tracepointID(name string) (uint64, error) {
	dir, err := os.MkdirTemp("", "goroce-tracefs")
	if err != nil {
		return 0, err
	}
	defer os.Remove(dir)
	if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_RDONLY, ""); err != nil {
		return 0, os.NewSyscallError("mount tracefs", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	text, err := os.ReadFile(filepath.Join(dir, "events", name, "id"))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

func (w *watch) run() {
	defer close(w.ended)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.readings = append(w.readings, w.read())
		select {
		case <-w.end:
			return
		case <-tick.C:
		}
	}
}

func (w *watch) read() (r reading) {
	r.at = time.Now()
	for i, fds := range w.counters {
		for _, fd := range fds {
			var count [8]byte
			_, _ = unix.Read(fd, count[:]) // cannot fail with room for the count
			r.counts[i] += float64(binary.NativeEndian.Uint64(count[:]))
		}
	}
	return r
}

// stop ends the reading, and closes the counters.
func (w *watch) stop() {
	close(w.end)
	<-w.ended
	w.close()
}

func (w *watch) close() {
	for _, fds := range w.counters {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// between returns how many system calls and wake-ups there were from one time to another. It is called after stop.
func (w *watch) between(from, to time.Time) (calls, wakes float64) {
	at := func(t time.Time) reading {
		i := sort.Search(len(w.readings), func(i int) bool { return !w.readings[i].at.Before(t) })
		return w.readings[min(i, len(w.readings)-1)]
	}
	a, b := at(from), at(to)
	return b.counts[0] - a.counts[0], b.counts[1] - a.counts[1]
}
