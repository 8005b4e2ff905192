package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// ErrGone: the daemon has ended, or has ended the connection. All objects are gone
// with it; Dial again.
var ErrGone = errors.New("the daemon is gone")

// patience is how long the daemon may take to answer.
const patience = 30 * time.Second

// control is the connection's request side: one request after another.
type control struct {
	conn *abi.Conn
	gone chan struct{} // closed when the daemon is

	mu      sync.Mutex
	seq     uint32
	answers chan answer
}

type answer struct {
	header abi.Header
	body   []byte
	fds    []int
}

func newControl(c *net.UnixConn) *control {
	l := &control{conn: abi.NewConn(c), gone: make(chan struct{}), answers: make(chan answer, 1)}
	go l.listen()
	return l
}

// listen takes answers, and notices when there will be no more: requests or not.
func (l *control) listen() {
	defer close(l.gone)
	for {
		h, body, fds, err := l.conn.Receive()
		if err != nil {
			abi.CloseAll(fds)
			return
		}
		select {
		case l.answers <- answer{h, slices.Clone(body), fds}:
		default: // it answers what nobody has asked
			abi.CloseAll(fds)
			return
		}
	}
}

// do sends a request and returns the body of the reply and its descriptors, which are
// the caller's.
func (l *control) do(op abi.Op, body []byte, fds ...int) ([]byte, []int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	err := l.conn.Send(abi.Header{Op: op, Seq: l.seq}, body, fds...)
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err,
		unix.ECONNRESET) { // which may follow its last words
		return nil, nil, fmt.Errorf("%v: %w", op, ErrGone)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case a := <-l.answers:
		return l.take(op, a)
	case <-l.gone:
		select {
		case a := <-l.answers: // its last words
			return l.take(op, a)
		default:
			return nil, nil, fmt.Errorf("%v: %w", op, ErrGone)
		}
	case <-timeout.C:
		l.close()
		return nil, nil, fmt.Errorf("%v: no answer within %v: %w", op, patience, ErrGone)
	}
}

// take returns the body and the descriptors of what must be the answer to the latest
// request.
func (l *control) take(op abi.Op, a answer) ([]byte, []int, error) {
	refused := op == abi.OpHello && a.header.Seq == 0 && a.header.Status != abi.OK // before it has read anything
	switch {
	case a.header.Op != op || a.header.Seq != l.seq && !refused:
		abi.CloseAll(a.fds)
		l.close()
		return nil, nil, fmt.Errorf("%v: the daemon answers %v %d, not %d: %w", op, a.header.Op, a.header.Seq, l.seq,
			ErrGone)
	case a.header.Status != abi.OK:
		abi.CloseAll(a.fds)
		return nil, nil, abi.GetError(a.body, a.header.Status)
	}
	return a.body, a.fds, nil
}

func (l *control) close() { _ = l.conn.Close() }

// dead reports whether the daemon is gone.
func (l *control) dead() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// ask is do with a body and a reply of fixed types, and n descriptors with it.
func ask[Reply, Request any](l *control, op abi.Op, r Request, n int, give ...int) (reply Reply, fds []int, err error) {
	body, fds, err := l.do(op, abi.Put(nil, &r), give...)
	if err == nil {
		reply, err = abi.Get[Reply](body)
	}
	if err == nil && len(fds) != n {
		err = fmt.Errorf("%v: %d descriptors came, not %d: %w", op, len(fds), n, io.ErrUnexpectedEOF)
	}
	if err != nil {
		abi.CloseAll(fds)
		return reply, nil, err
	}
	return reply, fds, nil
}

// tell is ask for requests whose reply has no body.
func tell[Request any](l *control, op abi.Op, r Request) error {
	_, fds, err := l.do(op, abi.Put(nil, &r))
	abi.CloseAll(fds)
	return err
}
