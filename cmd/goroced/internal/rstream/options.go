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

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// MaxSize limits the size of a transfer, all of which is in memory.
const MaxSize = 1 << 30

// Options of Run. Start from Defaults.
type Options struct {
	Server  string // host of the server; "" makes this end the server
	Bind    string // server: address to listen on, "" for all of the device; client: source address
	Port    int    // port of the server; a server with 0 chooses a free one
	Numeric bool   // Server and Bind are IP addresses, not names
	IOMap   bool   // run riostream

	Custom     bool // one test with the three numbers below instead of the series
	Iterations int
	Transfers  int  // in each direction of an iteration
	Size       int  // bytes of a transfer
	AllSizes   bool // use all sizes in the series, 64 bytes to 6 MiB, instead of four of them

	Verify bool // send data that count up, and check them

	Buffer int // size of the send and of the receive buffer in bytes
	Inline int // largest inline size in bytes; 0: default of package rsocket

	// KeepAlive is the idle time after which a keepalive message is sent; 0 stands for the default of package rsocket.
	KeepAlive time.Duration

	// AckTimeout is the code t of the local ACK timeout, 4.096 us * 2^t. The client's applies to both ends; 0 stands
	// for the default of package rsocket.
	AckTimeout int

	// MTU is the largest path MTU to ask for, or at a server to accept: 256, 512, 1024, 2048 or 4096; 0 is the largest
	// that the port and the route have.
	MTU ib.MTU

	// Timeout limits the connection's setup and each wait for the peer. A server waits for its first client without
	// limit. The progress of data that the peer writes into mapped memory cannot be seen; there the keepalive detects a
	// dead peer.
	Timeout time.Duration

	Here device.Here // what a client on this machine needs, for the line of a server that waits

	Out io.Writer // output of the C tool
	Log io.Writer // advice for people; may be nil

	limit int // most transfers or iterations of a test in the series; 0 for no limit

	yield waiting.Yield // for tests in virtual time
}

// Defaults returns the defaults of the C tool.
func Defaults() Options {
	return Options{Port: 7471, Iterations: 1, Transfers: 1000, Size: 1000, Buffer: 512 << 10, Timeout: 10 * time.Second,
		Out: io.Discard}
}

// testOptions are the values of -T. The C tool accepts letters, and words of which these are prefixes.
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

// SetTest sets the option of an argument of the C tool's -T: a letter, or a word that begins like one in its usage
// text.
func (o *Options) SetTest(arg string) error {
	i := slices.IndexFunc(testOptions, func(t struct{ letter, word, refused string }) bool {
		return arg == t.letter || strings.HasPrefix(strings.ToLower(arg), t.word)
	})
	switch {
	case i < 0:
		return driver.Refuse("rstream", "-T", arg,
			"a or async, b or blocking, n or nonblocking, r or resolve, v or verify",
			ib.ErrInvalid)
	case testOptions[i].refused != "":
		return fmt.Errorf("-T %s is %w by goroced: %s", arg, ib.ErrNotSupported, testOptions[i].refused)
	}
	o.Verify = o.Verify || testOptions[i].letter == "v"
	return nil
}

// check refuses invalid options before the peer is contacted.
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
			return driver.Refuse("rstream", c.attr, c.value, fmt.Sprintf("%d to %d", c.min, c.max), ib.ErrInvalid)
		}
	}
	for _, a := range []struct{ attr, host string }{{"Server", o.Server}, {"Bind", o.Bind}} {
		_, err := netip.ParseAddr(a.host)
		client := a.attr == "Bind" && o.Server != ""
		if a.host != "" && err != nil && (o.Numeric || client) {
			return driver.Refuse("rstream", a.attr, a.host,
				"an IP address; names only without -f ip, and not as the client's -b", ib.ErrInvalid)
		}
	}
	if o.Timeout <= 0 {
		return driver.Refuse("rstream", "Timeout", o.Timeout, "more than 0", ib.ErrInvalid)
	}
	return nil
}

// hostPort appends the port to a host.
func (o *Options) hostPort(host string) string { return net.JoinHostPort(host, strconv.Itoa(o.Port)) }
