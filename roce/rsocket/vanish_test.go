package rsocket

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
)

// TestPeerGone takes the peer away, in all ways. Who waits gets an error: the writer from its retries, the reader from
// the keepalive.
func TestPeerGone(t *testing.T) {
	ways := map[string]func(*simtest.Host){
		"unplugged": (*simtest.Host).Unplug, "stopped": (*simtest.Host).Stop, "rebooted": (*simtest.Host).Reboot,
		"device closed": func(h *simtest.Host) { h.Device().Close() },
	}
	waits := map[string]func(*Conn) error{
		"Read":  func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"Write": func(c *Conn) error { _, err := c.Write(make([]byte, 1<<20)); return err },
	}
	for way, vanish := range ways {
		for op, wait := range waits {
			t.Run(op+" "+way, func(t *testing.T) {
				simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
					p := newPair(t, on(n), Options{KeepAlive: 10 * time.Millisecond})
					require.Until(t, "all to be acknowledged", func() bool { return idle(p.a) })
					vanish(n.Hosts[1])
					p.a.SetDeadline(time.Now().Add(time.Minute))
					err := wait(p.a)
					wc, _ := errors.AsType[*ib.WCError](err)
					if !errors.Is(err, syscall.ECONNRESET) || wc == nil || wc.Status != ib.WCRetryExcErr {
						t.Errorf("%s: %v, want ECONNRESET for lack of an answer", op, err)
					}
				})
			})
		}
	}
}

// TestPause takes the peer away in the midst of a transfer, for the time of one retransmission of seven, which leaves
// enough for a bad network: all of it arrives.
func TestPause(t *testing.T) {
	for name, host := range map[string]struct{ leave, comeBack func(*simtest.Host) }{
		"unplugged": {(*simtest.Host).Unplug, (*simtest.Host).Plug},
		"stopped":   {(*simtest.Host).Stop, (*simtest.Host).Continue},
	} {
		t.Run(name, func(t *testing.T) {
			simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
				p, data := newPair(t, on(n), Options{}), random(n.Seed(), 300_000)
				go func() {
					p.a.Write(data)
					p.a.CloseWrite()
				}()
				start := make([]byte, 10_000*(n.Seed()%20))
				if _, err := io.ReadFull(p.b, start); err != nil || !bytes.Equal(start, data[:len(start)]) {
					t.Fatalf("the first %d bytes: %v, want what was written", len(start), err)
				}
				host.leave(n.Hosts[n.Seed()%2])
				time.AfterFunc(500*time.Millisecond, func() { host.comeBack(n.Hosts[n.Seed()%2]) })
				wantRead(t, p.b, data[len(start):], nil)
			})
		})
	}
}

// TestReboot has a host reboot under a connection: both ends learn it, and the host can be connected to again.
func TestReboot(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		ctx, client, server := within(t, time.Minute), n.Hosts[0], n.Hosts[1]
		connect := func() (a, b *Conn) {
			l, err := Listen(ctx, server.CM(), server.At("7471"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if a, err = Dial(ctx, client.CM(), server.At("7471"), Options{}); err != nil {
				t.Fatal(err)
			}
			if b, err = l.AcceptConn(ctx); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { a.Close(); b.Close(); <-a.Done(); <-b.Done() })
			meet(t, a, b)
			return a, b
		}
		a, b := connect()
		server.Reboot()
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || !errors.Is(err, ib.ErrClosed) {
			t.Errorf("Read of the host that has rebooted: %v, want ECONNRESET because of ib.ErrClosed", err)
		}
		c, d := connect()
		if _, err := a.Write(make([]byte, 1<<20)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Write to the host that has rebooted: %v, want ECONNRESET", err)
		}
		meet(t, d, c)
	})
}

// TestDeviceClosed takes our own device away.
func TestDeviceClosed(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{})
		go func() {
			p.a.Write([]byte("now"))
			p.devB.Close()
		}()
		buf := make([]byte, 10)
		got, err := 0, error(nil)
		for err == nil {
			got, err = p.b.Read(buf)
		}
		if !errors.Is(err, ib.ErrClosed) || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read: %d, %v, want ECONNRESET because of ib.ErrClosed", got, err)
		}
	})
}

// TestBroken ends the connection below, though no end wanted it: what has arrived can be read, but that is no end of
// file.
func TestBroken(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{})
		reason := errors.New("reason")
		if _, err := p.a.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		require.Until(t, "the words to arrive", func() bool { return unread(p.b) == 10 })
		p.trB.end(reason)
		wantRead(t, p.b, []byte("last words"), reason)
		if _, err := p.b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read: %v, want ECONNRESET", err)
		}
	})
}
