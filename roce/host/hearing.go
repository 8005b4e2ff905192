package host

import (
	"sync/atomic"
	"syscall"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
)

// hearing passes the ICMP errors that links receive on to their device, which is made after them.
type hearing struct{ dev atomic.Pointer[roce.Device] }

// unreachable is udp.Options.OnError.
func (h *hearing) unreachable(peer ib.GID, errno syscall.Errno) {
	if dev := h.dev.Load(); dev != nil {
		(*dev).Unreachable(peer, int(errno))
	}
}
