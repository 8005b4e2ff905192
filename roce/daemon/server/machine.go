package server

import (
	"os"
	"strconv"
	"strings"
)

// A process may have so many mappings (vm.max_map_count). One more makes mmap(2) fail, which
// Go's runtime does not survive; so clients, whose rings and memfds are mapped, have a part of
// them together. A user may have as many as are left for all others: half of them if it is
// alone, and whoever comes later finds some.

// usualMaps is Linux's default, DEFAULT_MAX_MAP_COUNT.
const usualMaps = 65530

// clientMappings returns how many mappings clients may have: a quarter stays for the rest of
// the process. Where /proc/sys is hidden (ProcSubset=pid of the unit) the default counts.
func clientMappings() int64 {
	most := int64(usualMaps)
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			most = n
		}
	}
	return most - most/4
}
