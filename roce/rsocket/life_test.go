package rsocket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
)

// random returns n bytes that depend on the seed.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(b)
	return b
}

// wantRead fails unless all that is left to read is want, and then err.
func wantRead(t *testing.T, c *Conn, want []byte, wantErr error) {
	t.Helper()
	var got bytes.Buffer
	_, err := got.ReadFrom(struct{ io.Reader }{c})
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("read %d bytes, not the %d that were written", got.Len(), len(want))
	}
	if !errors.Is(err, wantErr) {
		t.Errorf("the stream ends with %v, want %v", err, wantErr)
	}
}

// TestHalfClose shuts down one direction; the other goes on.
func TestHalfClose(t *testing.T) {
	onNetworks(t, func(t *testing.T, open medium) {
		p := newPair(t, open, Options{})
		question, answer := random(1, 200_000), random(2, 150_000)
		go func() {
			p.a.Write(question)
			p.a.CloseWrite()
		}()
		wantRead(t, p.b, question, nil)
		go func() {
			p.b.Write(answer)
			p.b.CloseWrite()
		}()
		wantRead(t, p.a, answer, nil)
		if _, err := p.a.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: %v, want EPIPE", err)
		}
	})
}

// TestCloseRead drops what comes; the peer does not notice.
func TestCloseRead(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{})
		p.b.Write(random(1, 1000))
		if err := p.a.CloseRead(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.a.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read after CloseRead: %v, want EOF", err)
		}
		if n, err := p.b.Write(random(2, 400_000)); err != nil {
			t.Errorf("the peer wrote %d bytes: %v", n, err)
		}
		// With both directions shut the peer's Write fails (rshutdown sends a
		// disconnect message then).
		if err := p.a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		wantRead(t, p.b, nil, nil)
		if _, err := p.b.Write([]byte{1}); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer's Write: %v, want ECONNRESET", err)
		}
	})
}

// TestLinger closes at once after a Write: all of it arrives.
func TestLinger(t *testing.T) {
	onNetworks(t, func(t *testing.T, open medium) {
		p := newPair(t, open, Options{})
		data := random(3, 100_000)
		if _, err := p.a.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := p.a.Close(); err != nil {
			t.Fatal(err)
		}
		wantRead(t, p.b, data, nil)
		<-p.a.Done()
	})
}

// TestLingerEnds closes towards a peer that is gone: that takes no longer than
// Options.Linger, and is no orderly end.
func TestLingerEnds(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{Linger: time.Millisecond})
		p.devB.Close()
		if _, err := p.a.Write([]byte("anybody?")); err != nil {
			t.Fatal(err)
		}
		p.a.Close()
		<-p.a.Done()
		if !errors.Is(p.a.err, errLinger) {
			t.Errorf("the connection ended with %v, want %v", p.a.err, errLinger)
		}
	})
}

// TestCloseUnread closes with bytes unread, while the peer writes more.
func TestCloseUnread(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{})
		if _, err := p.b.Write(random(1, 1000)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p.a, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		p.a.Close()
		var err error
		for err == nil {
			_, err = p.b.Write(make([]byte, 1000))
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer's Write: %v, want ECONNRESET", err)
		}
		wantRead(t, p.b, nil, nil)
	})
}

// TestCloseWakes closes under a Read and a Write that wait.
func TestCloseWakes(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{})
		ended := make(chan error, 2)
		go func() {
			_, err := p.a.Read(make([]byte, 1))
			ended <- err
		}()
		wrote := 0
		go func() {
			var err error
			wrote, err = p.a.Write(make([]byte, 10<<20))
			ended <- err
		}()
		require.Until(t, "the buffers to fill", func() bool { return unread(p.b) == 128<<10 })
		p.a.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Close woke a call with %v, want net.ErrClosed", err)
			}
		}
		if wrote != 128<<10 {
			t.Errorf("Write reports %d bytes, want what the peer's buffer takes", wrote)
		}
		wantRead(t, p.b, make([]byte, wrote), nil)
		for what, err := range map[string]error{
			"Close": p.a.Close(), "CloseWrite": p.a.CloseWrite(), "CloseRead": p.a.CloseRead(),
			"SetDeadline": p.a.SetDeadline(time.Time{}),
		} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: %v, want net.ErrClosed", what, err)
			}
		}
	})
}

// TestCloseWakesAtOnce closes a connection that hears nothing from its device.
func TestCloseWakesAtOnce(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		dev, _ := on(n)(t)
		ep, err := newEndpoint(dev, Options{Linger: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		peer := sampleRecord
		peer.data.length = 0
		c := newConn(ep, nullQP{}, &hand{qp: nullQP{}, done: make(chan struct{})}, peer, addrOf(dev), addrOf(dev))
		ended := make(chan error, 2)
		for _, wait := range []func([]byte) (int, error){c.Read, c.Write} {
			go func() {
				_, err := wait([]byte{1})
				ended <- err
			}()
		}
		time.Sleep(time.Microsecond) // of virtual time, which moves on when both wait
		c.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Close woke a call with %v, want net.ErrClosed", err)
			}
		}
		dev.Close()
		<-c.Done()
	})
}

// TestOddSizes writes and reads pieces of all sizes through buffers that they do
// not divide.
func TestOddSizes(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		seed := n.Seed()
		p := newPair(t, on(n), Options{SendBuffer: 12 << 10, ReceiveBuffer: 20 << 10, SendQueue: 16, ReceiveQueue: 20})
		data := random(seed, 400_000)
		go func() {
			sizes := rand.New(rand.NewPCG(seed, 1))
			for rest := data; len(rest) > 0; {
				n := min(len(rest), sizes.IntN(20_000))
				if _, err := p.a.Write(rest[:n]); err != nil {
					t.Error(err)
					break
				}
				rest = rest[n:]
			}
			p.a.CloseWrite()
		}()
		sizes := rand.New(rand.NewPCG(seed, 2))
		var got []byte
		for err := error(nil); err != io.EOF; {
			buf := make([]byte, sizes.IntN(20_000))
			var n int
			if n, err = p.b.Read(buf); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("read %d bytes, want the %d written", len(got), len(data))
		}
	})
}

// unread is how many bytes wait for Read.
func unread(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in.avail
}

// idle reports whether nothing of c is under way, nor is about to be.
func idle(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.in.wantsGrant() && c.out.ctrl == ctrlSlots && c.out.slots == c.ep.o.SendQueue-ctrlSlots
}

// TestWriteDeadline ends a Write in its midst. What it reports arrives, and the
// stream goes on behind it.
func TestWriteDeadline(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{})
		data := random(4, 400_000)
		p.a.SetWriteDeadline(time.Now().Add(time.Duration(n.Seed()%20) * 20 * time.Microsecond))
		wrote, err := p.a.Write(data)
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("Write: %v, want a timeout", err)
		}
		p.a.SetWriteDeadline(time.Time{})
		go func() {
			p.a.Write(data[wrote:])
			p.a.CloseWrite()
		}()
		wantRead(t, p.b, data, nil)
	})
}
