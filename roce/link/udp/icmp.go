package udp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// The kernel keeps ICMP errors about packets that a socket has sent in the socket's error queue (IP_RECVERR), and
// reports each once more as the error of a later call that has nothing to do with it. So a call that fails, or a Wait
// that an error has ended, is followed by a look into the queue, and a message that was not sent because of it is sent
// again (sock.Outbox).

// maxErrorPayload is how much of the rejected packet is read: nothing of it is used.
const maxErrorPayload = 1

// extendedErr is struct sock_extended_err of linux/errqueue.h.
type extendedErr struct {
	errno               uint32
	origin, typ, code   uint8
	_                   uint8
	info, unusedPadding uint32
}

// Values of extendedErr.origin.
const (
	originICMP  = 2
	originICMP6 = 3
)

// errorsMost bounds the errors that readErrors reads. Anybody may send ICMP messages, as fast as they can be read.
const errorsMost = 64

// readErrors reads the next errors in the error queue of a socket, and tells Options.OnError of each peer that cannot
// be reached.
func (c *conn) readErrors(s *socket) {
	var payload [maxErrorPayload]byte
	var control [256]byte
	for range errorsMost {
		_, n, _, from, err := unix.Recvmsg(s.fd, payload[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		if errno := errorOf(control[:n]); errno != 0 && c.onError != nil {
			c.onError(peerOf(from), errno)
		}
	}
}

// readAllErrors is readErrors for all sockets.
func (c *conn) readAllErrors() {
	c.sockets.Lock()
	defer c.sockets.Unlock()
	for _, s := range c.rx.socks {
		c.readErrors(s)
	}
}

// errorOf returns the error number of an ICMP message that says that a peer cannot be reached; 0 for other messages, as
// the one that a packet was too long.
func errorOf(control []byte) syscall.Errno {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		is4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		is6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if !is4 && !is6 || len(m.Data) < int(unsafe.Sizeof(extendedErr{})) {
			continue
		}
		e := (*extendedErr)(unsafe.Pointer(&m.Data[0]))
		if e.origin != originICMP && e.origin != originICMP6 {
			continue
		}
		switch errno := syscall.Errno(e.errno); errno {
		case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EHOSTDOWN:
			return errno
		}
	}
	return 0
}

// peerOf returns the destination of the rejected packet.
func peerOf(from unix.Sockaddr) ib.GID {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return mapped(a.Addr)
	case *unix.SockaddrInet6:
		return a.Addr
	}
	return ib.GID{}
}
