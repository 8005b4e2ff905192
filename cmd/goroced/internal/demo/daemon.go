package demo

// Daemon selects a running daemon. The hosts are then two clients of it on the same device, so their packets do not
// leave the daemon.
type Daemon struct {
	Socket, Admin string // paths; "" is the default
	Device        string // "" is the first one
}

// packetStream is a capture of the packets between the hosts.
type packetStream struct {
	stop func()
	done chan struct{} // closed when the capture has ended
}

// close ends the capture.
func (c *packetStream) close() {
	if c != nil {
		c.stop()
		<-c.done
	}
}
