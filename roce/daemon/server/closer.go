package server

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// closer closes the files that the clients of one user have sent. A client can make that block
// for any time: closing a socket can wait for its peer (SO_LINGER), and closing a file calls its
// file system, which can be a program of the client (FUSE). Meanwhile a thread is blocked. Each
// user has a few threads for all its clients; further closes are queued.
//
// The kernel closes a file when its last reference ends. That may be in
//   - close(2) of a connection where a message with descriptors lies unread,
//   - recvmsg(2) of a message with descriptors, if the process can have no more of them,
//   - close(2) of a descriptor that has come with a message.
//
// A closer does all three. abi.Conn.Await tells whether a message carries descriptors before the
// message is received.
//
// A signal interrupts a thread that waits for a peer, so threads that block for long get one
// (nudged). It does not interrupt the wait for a file system. Only the third call can wait for
// one, so it has a pool of its own (files): connections are closed whatever a client does.
type closer struct {
	conns, files pool

	mu     sync.Mutex
	taken  int      // messages whose descriptors closeFiles has yet to close
	parked []func() // receive a message each; run when taken falls below mostTaken
}

const (
	mostTaken   = 16 // messages of a user whose descriptors may wait in closeFiles; no more are received then
	mostWaiting = 64 // jobs that may wait (closer.waiting) before new connections of the user are refused
)

// allConns and allFiles bound the threads for all users together, since one person may have many
// user IDs (subuid(5)).
var allConns, allFiles = make(chan struct{}, 64), make(chan struct{}, 192)

func newCloser() *closer { return &closer{conns: pool{all: allConns}, files: pool{all: allFiles}} }

// closeConn runs f, which closes a connection, on the pool for connections.
func (c *closer) closeConn(f func()) { c.conns.do(f) }

// take runs f, which receives a message with descriptors; its caller passes those to closeFiles
// later. While the descriptors of mostTaken messages wait in closeFiles, f is parked. Messages that
// were received, but not passed to closeFiles yet, do not count: each connection has one at most.
func (c *closer) take(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken < mostTaken {
		c.conns.do(f)
	} else {
		c.parked = append(c.parked, f)
	}
}

// closeFiles closes the descriptors of a message on the pool for files, and then calls then.
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

// closed notes that the descriptors of a message are closed, and runs parked functions.
func (c *closer) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken--
	for len(c.parked) > 0 && c.taken < mostTaken {
		c.conns.do(pop(&c.parked))
	}
}

// waiting returns how many connections wait to be closed, or for a message to be received.
func (c *closer) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parked) + c.conns.waiting()
}

// pool runs functions on at most mostWorkers goroutines, each with a thread of its own. The
// goroutines end when the queue is empty.
type pool struct {
	all chan struct{} // a semaphore: bounds the busy threads of all pools of a kind

	mu      sync.Mutex
	queue   []func()
	workers int
}

// mostWorkers is how many threads a pool has at most.
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

// next returns the next function; nil if the queue is empty: then the calling goroutine ends.
func (p *pool) next() (f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.workers--
		return nil
	}
	return pop(&p.queue)
}

// pop removes the first function of a queue, and clears its slot for the garbage collector.
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

// A thread gets its first signal after firstNudge. The interval doubles each time, up to mostNudge.
const (
	firstNudge = time.Millisecond
	mostNudge  = time.Second
)

// nudged calls f, and sends signals to its thread if f takes long. The signal is SIGURG, which
// Go's runtime uses itself for preemption, so it tolerates one from elsewhere.
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
