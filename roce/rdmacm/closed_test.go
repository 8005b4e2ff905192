package rdmacm_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// hooked is a device that calls a function when its GIDs are asked for: whenever a route is resolved.
type hooked struct {
	*counter
	hook func()
}

func (h *hooked) GIDs(port int) ([]ib.GIDEntry, error) {
	h.hook()
	return h.counter.GIDs(port)
}

// TestClosedWhileAskingAgain: the application closes the Conn of Prepare while Dial makes the ID for a smaller path
// MTU. The new ID is closed, too.
func TestClosedWhileAskingAgain(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Config: rdmacm.Config{PathMTU: 256}})
		go func() { _, _ = l.Accept(patience(t)) }()
		must(t, a.cm.Close())
		var conn *rdmacm.Conn
		var err error
		a.cm, err = rdmacm.Open(&hooked{newCounter(a.dev), func() {
			if conn != nil {
				must(t, conn.Close())
			}
		}}, rdmacm.Options{})
		must(t, err)
		_, err = a.cm.Dial(patience(t), l.Addr().String(), rdmacm.Config{Prepare: func(c *rdmacm.Conn) error {
			conn = c
			return nil
		}})
		if !errors.Is(err, ib.ErrClosed) {
			t.Errorf("Dial returned %v, want ErrClosed", err)
		}
		require.Until(t, "nothing is left", a.cm.Idle)
	})
}

// unanswered is a link that tells of the first frame that is no message of the connection manager, and sends none.
type unanswered struct {
	link.Link
	once sync.Once
	data chan struct{} // closed with the first
}

func (u *unanswered) Send(now ib.Instant, runs []link.Run) (int, error) {
	var messages []link.Run
	for _, r := range runs {
		if _, ok := cmMessage(r.Frame(0)); ok {
			messages = append(messages, r)
			continue
		}
		u.once.Do(func() { close(u.data) })
	}
	if _, err := u.Link.Send(now, messages); err != nil {
		return 0, err
	}
	return len(runs), nil
}

// TestCloseUnconfirmedMemory: the listener closes a connection that its peer has not confirmed, while the application
// reads the peer's memory, which it has from Prepare.
func TestCloseUnconfirmedMemory(t *testing.T) {
	u := &unanswered{}
	wrapped := func(host int, l link.Link) link.Link {
		if host == 0 {
			return without(wire.AttrRTU)(l)
		}
		u.Link = l
		return u
	}
	simulateOn(t, simtest.Config{Wrap: wrapped}, func(t *testing.T, hosts []*node) {
		a, b := hosts[0], hosts[1]
		u.data = make(chan struct{})
		read := make(chan error, 1)
		prepare := func(c *rdmacm.Conn) error {
			m, err := c.Memory(ib.RemoteBuffer{Length: 8})
			if err != nil {
				return err
			}
			go func() {
				for q, err := c.QP().Query(); err == nil && q.State != ib.StateRTS; q, err = c.QP().Query() {
					time.Sleep(time.Microsecond)
				}
				_, err := m.ReadAt(patience(t), make([]byte, 8), 0)
				read <- err
			}()
			return nil
		}
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Config: rdmacm.Config{Prepare: prepare}})
		accepted := make(chan error, 1)
		go func() { _, err := l.Accept(patience(t)); accepted <- err }()
		c, err := a.cm.Dial(patience(t), l.Addr().String(), rdmacm.Config{AckTimeout: 31})
		must(t, err)
		<-u.data
		must(t, l.Close())
		if err := <-read; err == nil {
			t.Error("the read succeeded")
		}
		if err := <-accepted; !errors.Is(err, ib.ErrClosed) {
			t.Errorf("Accept returned %v, want ErrClosed", err)
		}
		must(t, c.Close())
	})
}
