package server

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// closer closes, for the clients of one user, the files that they have sent, which may take as
// long as a client likes: to close a socket can wait for its peer (SO_LINGER), and to close a
// file asks its file system, which can be a program of the client (FUSE). A thread is held
// meanwhile. A user has a few threads for all its clients, and what they cannot close yet waits.
//
// The kernel closes a file wherever its last reference ends. It does so in
//   - close(2) of a connection where a message with descriptors lies unread,
//   - recvmsg(2) of a message with descriptors, if the process can have no more of them,
//   - close(2) of a descriptor that has come with a message.
//
// All three take place in a closer. Whether a message brings descriptors is known before it
// is taken (abi.Conn.Await).
//
// A thread that waits for a peer stops waiting when it gets a signal, so those that take long
// get one (nudged). A file system that does not answer holds its thread all the same. It is
// asked by the third call only, which therefore has threads of its own: connections close
// whatever a client does.
type closer struct {
	conns, files pool

	mu     sync.Mutex
	taken  int      // messages whose descriptors wait to be closed
	parked []func() // messages that are not taken meanwhile
}

const (
	mostTaken   = 16 // messages of a user whose descriptors wait to be closed, before others are taken
	mostWaiting = 64 // connections that wait for it, before new ones are refused
)

// allConns and allFiles bound the threads of all users: a person may have many user IDs
// (subuid(5)).
var allConns, allFiles = make(chan struct{}, 64), make(chan struct{}, 192)

func newCloser() *closer { return &closer{conns: pool{all: allConns}, files: pool{all: allFiles}} }

// closeConn has f close a connection.
func (c *closer) closeConn(f func()) { c.conns.do(f) }

// take has f take a message with descriptors, which go to closeFiles then. It waits while
// many are there already.
func (c *closer) take(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken < mostTaken {
		c.conns.do(f)
	} else {
		c.parked = append(c.parked, f)
	}
}

// closeFiles closes the descriptors of a message, and calls then.
func (c *closer) closeFiles(fds []int, then func()) {
	if len(fds) == 0 {
		then()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken++
	c.files.do(func() {
		abi.CloseAll(fds)
		c.closed()
		then()
	})
}

// closed says that the descriptors of a message are closed.
func (c *closer) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken--
	for len(c.parked) > 0 && c.taken < mostTaken {
		c.conns.do(pop(&c.parked))
	}
}

// waiting returns how many connections wait to be closed, or to have a message taken.
func (c *closer) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parked) + c.conns.waiting()
}

// pool is a few goroutines, each with its thread, that do one thing after another. They are
// there while there is something to do.
type pool struct {
	all chan struct{} // has room for the threads of all pools of a kind

	mu      sync.Mutex
	queue   []func()
	workers int
}

// mostWorkers is how many threads a pool has.
const mostWorkers = 2

func (p *pool) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, f)
	if p.workers < mostWorkers {
		p.workers++
		go p.run()
	}
}

func (p *pool) run() {
	for f := p.next(); f != nil; f = p.next() {
		p.all <- struct{}{}
		nudged(f)
		<-p.all
	}
}

// next returns what is to be done; nil if there is nothing, and one goroutine less.
func (p *pool) next() (f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.workers--
		return nil
	}
	return pop(&p.queue)
}

// pop takes the first function off a queue, which lets go of what that refers to.
func pop(queue *[]func()) (f func()) {
	f, (*queue)[0] = (*queue)[0], nil
	*queue = (*queue)[1:]
	return f
}

func (p *pool) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// A thread gets a signal after firstNudge, and then after twice as long each time.
const (
	firstNudge = time.Millisecond
	mostNudge  = time.Second
)

// nudged calls f, and sends signals to its thread if that takes long. Go's runtime uses SIGURG
// itself, to interrupt threads, and expects to get it from elsewhere, too.
func nudged(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, ended := unix.Gettid(), make(chan struct{})
	defer close(ended)
	go func() {
		wait := firstNudge
		for timer := time.NewTimer(wait); ; timer.Reset(wait) {
			select {
			case <-timer.C:
				_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
				wait = min(2*wait, mostNudge)
			case <-ended:
				timer.Stop()
				return
			}
		}
	}()
	f()
}
