package rstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/toolstest"
)

// rows returns the table's columns that are not measured.
func rows(t *testing.T, out string) (rows []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	const header = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer"
	if lines[0] != header {
		t.Errorf("the header is\n%s\nwant\n%s", lines[0], header)
	}
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) != 8 {
			t.Fatalf("row %q has %d columns, want 8", line, len(f))
		}
		rows = append(rows, strings.Join(f[:5], " "))
	}
	return rows
}

// play runs both ends with the same options and looks at what they print.
func play(t *testing.T, open opener, o Options, fault wrap.FaultConfig, want []string) {
	t.Helper()
	server, co := startServer(t, open(fault), o)
	fault.Seed++
	client := start(t, open(fault), co)
	for name, e := range map[string]*toolstest.End{"server": server, "client": client} {
		if err := e.Wait(t); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, rows(t, e.Out.String())); diff != "" {
			t.Errorf("rows of the %s (-want +got):\n%s", name, diff)
		}
	}
}

// both runs a test with rstream, and with riostream.
func both(t *testing.T, o Options, f func(t *testing.T, open opener, o Options)) {
	o.yield = toolstest.Yield
	for _, o.IOMap = range []bool{false, true} {
		t.Run(fmt.Sprintf("iomap=%v", o.IOMap), func(t *testing.T) {
			toolstest.Simulate(t, func(t *testing.T, open opener) { f(t, open, o) })
		})
	}
}

func TestCustom(t *testing.T) {
	for _, c := range []struct {
		iterations, transfers, size int
		row                         string
	}{
		{1, 1000, 1000, "custom 1000 1k 1 1.9m"}, // as without arguments but one of the three
		{20, 1, 1, "custom 1 1 20 40"},
		{3, 7, 15, "custom 15 7 3 630"},
		{2, 3, 1_000_003, "custom 976k 3 2 11m"},
		{1, 2, 5 << 20, "custom 5m 2 1 20m"},
	} {
		for _, verify := range []bool{false, true} {
			o := Defaults()
			o.Custom, o.Iterations, o.Transfers, o.Size, o.Verify = true, c.iterations, c.transfers, c.size, verify
			t.Run(fmt.Sprintf("%s verify=%v", c.row, verify), func(t *testing.T) {
				both(t, o, func(t *testing.T, open opener, o Options) {
					play(t, open, o, wrap.FaultConfig{}, []string{
						c.row})
				})
			})
		}
	}
}

// TestSeries: the short series and the long one, with few transfers.
func TestSeries(t *testing.T) {
	o := Defaults()
	o.limit, o.Verify = 3, true
	short := []string{
		"64_lat 64 1 3 384", "4k_lat 4k 1 3 24k", "64k_lat 64k 1 3 384k", "1m_lat 1m 1 3 6m",
		"64_bw 64 3 1 384", "4k_bw 4k 3 1 24k", "64k_bw 64k 3 1 384k", "1m_bw 1m 3 1 6m",
	}
	both(t, o, func(t *testing.T, open opener, o Options) { play(t, open, o, wrap.FaultConfig{}, short) })

	o.limit, o.AllSizes = 1, true
	var latency, bandwidth []string
	for _, c := range strings.Fields("64:128 128:256 192:384 256:512 384:768 512:1k 768:1.5k 1k:2k 1.5k:3k 2k:4k " +
		"3k:6k 4k:8k 6k:12k 8k:16k 12k:24k 16k:32k " +
		"24k:48k 32k:64k 48k:96k 64k:128k 96k:192k 128k:256k 192k:384k 256k:512k 384k:768k 512k:1m 768k:1.5m 1m:2m " +
		"1.5m:3m 2m:4m 3m:6m 4m:8m 6m:12m") {
		size, total, _ := strings.Cut(c, ":")
		latency = append(latency, fmt.Sprintf("%s_lat %[1]s 1 1 %s", size, total))
		bandwidth = append(bandwidth, fmt.Sprintf("%s_bw %[1]s 1 1 %s", size, total))
	}
	both(t, o, func(t *testing.T, open opener, o Options) {
		play(t, open, o, wrap.FaultConfig{}, append(latency, bandwidth...))
	})
}

func TestLoss(t *testing.T) {
	o := Defaults()
	o.Custom, o.Iterations, o.Transfers, o.Size, o.Verify = true, 10, 10, 10_000, true
	fault := wrap.FaultConfig{Drop: 0.02}
	both(t, o, func(t *testing.T, open opener, o Options) {
		play(t, open, o, fault, []string{"custom 9.7k 10 10 1.9m"})
	})
}

