package linktest

import (
	"fmt"
	"os"
	"strings"
)

// Listens reports whether there is a socket at a port in the network namespace of a process: one of TCP that accepts
// connections, or one of UDP.
func Listens(pid, port int) bool {
	const listen, closed = "0A", "07" // TCP_LISTEN; TCP_CLOSE, which a socket of UDP is in that has no peer
	local := fmt.Sprintf(":%04X", port)
	for file, state := range map[string]string{"tcp": listen, "tcp6": listen, "udp": closed, "udp6": closed} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err != nil {
			continue // it has just ended
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], local) && f[3] == state {
				return true
			}
		}
	}
	return false
}
