package abi

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// bell wakes the goroutines that wait for descriptors of a local connection (Local): for its two sockets, and for the
// Files that its ends have made or received. All of them try again when it rings, and each call that may have changed
// what a descriptor is ready for rings it. So they wait for a channel, which testing/synctest knows, and not in the
// poller of Go's runtime, which it does not.
//
// Other connections have none. The methods of a nil bell use the poller, and do no more than without it.
type bell struct {
	tell func(func()) // see NewLocal

	mu   sync.Mutex
	rung chan struct{} // closed by the next ring
}

func newBell(tell func(func())) *bell { return &bell{tell: tell, rung: make(chan struct{})} }

// ring wakes all who wait.
func (b *bell) ring() {
	if b != nil {
		b.tell(b.strike)
	}
}

func (b *bell) strike() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rung)
	b.rung = make(chan struct{})
}

// next returns a channel that is closed by the next ring.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}

// read calls try until it returns true, each time that the descriptor of raw may have become readable. The error is
// that the descriptor was closed, or that its deadline has passed.
func (b *bell) read(raw syscall.RawConn, try func(fd uintptr) bool) error {
	if b == nil {
		return raw.Read(try)
	}
	return b.wait(raw.Read, try)
}

// write is read for a descriptor that may have become writable.
func (b *bell) write(raw syscall.RawConn, try func(fd uintptr) bool) error {
	if b == nil {
		return raw.Write(try)
	}
	return b.wait(raw.Write, try)
}

func (b *bell) wait(do func(func(uintptr) bool) error, try func(fd uintptr) bool) error {
	for {
		rung, done := b.next(), false
		err := do(func(fd uintptr) bool {
			done = try(fd)
			return true // without waiting
		})
		if done || err != nil {
			return err
		}
		<-rung
	}
}

// send sends a message with control data on a socket.
func (b *bell) send(s syscall.Conn, message, oob []byte) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	defer b.ring()
	waitErr := b.wait(raw.Write, func(fd uintptr) bool {
		_, _, _, err = rawMessage(unix.SYS_SENDMSG, fd, message, oob, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return err != unix.EAGAIN
	})
	return cmp.Or(waitErr, err)
}

// receive receives a message with control data from a socket.
func (b *bell) receive(s syscall.Conn, message, oob []byte) (n, oobn, flags int, err error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	defer b.ring() // there is room for more
	waitErr := b.wait(raw.Read, func(fd uintptr) bool {
		n, oobn, flags, err = rawMessage(unix.SYS_RECVMSG, fd, message, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return err != unix.EAGAIN
	})
	return n, oobn, flags, cmp.Or(waitErr, err)
}

// File is a non-blocking descriptor that one end of a Conn has made for it or has received by it. Who waits for a File
// waits as for its Conn.
type File struct {
	*os.File
	fd   int
	bell *bell
}

// NewFile returns the File of a descriptor, which it owns.
func (c *Conn) NewFile(fd int, name string) *File {
	return &File{os.NewFile(uintptr(fd), name), fd, c.bell}
}

// Read waits until there is something to read.
func (f *File) Read(b []byte) (int, error) {
	if f.bell == nil {
		return f.File.Read(b)
	}
	return f.call(f.AwaitRead, unix.SYS_READ, b)
}

// Write waits until there is room.
func (f *File) Write(b []byte) (int, error) {
	if f.bell == nil {
		return f.File.Write(b)
	}
	return f.call(f.AwaitWrite, unix.SYS_WRITE, slices.Clone(b)) // so that b does not escape in production
}

// call makes a system call when it does not block.
func (f *File) call(await func(func(uintptr) bool) error, trap uintptr, b []byte) (n int, err error) {
	defer f.bell.ring()
	waitErr := await(func(fd uintptr) bool {
		n, err = rawCall(trap, fd, b, 0)
		return err != unix.EAGAIN
	})
	return n, cmp.Or(waitErr, err)
}

// TrySend sends a message on a socket, if that does not block: else the error is EAGAIN. It may be called within
// AwaitWrite, and by one goroutine at a time; the File must not be closed meanwhile.
func (f *File) TrySend(message []byte) error {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if f.bell == nil {
		return unix.Sendto(f.fd, message, flags, nil)
	}
	_, err := rawCall(unix.SYS_SENDTO, uintptr(f.fd), message, flags)
	if err == nil { // else who waits, the caller for example, would try again for ever
		f.bell.ring()
	}
	return err
}

// Close closes the descriptor.
func (f *File) Close() error {
	err := f.File.Close()
	f.bell.ring()
	return err
}

// AwaitRead calls try, with the descriptor, until it returns true: each time that the descriptor has become readable,
// or has failed. It returns an error when the File is closed.
func (f *File) AwaitRead(try func(fd uintptr) bool) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return f.bell.read(raw, try)
}

// AwaitWrite is AwaitRead for a descriptor that has become writable, or has failed.
func (f *File) AwaitWrite(try func(fd uintptr) bool) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return f.bell.write(raw, try)
}