// TestBindAndKeepAlive: the client's address is what it says, and the C tool's lines
// on keepalive come before the rows.
func TestBindAndKeepAlive(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open opener) {
		o := Defaults()
		o.Custom, o.Numeric, o.KeepAlive = true, true, 2*time.Second
		serverDev, clientDev := open(wrap.FaultConfig{}), open(wrap.FaultConfig{})
		o.Bind = toolstest.Addr(t, serverDev).String()
		server, co := startServer(t, serverDev, o)
		co.Bind = toolstest.Addr(t, clientDev).String()
		client := start(t, clientDev, co)
		for name, e := range map[string]*toolstest.End{"server": server, "client": client} {
			if err := e.Wait(t); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !strings.Contains(e.Out.String(), "usec/xfer\nKeepalive: ON\n  time: 2\ncustom ") {
				t.Errorf("%s printed\n%s\nwant the options between the head and the row", name, e.Out)
			}
		}
		foreign := Defaults()
		foreign.Server, foreign.Bind, foreign.Port = co.Server, toolstest.Addr(t, serverDev).String(), co.Port
		if err := Run(t.Context(), clientDev, foreign); !errors.Is(err, ib.ErrInvalid) ||
			!strings.Contains(err.Error(), foreign.Bind) {
			t.Errorf("a client with the server's address: %v, want %v and %q", err, ib.ErrInvalid, foreign.Bind)
		}
	})
}

// counted is n bytes that count up after the first so many.
func counted(first, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(first + i)
	}
	return b
}

// TestStreamOnTheWire: a client without any of this package's code plays with the
// server. Byte by byte the data count up, from the messages that begin a test on;
// one wrong byte is noticed.
func TestStreamOnTheWire(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open opener) {
		o := Defaults()
		o.Custom, o.Verify, o.Iterations, o.Transfers, o.Size = true, true, 2, 3, 100
		const turn = 3 * 100
		for _, wrong := range []int{-1, 0, 15, 16, 115, 116, 315} {
			server, co := startServer(t, open(wrap.FaultConfig{}), o)
			conn := dial(t, open(wrap.FaultConfig{}), co)
			exchange := func(first, n int) {
				t.Helper()
				data, got := counted(first, n), make([]byte, n)
				if wrong >= first && wrong < first+n {
					data[wrong-first] ^= 0x80
				}
				if _, err := conn.Write(data); err != nil {
					t.Fatal(err)
				}
				if wrong >= first && wrong < first+n {
					return
				}
				if _, err := io.ReadFull(conn, got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, data) {
					t.Fatalf("bytes from %d on: the server sent %x, want %x", first, got, data)
				}
			}
			exchange(0, 16)
			if wrong < 0 || wrong >= 16 {
				exchange(16, turn)
			}
			if wrong >= 0 {
				if err := server.Wait(t); !errors.Is(err, ErrData) ||
					!strings.Contains(err.Error(), fmt.Sprintf("byte %d is ", wrong)) {
					t.Errorf("byte %d is wrong: %v, want %v at byte %d", wrong, err, ErrData, wrong)
				}
				continue
			}
			exchange(16+turn, turn)
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("at the end: %v, want EOF", err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if err := server.Wait(t); err != nil {
				t.Errorf("the server ended with: %v", err)
			}
		}
	})
}

// TestMappedOnTheWire: the same for riostream. The messages do not count there, nor
// do the markers.
func TestMappedOnTheWire(t *testing.T) { toolstest.Simulate(t, mappedOnTheWire) }

func mappedOnTheWire(t *testing.T, open opener) {
	o := Defaults()
	o.yield = toolstest.Yield
	o.Custom, o.Verify, o.IOMap, o.Iterations, o.Transfers, o.Size = true, true, true, 2, 1, 100
	for _, wrong := range []int{-1, 0, 98} {
		server, co := startServer(t, open(wrap.FaultConfig{}), o)
		conn := dial(t, open(wrap.FaultConfig{}), co)
		mine := newMemory(100)
		mine.bytes[99] = 0xFF
		if _, err := conn.Map(mine.bytes[:100], ib.RemoteWrite, 0); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, 16)
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			data := append(counted(99*i, 99), byte(2*i))
			if wrong >= 0 {
				data[wrong] ^= 0x80
			}
			if _, err := conn.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
			if wrong >= 0 {
				break
			}
			awaitMarker(t, mine, 99, byte(2*i+1))
			if want := counted(99*i, 99); !bytes.Equal(mine.bytes[:99], want) {
				t.Errorf("turn %d: the server wrote %x, want %x", i, mine.bytes[:99], want)
			}
		}
		if wrong >= 0 {
			if err := server.Wait(t); !errors.Is(err, ErrData) ||
				!strings.Contains(err.Error(), fmt.Sprintf("byte %d is ", wrong)) {
				t.Errorf("byte %d is wrong: %v, want %v at byte %d", wrong, err, ErrData, wrong)
			}
			continue
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Wait(t); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	}
}

