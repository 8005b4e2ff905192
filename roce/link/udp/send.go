package udp

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

// txBatch is the number of messages of one sendmmsg. It is at least runFrames, so that a run which is sent frame by
// frame fits.
const txBatch = 64

// defaultHops is the hop limit that the sockets are set to (options4, options6). It is also used for a hop limit of 0,
// with which no packet can be sent.
const defaultHops = 64

// cmsg is a control message with 4 bytes of data.
type cmsg struct {
	unix.Cmsghdr
	value int32
	_     int32
}

// cmsg16 is a control message with 2 bytes of data.
type cmsg16 struct {
	unix.Cmsghdr
	value uint16
	_     [6]byte
}

// txControl is the size of the control messages of one message. The kernel spends time on each, so those that a message
// does not need are left out: the segment size for a single frame, and marks that equal those of the socket.
const txControl = int(unsafe.Sizeof(cmsg16{}) + unsafe.Sizeof(marks{}))

// marks are the IP header fields of a message: hop limit and traffic class.
type marks struct{ hops, tos cmsg }

func intCmsg(level, typ int32, v int) cmsg {
	return cmsg{Cmsghdr: unix.Cmsghdr{Len: unix.SizeofCmsghdr + 4, Level: level, Type: typ}, value: int32(v)}
}

// segmentCmsg makes the kernel cut a message into packets of size bytes.
func segmentCmsg(size int) cmsg16 {
	return cmsg16{Cmsghdr: unix.Cmsghdr{Len: unix.SizeofCmsghdr + 2, Level: unix.IPPROTO_UDP, Type: unix.UDP_SEGMENT},
		value: uint16(size)}
}

// Send sends successive runs that use the same socket by one system call.
func (c *conn) Send(now ib.Instant, out []link.Run) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return 0, link.ErrClosed
	}
	c.sockets.Lock()
	defer c.sockets.Unlock()
	for taken := 0; taken < len(out); {
		s, why := c.socketFor(&out[taken])
		if s == nil {
			sock.Lose(&c.stats, int(runs.Count(&out[taken])), why)
			taken++
			continue
		}
		c.findShared(now, s)
		s.sendBy(s.direct(&out[taken]))
		stretch := c.fill(s, out[taken:])
		n := c.tx.Flush(s.fd, stretch, &c.stats)
		if c.tx.Failed {
			c.readErrors(s)
		}
		taken += n
		if n < stretch {
			return taken, nil
		}
	}
	return len(out), nil
}

// socketFor returns the socket for r, or why there is none.
func (c *conn) socketFor(r *link.Run) (*socket, string) {
	if why := runs.Refuse(&c.caps, r); why != "" {
		return nil, why
	}
	for i := range c.socks {
		if c.socks[i].local == r.Src {
			return c.socks[i], ""
		}
	}
	return nil, runs.NotOurs
}

// fill makes messages of the first runs that use s, leave by the same interface and fit. It returns the number of runs.
func (c *conn) fill(s *socket, out []link.Run) (stretch int) {
	c.tx.Reset()
	for ; stretch < len(out); stretch++ {
		r := &out[stretch]
		if stretch > 0 {
			if next, _ := c.socketFor(r); next != s || s.direct(r) != s.ownOnly {
				break
			}
		}
		frames := r.Frames()
		switch {
		case c.offload && c.tx.Room() > 0:
			c.message(c.tx.Add(stretch, frames, len(r.Buf)), s, r, r.Buf, frames)
		case !c.offload && c.tx.Room() >= frames:
			for i := range frames {
				f := r.Frame(i)
				c.message(c.tx.Add(stretch, 1, len(f)), s, r, f, 1)
			}
		default:
			return stretch
		}
	}
	return stretch
}

// message makes message i of p, which has that number of frames of r.
func (c *conn) message(i int, s *socket, r *link.Run, p []byte, frames int) {
	b := c.tx.Batch
	b.SetBuf(i, 0, p)
	if s.is4 {
		name := b.Name4(i)
		name.Port = portBE
		name.Addr = [4]byte(r.Dst[12:])
	} else {
		name := b.Name6(i)
		name.Port = portBE
		name.Addr = r.Dst
	}
	n := 0
	if frames > 1 {
		*(*cmsg16)(b.Control(i)) = segmentCmsg(r.Size)
		n = int(unsafe.Sizeof(cmsg16{}))
	}
	if r.HopLimit != 0 && r.HopLimit != defaultHops || r.TrafficClass != 0 {
		*(*marks)(unsafe.Add(b.Control(i), n)) = marksOf(s, r)
		n += int(unsafe.Sizeof(marks{}))
	}
	b.SetControlLen(i, n)
}

// marksOf returns the marks of r.
func marksOf(s *socket, r *link.Run) marks {
	hops, tos := int(r.HopLimit), int(r.TrafficClass)
	if hops == 0 {
		hops = defaultHops
	}
	if s.is4 {
		return marks{intCmsg(unix.IPPROTO_IP, unix.IP_TTL, hops), intCmsg(unix.IPPROTO_IP, unix.IP_TOS, tos)}
	}
	return marks{intCmsg(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, hops),
		intCmsg(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)}
}

// portBE is the destination port as a socket address holds it.
var portBE = binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, link.Port))
