package server

import (
	"errors"
	"io"
	"time"

	"github.com/goroce/goroce/roce/abi"
)

// foreign closes the descriptors that a client has sent, on a goroutine of its own: to
// close what is behind them takes as long as the client wants (a socket that lingers, a
// file system of its own). It is its session's.
type foreign struct {
	queue chan []int // nil until there are any
	last  []int      // that the queue has not taken
	done  chan struct{}
}

// foreignLimit is how long descriptors may take to close before the client is dropped.
const foreignLimit = time.Second

func (f *foreign) close(fds []int) error {
	if len(fds) == 0 {
		return nil
	}
	if f.queue == nil {
		f.queue, f.done = make(chan []int, 16), make(chan struct{})
		go f.run()
	}
	select {
	case f.queue <- fds:
		return nil
	default:
	}
	select {
	case f.queue <- fds:
		return nil
	case <-time.After(foreignLimit):
		f.last = fds
		return errors.New("the client's descriptors do not close")
	}
}

func (f *foreign) run() {
	defer close(f.done)
	for fds := range f.queue {
		abi.CloseAll(fds)
	}
	abi.CloseAll(f.last)
}

// end closes the connection too, with what lies in it unread, and calls then when all is
// closed, without waiting for that.
func (f *foreign) end(conn io.Closer, then func()) {
	if f.queue != nil {
		close(f.queue)
	}
	go func() {
		_ = conn.Close()
		if f.done != nil {
			<-f.done
		}
		then()
	}()
}
