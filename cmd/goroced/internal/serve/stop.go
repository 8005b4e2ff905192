package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrActivated says that a service manager has made the socket of a daemon, and starts another one at once.
var ErrActivated = errors.New("the socket is the service manager's; `systemctl stop goroced.socket goroced` ends both")

// Stop tells the daemon at the other end of a connection to its admin socket to end, as SIGTERM does, and waits until
// its process is gone. It returns which process that was. The caller closes the connection.
func Stop(ctx context.Context, conn *net.UnixConn) (*Peer, error) {
	peer, err := peerOf(conn)
	if err != nil {
		return nil, fmt.Errorf("stop the daemon: %w", err)
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", peer.PID)) // "" if it has just ended
	if strings.HasPrefix(string(name), "systemd") {
		return nil, fmt.Errorf("stop the daemon: %w", ErrActivated)
	}
	process, err := unix.PidfdOpen(peer.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return peer, nil
	}
	if err == nil {
		defer unix.Close(process)
		err = unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("stop the daemon, process %d of user %d: %w", peer.PID, peer.UID, err)
	}
	for {
		fds := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, int(lookAgain.Milliseconds())); n > 0 {
			return peer, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("process %d has been told to end, and has clients still: %w", peer.PID,
				context.Cause(ctx))
		}
	}
}

// lookAgain is how often Stop looks at its context.
const lookAgain = 100 * time.Millisecond