// TestMarkers: each test of a connection begins with marker 0, in a mapping of its
// own.
func TestMarkers(t *testing.T) { toolstest.Simulate(t, markers) }

func markers(t *testing.T, open opener) {
	o := Defaults()
	o.yield = toolstest.Yield
	o.IOMap, o.limit = true, 2
	server, co := startServer(t, open(wrap.FaultConfig{}), o)
	conn := dial(t, open(wrap.FaultConfig{}), co)
	mine := newMemory(4096)
	message := make([]byte, 16)
	for _, size := range []int{64, 4096} {
		mine.bytes[size-1] = 0xFF
		if _, err := conn.Map(mine.bytes[:size], ib.RemoteWrite, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			t.Fatal(err)
		}
		for turn := range 2 {
			if _, err := conn.WriteAt(append(make([]byte, size-1), byte(2*turn)), 0); err != nil {
				t.Fatal(err)
			}
			awaitMarker(t, mine, size-1, byte(2*turn+1))
		}
		if err := conn.Unmap(mine.bytes[:size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Wait(t); err == nil || !strings.Contains(err.Error(), "test 64k_lat: the peer has ended") {
		t.Errorf("the server ended with: %v, want %q", err, "test 64k_lat: the peer has ended")
	}
	if diff := cmp.Diff([]string{"64_lat 64 1 2 256", "4k_lat 4k 1 2 16k"}, rows(t, server.Out.String())); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestPeerEnded: whether a read or something else meets the end of the peer first, the error says the same.
func TestPeerEnded(t *testing.T) { toolstest.Simulate(t, peerEnded) }

func peerEnded(t *testing.T, open opener) {
	o := Defaults()
	o.yield = toolstest.Yield
	o.IOMap = true
	server, co := startServer(t, open(wrap.FaultConfig{}), o)
	conn := dial(t, open(wrap.FaultConfig{}), co)
	p := &player{o: &o}
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET} {
		if got := p.explain(conn, fmt.Errorf("map: %w", err)); !errors.Is(got, err) ||
			!strings.HasPrefix(got.Error(), "the peer has ended: map: ") {
			t.Errorf("%v is explained by %q, want that the peer has ended", err, got)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Wait(t); err == nil || !strings.Contains(err.Error(), "the peer has ended") {
		t.Errorf("the server ended with: %v, want %q", err, "the peer has ended")
	}
}

// awaitMarker polls a byte.
func awaitMarker(t *testing.T, m *memory, i int, marker byte) {
	t.Helper()
	require.Until(t, fmt.Sprintf("byte %d is marker %d", i, marker), func() bool { return m.load(i) == marker })
}

// TestPeerEnds: an end whose peer leaves, before the test and in it, fails.
func TestPeerEnds(t *testing.T) {
	o := Defaults()
	o.Custom = true
	both(t, o, func(t *testing.T, open opener, o Options) {
		for _, messages := range []int{0, 1} {
			server, co := startServer(t, open(wrap.FaultConfig{}), o)
			conn := dial(t, open(wrap.FaultConfig{}), co)
			if _, err := conn.Write(make([]byte, messages*syncLen)); err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			if err := server.Wait(t); err == nil || errors.Is(err, ErrSilent) ||
				!strings.Contains(err.Error(), "test custom: ") {
				t.Errorf("after %d messages: %v, want one of the test, not %v", messages, err, ErrSilent)
			}
		}
	})
}

// TestOutOfTurn: a peer that begins the next test too early is no riostream.
func TestOutOfTurn(t *testing.T) { toolstest.Simulate(t, outOfTurn) }

func outOfTurn(t *testing.T, open opener) {
	o := Defaults()
	o.yield = toolstest.Yield
	o.Custom, o.IOMap = true, true
	server, co := startServer(t, open(wrap.FaultConfig{}), o)
	if _, err := dial(t, open(wrap.FaultConfig{}), co).Write(make([]byte, 3*syncLen)); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(t); !errors.Is(err, errTurn) {
		t.Errorf("the server ended with: %v, want %v", err, errTurn)
	}
}

// TestSilence: an end does not wait for ever; different options show as that.
func TestSilence(t *testing.T) {
	o := Defaults()
	o.Custom, o.Timeout = true, time.Second
	both(t, o, func(t *testing.T, open opener, o Options) {
		server, co := startServer(t, open(wrap.FaultConfig{}), o)
		dial(t, open(wrap.FaultConfig{}), co)
		if err := server.Wait(t); !errors.Is(err, ErrSilent) ||
			!strings.Contains(err.Error(), "both ends need the same tests") {
			t.Errorf("the server ended with: %v, want %v and %q", err, ErrSilent, "both ends need the same tests")
		}
	})
}

// TestPatience: a server waits for its client as long as it takes, and then no
// longer than Options.Timeout for anything.
func TestPatience(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open opener) {
		o := Defaults()
		o.Custom, o.Timeout = true, time.Nanosecond
		server, co := startServer(t, open(wrap.FaultConfig{}), o)
		dial(t, open(wrap.FaultConfig{}), co)
		if err := server.Wait(t); !errors.Is(err, ErrSilent) {
			t.Errorf("the server of a silent client ended with: %v, want %v", err, ErrSilent)
		}

		o = Defaults()
		// Of each step of the exchange, which must succeed, and then of the silence.
		o.limit, o.Timeout = 1, 5*time.Second
		server, co = startServer(t, open(wrap.FaultConfig{}), o)
		conn := dial(t, open(wrap.FaultConfig{}), co)
		for _, size := range o.sizes() {
			for _, n := range []int{16, size} {
				data := make([]byte, n)
				if _, err := conn.Write(data); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(conn, data); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Wait(t); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "connection 2 of the client") {
			t.Errorf("the server of a client without bandwidth tests ended with: %v, want %v and %q", err,
				context.DeadlineExceeded, "connection 2 of the client")
		}
	})
}

// TestStopped: the context ends both ends, whatever they are at.
func TestStopped(t *testing.T) {
	o := Defaults()
	o.Custom, o.Iterations = true, 1<<31-1
	both(t, o, func(t *testing.T, open opener, o Options) {
		server, co := startServer(t, open(wrap.FaultConfig{}), o)
		client := start(t, open(wrap.FaultConfig{}), co)
		client.Await(t, client.Out, "usec/xfer")
		client.Stop()
		if err := client.Wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the client ended with: %v, want %v", err, context.Canceled)
		}
		server.Stop()
		if err := server.Wait(t); err == nil {
			t.Error("the server ended without an error")
		}
	})
}

// TestInterrupted: of a test that is interrupted, the client prints the row of what it has transferred.
func TestInterrupted(t *testing.T) {
	o := Defaults()
	o.Custom, o.Iterations, o.Transfers, o.Size = true, 1<<31-1, 3, 15
	both(t, o, func(t *testing.T, open opener, o Options) {
		server, co := startServer(t, open(wrap.FaultConfig{}), o)
		client := start(t, open(wrap.FaultConfig{}), co)
		client.Await(t, client.Out, "usec/xfer")
		time.Sleep(20 * time.Millisecond) // in virtual time: the transfers go on
		client.Stop()
		if err := client.Wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the client ended with: %v, want %v", err, context.Canceled)
		}
		if n := strings.Count(client.Out.String(), "custom "); n != 1 {
			t.Errorf("got %d rows of the interrupted test, want 1:\n%s", n, client.Out)
		}
		const part = `interrupted: the last row is of [1-9]\d* of 12884901882 transfers`
		if !regexp.MustCompile(part).MatchString(client.Log.String()) {
			t.Errorf("the client's log lacks %q:\n%s", part, client.Log)
		}
		server.Stop()
		_ = server.Wait(t)
	})
}

func TestNobodyListens(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open opener) {
		server, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
		co.Port++
		var reject *rdmacm.RejectError
		if err := start(t, open(wrap.FaultConfig{}), co).Wait(t); !errors.As(err, &reject) ||
			!strings.Contains(err.Error(), "start it there first: `goroced rstream -p ") {
			t.Errorf("a port where nobody listens: %v, want %q", err, "start it there first: `goroced rstream -p ")
		}
		server.Stop()

		co.Server, co.Timeout = toolstest.Addr(t, open(wrap.FaultConfig{Drop: 1})).String(),
			300*time.Millisecond
		var silence *rdmacm.TimeoutError
		if err := start(t, open(wrap.FaultConfig{}), co).Wait(t); !errors.As(err, &silence) {
			t.Errorf("a host of which nothing comes back: %v, want a silence", err)
		}
	})
}
