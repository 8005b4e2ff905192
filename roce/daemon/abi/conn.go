package abi

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// Conn is a control socket: SOCK_SEQPACKET, a message a packet. One goroutine may
// Send and another Receive at a time.
type Conn struct {
	*net.UnixConn
	in  []byte
	oob []byte
}

// maxRights is how many descriptors the kernel lets a message have (SCM_MAX_FD). There is room
// for all: what it has to leave out it closes at once, which may take long.
const maxRights = 253

// NewConn returns the Conn on c.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{UnixConn: c, in: make([]byte, MaxMessage), oob: make([]byte, unix.CmsgSpace(4*maxRights))}
}

// Send sends a message, and descriptors with it, which stay the caller's.
func (c *Conn) Send(h Header, body []byte, fds ...int) error {
	message := append(Put(make([]byte, 0, HeaderLen+len(body)), &h), body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(message, rights, nil); err != nil {
		return fmt.Errorf("%v: %w", h.Op, err)
	}
	return nil
}

// Await waits for the next message, which it leaves where it is, or for the end of the
// connection. rights says that descriptors come with it.
func (c *Conn) Await() (rights bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false, err
	}
	waitErr := raw.Read(func(fd uintptr) bool {
		var flags int
		for err = unix.EINTR; err == unix.EINTR; {
			_, _, flags, _, err = unix.Recvmsg(int(fd), nil, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		}
		rights = flags&unix.MSG_CTRUNC != 0 // there is no room for what the message brings
		return err != unix.EAGAIN
	})
	if waitErr != nil {
		return false, waitErr
	}
	return rights, err
}

// ErrDescriptors: the kernel had no descriptors left for those that came with a message.
var ErrDescriptors = fmt.Errorf("the process has no descriptors left for those of the message: %w", ib.ErrLimit)

// Receive returns the next message. The body is valid until the next call; the
// descriptors are the caller's, close-on-exec, those that come with an error too. io.EOF
// says that the other end is gone. With ErrDescriptors the header is right, and the
// connection goes on. A message that is no message is another error, and the connection of
// no more use.
func (c *Conn) Receive() (h Header, body []byte, fds []int, err error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(c.in, c.oob)
	if errors.Is(err, unix.ECONNRESET) { // it was closed before it had read what we sent; its last words are still here
		n, oobn, flags, _, err = c.ReadMsgUnix(c.in, c.oob)
	}
	fds, rights := receivedFDs(c.oob[:oobn])
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case rights != nil:
		err = rights
	case flags&unix.MSG_TRUNC != 0 || len(fds) > MaxFDs:
		err = fmt.Errorf("a message of more than %d bytes or %d descriptors", MaxMessage, MaxFDs)
	case n < HeaderLen:
		err = fmt.Errorf("a message of %d bytes, less than the %d of its header", n, HeaderLen)
	default:
		h, err = Get[Header](c.in[:HeaderLen])
		if err == nil && flags&unix.MSG_CTRUNC != 0 {
			err = ErrDescriptors
		}
		return h, c.in[HeaderLen:n], fds, err
	}
	return Header{}, nil, fds, err
}

// receivedFDs takes the descriptors out of control messages.
func receivedFDs(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		more, rightsErr := unix.ParseUnixRights(&messages[i])
		fds, err = append(fds, more...), errors.Join(err, rightsErr)
	}
	return fds, err
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
