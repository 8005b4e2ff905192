package abi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// Conn is a control socket of type SOCK_SEQPACKET, with one message in each packet. One goroutine
// may Send while another one Receives.
type Conn struct {
	*net.UnixConn
	in   []byte
	oob  []byte
	from []byte // room for the sender of a message; nil unless the kernel tells
	bell *bell  // of a connection within this process; nil for others
}

// maxRights is how many descriptors the kernel allows in a message (SCM_MAX_FD). Conn has room
// for all of them: the kernel would close those without room at once, which may take long.
const maxRights = 253

// NewConn returns the Conn on c.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{UnixConn: c, in: make([]byte, MaxMessage),
		oob: make([]byte, unix.CmsgSpace(4*maxRights)+unix.CmsgSpace(unix.SizeofUcred))}
}

// TellSenders has the kernel tell of each message that is sent from now on which process sends it (SO_PASSCRED), for
// Await.
func (c *Conn) TellSenders() error {
	if err := tellSenders(c.UnixConn); err != nil {
		return err
	}
	c.from = make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	return nil
}

func tellSenders(s syscall.Conn) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	})
	return errors.Join(controlErr, os.NewSyscallError("setsockopt", err))
}

// Send sends a message with descriptors. The caller still closes its own copies of them.
func (c *Conn) Send(h Header, body []byte, fds ...int) error {
	message := append(Put(make([]byte, 0, HeaderLen+len(body)), &h), body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := c.send(message, rights); err != nil {
		return fmt.Errorf("%v: %w", h.Op, err)
	}
	return nil
}

func (c *Conn) send(message, oob []byte) (err error) {
	if c.bell != nil {
		return c.bell.send(c, message, oob)
	}
	_, _, err = c.WriteMsgUnix(message, oob, nil)
	return err
}

// SetDeadline sets the time at which calls that wait return an error that matches os.ErrDeadlineExceeded. For a
// connection within this process a time that is past does, others are not supported.
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.UnixConn.SetDeadline(t)
	c.bell.ring()
	return err
}

// Close closes the connection.
func (c *Conn) Close() error {
	err := c.UnixConn.Close()
	c.bell.ring()
	return err
}

// Await waits for the next message, without receiving it, or for the end of the connection. sender is the process that
// has sent the message; nil without TellSenders, and at the end. Its Pid is 0 if this process does not see it, or if it
// had sent before TellSenders was called. rights reports whether the message carries descriptors.
func (c *Conn) Await() (sender *unix.Ucred, rights bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	var first [1]byte
	var n, flags int
	waitErr := c.bell.read(raw, func(fd uintptr) bool {
		for err = unix.EINTR; err == unix.EINTR; {
			n, flags, err = c.peek(fd, first[:])
		}
		return err != unix.EAGAIN
	})
	switch {
	case waitErr != nil:
		return nil, false, waitErr
	case err != nil:
		return nil, false, err
	}
	return senderOf(c.from[:n]), flags&unix.MSG_CTRUNC != 0, nil // descriptors are cut off: there is no room for them
}

// peek looks at the next message, of which it returns the length of the control data, and the flags.
func (c *Conn) peek(fd uintptr, first []byte) (oobn, flags int, err error) {
	const peek = unix.MSG_PEEK | unix.MSG_DONTWAIT
	if c.bell != nil {
		_, oobn, flags, err = rawMessage(unix.SYS_RECVMSG, fd, first, c.from, peek)
	} else {
		_, oobn, flags, _, err = unix.Recvmsg(int(fd), first, c.from, peek)
	}
	return oobn, flags, err
}

// senderOf returns the sender that control data names.
func senderOf(oob []byte) *unix.Ucred {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	who, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil {
		return nil
	}
	return who
}

// ErrDescriptors means that the process had no free descriptors for those that a message carried.
var ErrDescriptors = fmt.Errorf("the process has no descriptors left for those of the message: %w", ib.ErrLimit)

// Receive returns the next message. The body is valid until the next call. The caller closes the
// descriptors, also those that come with an error; they are close-on-exec. io.EOF means that the
// other end has closed the connection. With ErrDescriptors the header is valid, and the
// connection can be used further. A malformed message gives another error, after which the
// connection is unusable.
func (c *Conn) Receive() (h Header, body []byte, fds []int, err error) {
	n, oobn, flags, err := c.receive()
	if errors.Is(err, unix.ECONNRESET) { // the peer closed with our data unread; its last message can still be read
		n, oobn, flags, err = c.receive()
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

func (c *Conn) receive() (n, oobn, flags int, err error) {
	if c.bell != nil {
		return c.bell.receive(c, c.in, c.oob)
	}
	n, oobn, flags, _, err = c.ReadMsgUnix(c.in, c.oob)
	return n, oobn, flags, err
}

// receivedFDs extracts the descriptors from control messages.
func receivedFDs(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if messages[i].Header.Type == unix.SCM_CREDENTIALS {
			continue
		}
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
