package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// ErrGone means that the daemon has ended, or has closed the connection. All objects are lost;
// call Dial again.
var ErrGone = errors.New("the daemon is gone")

// patience is how long the daemon may take to answer.
const patience = 30 * time.Second

// control sends requests on the connection, one after another.
type control struct {
	conn *abi.Conn
	gone chan struct{} // closed when the connection ends

	turn    turn // held for a request and its answer; guards seq
	seq     uint32
	answers chan answer
}

type answer struct {
	header abi.Header
	body   []byte
	fds    []int
}

func newControl(c *abi.Conn) *control {
	l := &control{conn: c, gone: make(chan struct{}), turn: newTurn(), answers: make(chan answer, 1)}
	go l.listen()
	return l
}

// listen receives answers. It also notices the end of the connection while there is no request. When it returns the
// connection is closed, so that the daemon keeps nothing for a client that takes it to be gone.
func (l *control) listen() {
	defer close(l.gone)
	defer l.close()
	for {
		h, body, fds, err := l.conn.Receive()
		if err != nil {
			abi.CloseAll(fds)
			fds = nil
		}
		if err != nil && !errors.Is(err, abi.ErrDescriptors) { // with these the answer is there, see ask
			return
		}
		select {
		case l.answers <- answer{h, slices.Clone(body), fds}:
		default: // an answer without a request
			abi.CloseAll(fds)
			return
		}
	}
}

// do sends a request and returns the body of the reply and its descriptors, which the caller
// closes.
func (l *control) do(op abi.Op, body []byte, fds ...int) ([]byte, []int, error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.seq++
	err := l.conn.Send(abi.Header{Op: op, Seq: l.seq}, body, fds...)
	over := errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed)
	if err != nil && !over { // else the daemon has closed, and a last answer may still be unread
		l.close()
		return nil, nil, fmt.Errorf("%v: %w", op, ErrGone)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case a := <-l.answers:
		return l.take(op, a)
	case <-l.gone:
		select {
		case a := <-l.answers: // sent before the daemon closed
			return l.take(op, a)
		default:
			return nil, nil, fmt.Errorf("%v: %w", op, ErrGone)
		}
	case <-timeout.C:
		l.close()
		return nil, nil, fmt.Errorf("%v: no answer within %v: %w", op, patience, ErrGone)
	}
}

// take checks that a is the answer to the latest request, and returns its body and descriptors.
func (l *control) take(op abi.Op, a answer) ([]byte, []int, error) {
	refused := op == abi.OpHello && a.header.Seq == 0 && a.header.Status != abi.OK // without reading the hello
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

// distrust ends the connection because of an answer that this end cannot follow, for the reason err: the two ends do
// not agree any more on what there is.
func (l *control) distrust(err error) error {
	l.close()
	return fmt.Errorf("%w; the connection is closed: %w", err, ErrGone)
}

// dead reports whether the connection has ended.
func (l *control) dead() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// withSocket has the kinds of objects whose reply brings a descriptor, by the requests that make them.
var withSocket = map[abi.Op]abi.Kind{abi.OpCreateChannel: abi.KindChannel, abi.OpOpenCM: abi.KindCMChannel}

// ask is do with a request and a reply of fixed types. The reply must carry n descriptors. If the kernel has dropped
// them, because this process has no room for more, the object that they belong to is closed again.
func ask[Reply, Request any](l *control, op abi.Op, r Request, n int, give ...int) (reply Reply, fds []int, err error) {
	body, fds, err := l.do(op, abi.Put(nil, &r), give...)
	if err != nil {
		return reply, nil, err
	}
	reply, err = abi.Get[Reply](body)
	switch made, isObject := any(reply).(abi.Object); {
	case err == nil && len(fds) < n && isObject:
		abi.CloseAll(fds)
		return reply, nil, errors.Join(fmt.Errorf("%v: this process has no room for the descriptor (ulimit -n): %w", op,
			unix.EMFILE), tell(l, abi.OpClose, abi.Close{Handle: made.Handle, Kind: withSocket[op]}))
	case err == nil && len(fds) != n:
		err = fmt.Errorf("%v: %d descriptors came, not %d: %w", op, len(fds), n, io.ErrUnexpectedEOF)
	}
	if err != nil {
		abi.CloseAll(fds)
		return reply, nil, l.distrust(err)
	}
	return reply, fds, nil
}

// tell sends a request whose reply has no body.
func tell[Request any](l *control, op abi.Op, r Request) error {
	_, fds, err := l.do(op, abi.Put(nil, &r))
	abi.CloseAll(fds)
	return err
}
