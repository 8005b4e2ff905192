package layering

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clock is what reads a clock of package time or waits for one. Contexts with a limit are not counted: what they end
// goes on to the end of its own.
var clock = []string{"Now", "Sleep", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// clockReads returns which of these a file uses.
func clockReads(t *testing.T, file string) []string {
	t.Helper()
	return slices.DeleteFunc(selected(parse(t, file), "time"), func(name string) bool {
		return !slices.Contains(clock, name)
	})
}

// aboveDevice are the packages of which TestRealClock looks at all files.
var aboveDevice = []string{"roce/remote", "roce/rdmacm", "roce/rsocket", "roce/daemon/", "cmd/goroced", "internal/"}

// realClock has the files above the device that read the machine's clock, each with the reason why a simulation cannot
// hold it. Files of the packages in simulated are not here: within a simulation package time shows virtual time, so
// they may read it, and their tests see all that depends on it in no time.
var realClock = map[string]string{
	"roce/daemon/client/control.go":           "limits the wait for another process, the daemon",
	"roce/daemon/dropin/build.go":             "looks again and again whether another process has unlocked a directory",
	"roce/daemon/internal/procmem/procmem.go": "a PID of the kernel stays valid for a while after a look",
	"roce/daemon/internal/yield/yield.go":     "measures how long the kernel keeps a thread that yields",
	"roce/daemon/server/closer.go":            "sends signals to a thread that hangs in the kernel",
	"roce/daemon/server/descriptors.go":       "pauses while the system has no descriptors",
	"roce/daemon/server/failures.go":          "the time of day at which a queue pair has failed, for people",
	"roce/daemon/server/idle.go":              "the time since the last client; its test is in a bubble",
	"roce/daemon/server/inspect.go":           "pauses between locks of shards, whose threads go on meanwhile",
	"roce/daemon/server/receive.go":           "limits the wait for the kernel to close descriptors",
	"roce/daemon/server/reply.go":             "limits how long replies may lie unread in a socket",
	"roce/daemon/server/seal.go":              "limits the wait for the kernel to seal a file",
	"roce/daemon/server/server.go":            "limits the wait for threads that hang in the kernel",
	"roce/daemon/server/visit.go":             "for how long a process was there, for people",

	"internal/socket/connect.go": "waits for room in the queue of a socket",

	"cmd/goroced/daemon.go": "when the daemon has started, for people",
	"cmd/goroced/port.go":   "since when a port is as it is, for people",
	"cmd/goroced/view.go":   "pauses between looks at a daemon",

	tool + "top/sample.go":    "rates of a daemon that runs",
	tool + "admin/why.go":     "deadline of a socket",
	tool + "admin/server.go":  "deadline of a socket",
	tool + "demo/measure.go":  "measures the machine",
	tool + "demo/pair.go":     "polls a device on the machine's network",
	tool + "demo/record.go":   "time stamps of packets on the machine's network",
	tool + "doctor/ask.go":    "measures how long a peer's answers take",
	tool + "doctor/echo.go":   "measures how long a peer's answers take; limits the wait for the kernel",
	tool + "doctor/probe.go":  "deadline of a socket",
	tool + "launch/daemon.go": "looks again and again whether another process has started, or ended",
	tool + "meet/meet.go":     "deadline of a socket",
	tool + "meet/serve.go":    "deadline of a client of a socket; perf and pingpong run it with roce/simtest",
	tool + "serve/http.go":    "limits the wait for shards; its test is in a bubble",
	tool + "serve/notify.go":  "systemd's watchdog",
	tool + "serve/peer.go":    "deadline of a socket",
}

// TestRealClock: what is above the device runs in simulations, or has a reason to read the machine's clock.
func TestRealClock(t *testing.T) {
	unused := maps.Clone(realClock)
	for name, p := range list(t) {
		above := slices.ContainsFunc(aboveDevice, func(s string) bool { return strings.HasPrefix(name, s) })
		if !above || inSimulations(name) {
			continue
		}
		paths, err := filepath.Glob(filepath.Join(p.Dir, "*.go")) // those of other systems, too
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			file, reads := name+"/"+filepath.Base(path), clockReads(t, path)
			switch {
			case len(reads) == 0, strings.HasSuffix(path, "_test.go"):
			case realClock[file] == "":
				t.Errorf("%s uses time.%s: test the package with roce/simtest and list it in simulated, or list the "+
					"file, with the reason, in realClock", file, strings.Join(reads, ", time."))
			default:
				delete(unused, file)
			}
		}
	}
	for file := range unused {
		t.Errorf("%s is listed in realClock and reads no clock, or is in a package of tier T1: remove it from the list",
			file)
	}
}
