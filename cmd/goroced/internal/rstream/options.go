package rstream

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
)

// MaxSize bounds a transfer, which lies in memory as a whole.
const MaxSize = 1 << 30

// Options of Run. Start from Defaults.
type Options struct {
	Server  string // where the server is; "" makes this end the server
	Bind    string // server: the address to listen on, "" for all of the device; client: to connect from
	Port    int    // of the server; 0 at the server takes one that is free
	Numeric bool   // Server and Bind are IP addresses, not names
	IOMap   bool   // play riostream

	Custom     bool // one test of the three numbers below, rather than the series
	Iterations int
	Transfers  int  // each way in an iteration
	Size       int  // bytes of a transfer
	AllSizes   bool // the series have all sizes, 64 bytes to 6 MiB, rather than four of them

	Verify bool // the data count up, and are checked

	Buffer int // bytes of the send and of the receive buffer
	Inline int // bytes up to which data are posted inline; 0 takes the default of package rsocket

	// KeepAlive is the time without traffic after which the peer is asked whether it is there;
	// 0 takes the default of package rsocket.
	KeepAlive time.Duration

	// AckTimeout is the code t of the local ACK timeout, 4.096 us * 2^t. The
	// client's holds for both ends; 0 takes the default of package rsocket.
	AckTimeout int

	// Timeout bounds the connection's making and each wait for the peer. A server
	// waits for its client without limit. Data that the peer writes into mapped
	// memory show only when all are there: there the keepalive stands guard.
	Timeout time.Duration

	Out io.Writer // what the C tool prints
	Log io.Writer // advice for people; may be nil

	limit int // most transfers or iterations of a test in the series; 0 for no limit
}

// Defaults returns the defaults of the C tool.
func Defaults() Options {
	return Options{Port: 7471, Iterations: 1, Transfers: 1000, Size: 1000, Buffer: 512 << 10, Timeout: 10 * time.Second,
		Out: io.Discard}
}

// testOptions are what -T takes, as words of which a prefix is enough for the C
// tool to know them, and as letters.
var testOptions = []struct {
	letter, word, refused string
}{
	{"s", "socket", "TCP sockets have no RDMA in them; use iperf"},
	{"a", "async", ""},
	{"b", "block", ""},
	{"n", "nonblock", ""},
	{"f", "fork", "it is for TCP sockets"},
	{"r", "resolve", ""},
	{"v", "verify", ""},
}

// SetTest sets what an argument of the C tool's -T says: a letter, or a longer
// word that begins like one of those in its usage text.
func (o *Options) SetTest(arg string) error {
	i := slices.IndexFunc(testOptions, func(t struct{ letter, word, refused string }) bool {
		return arg == t.letter || strings.HasPrefix(strings.ToLower(arg), t.word)
	})
	switch {
	case i < 0:
		return ib.Refuse("rstream", "-T", arg, "a or async, b or blocking, n or nonblocking, r or resolve, v or verify",
			ib.ErrInvalid)
	case testOptions[i].refused != "":
		return fmt.Errorf("-T %s is %w by goroced: %s", arg, ib.ErrNotSupported, testOptions[i].refused)
	}
	o.Verify = o.Verify || testOptions[i].letter == "v"
	return nil
}

// check refuses options that cannot work, before the peer learns of this end.
func (o *Options) check() error {
	lowest := 1
	if o.Server == "" {
		lowest = 0
	}
	for _, c := range []struct {
		attr            string
		value, min, max int
	}{
		{"Port", o.Port, lowest, 65535},
		{"Iterations", o.Iterations, 1, 1<<31 - 1},
		{"Transfers", o.Transfers, 1, 1<<31 - 1},
		{"Size", o.Size, 1, MaxSize},
		{"AckTimeout", o.AckTimeout, 0, 31},
	} {
		if c.value < c.min || c.value > c.max {
			return ib.Refuse("rstream", c.attr, c.value, fmt.Sprintf("%d to %d", c.min, c.max), ib.ErrInvalid)
		}
	}
	for attr, host := range map[string]string{"Server": o.Server, "Bind": o.Bind} {
		_, err := netip.ParseAddr(host)
		client := attr == "Bind" && o.Server != ""
		if host != "" && err != nil && (o.Numeric || client) {
			return ib.Refuse("rstream", attr, host,
				"an IP address; names only without -f ip, and not as the client's -b", ib.ErrInvalid)
		}
	}
	if o.Timeout <= 0 {
		return ib.Refuse("rstream", "Timeout", o.Timeout, "more than 0", ib.ErrInvalid)
	}
	return nil
}

// hostPort adds the port.
func (o *Options) hostPort(host string) string { return net.JoinHostPort(host, strconv.Itoa(o.Port)) }
