package rsocket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
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
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, m.open, Options{})
			question, answer := random(1, 500_000), random(2, 300_000)
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
}

// TestCloseRead drops what comes; the peer does not notice.
func TestCloseRead(t *testing.T) {
	p := newPair(t, overMem, Options{})
	p.b.Write(random(1, 1000))
	if err := p.a.CloseRead(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.a.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("Read after CloseRead: %v, want EOF", err)
	}
	if n, err := p.b.Write(random(2, 1<<20)); err != nil {
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
}

// TestLinger closes at once after a Write: all of it arrives.
func TestLinger(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, m.open, Options{})
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
}

// TestLingerEnds closes towards a peer that is gone: that takes no longer than
// Options.Linger, and is no orderly end.
func TestLingerEnds(t *testing.T) {
	p := newPair(t, overMem, Options{Linger: time.Millisecond})
	p.devB.Close()
	if _, err := p.a.Write([]byte("anybody?")); err != nil {
		t.Fatal(err)
	}
	p.a.Close()
	<-p.a.Done()
	if !errors.Is(p.a.err, errLinger) {
		t.Errorf("the connection ended with %v, want %v", p.a.err, errLinger)
	}
}

// TestCloseUnread closes with bytes unread, while the peer writes more.
func TestCloseUnread(t *testing.T) {
	p := newPair(t, overMem, Options{})
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
}

// TestCloseWakes closes under a Read and a Write that wait.
func TestCloseWakes(t *testing.T) {
	p := newPair(t, overMem, Options{})
	ended := make(chan error, 2)
	go func() {
		_, err := p.a.Read(make([]byte, 1))
		ended <- err
	}()
	n := 0
	go func() {
		var err error
		n, err = p.a.Write(make([]byte, 10<<20))
		ended <- err
	}()
	waitFor(t, "the buffers to fill", func() bool { return unread(p.b) == 128<<10 })
	p.a.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Close woke a call with %v, want net.ErrClosed", err)
		}
	}
	if n != 128<<10 {
		t.Errorf("Write reports %d bytes, want what the peer's buffer takes", n)
	}
	wantRead(t, p.b, make([]byte, n), nil)
	for what, err := range map[string]error{
		"Close": p.a.Close(), "CloseWrite": p.a.CloseWrite(), "CloseRead": p.a.CloseRead(),
		"SetDeadline": p.a.SetDeadline(time.Time{}),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v, want net.ErrClosed", what, err)
		}
	}
}

// TestCloseWakesAtOnce closes a connection that hears nothing from its device.
func TestCloseWakesAtOnce(t *testing.T) {
	dev, _ := openDevices(t, overMem)
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
	for _, mu := range []*sync.Mutex{&c.readMu, &c.writeMu} {
		waitFor(t, "Read and Write to begin", func() bool {
			free := mu.TryLock()
			if free {
				mu.Unlock()
			}
			return !free
		})
	}
	c.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Close woke a call with %v, want net.ErrClosed", err)
		}
	}
	dev.Close()
	<-c.Done()
}

// TestOddSizes writes and reads pieces of all sizes through buffers that they do
// not divide.
func TestOddSizes(t *testing.T) {
	seed := *testSeed
	t.Logf("-rsocket.seed=%d", seed)
	p := newPair(t, overMem, Options{SendBuffer: 12 << 10, ReceiveBuffer: 20 << 10, SendQueue: 16, ReceiveQueue: 20})
	data := random(seed, 1<<20)
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
		t.Errorf("read %d bytes that are not the %d written", len(got), len(data))
	}
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

// waitFor waits until cond holds, giving way meanwhile.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s in vain for %s", what)
		}
	}
}

// TestWriteDeadline ends a Write in its midst. What it reports arrives, and the
// stream goes on behind it.
func TestWriteDeadline(t *testing.T) {
	p := newPair(t, overUDP, Options{})
	data := random(4, 1<<20)
	p.a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := p.a.Write(data)
	var timeout net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("Write: %v, want a timeout", err)
	}
	p.a.SetWriteDeadline(time.Time{})
	go func() {
		p.a.Write(data[n:])
		p.a.CloseWrite()
	}()
	wantRead(t, p.b, data, nil)
}

// TestPeerGone takes the peer's device away. Who waits gets an error: the writer
// from its retries, the reader from the keepalive.
func TestPeerGone(t *testing.T) {
	for name, wait := range map[string]func(*Conn) error{
		"Read":  func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"Write": func(c *Conn) error { _, err := c.Write(make([]byte, 1<<20)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, overMem, Options{KeepAlive: 10 * time.Millisecond})
			waitFor(t, "all to be acknowledged", func() bool { return idle(p.a) })
			p.devB.Close()
			err := wait(p.a)
			wc, _ := errors.AsType[*ib.WCError](err)
			if !errors.Is(err, syscall.ECONNRESET) || wc == nil || wc.Status != ib.WCRetryExcErr {
				t.Errorf("%s: %v, want ECONNRESET for lack of an answer", name, err)
			}
		})
	}
}

// TestDeviceClosed takes our own device away.
func TestDeviceClosed(t *testing.T) {
	p := newPair(t, overMem, Options{})
	go func() {
		p.a.Write([]byte("now"))
		p.devB.Close()
	}()
	buf := make([]byte, 10)
	n, err := 0, error(nil)
	for err == nil {
		n, err = p.b.Read(buf)
	}
	if !errors.Is(err, ib.ErrClosed) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read: %d, %v, want ECONNRESET because of ib.ErrClosed", n, err)
	}
}

// TestBroken ends the connection below, though no end wanted it: what has arrived
// can be read, but that is no end of file.
func TestBroken(t *testing.T) {
	p := newPair(t, overMem, Options{})
	reason := errors.New("reason")
	if _, err := p.a.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the words to arrive", func() bool { return unread(p.b) == 10 })
	p.trB.end(reason)
	wantRead(t, p.b, []byte("last words"), reason)
	if _, err := p.b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read: %v, want ECONNRESET", err)
	}
}
