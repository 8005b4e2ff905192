package rping

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// MaxSize limits the bytes of a ping. The C tool accepts 23 to 65535.
const MaxSize = 64 << 10

// Options of Run. Start from Defaults.
type Options struct {
	Server bool // otherwise this end is the client

	Addr   string     // host of the server; at the server, the address to listen on, "" for all of the device
	Port   int        // port of the server; a server with 0 chooses a free one
	Source netip.Addr // client: source address; the zero Addr lets the device choose

	Count      int  // client: number of pings; 0: until the context ends
	Size       int  // client: bytes of a ping
	Verbose    bool // print the text of each ping
	Validate   bool // client: check each returned text
	Debug      bool // log each step
	Persistent bool // server: serve clients, several at once, until the context ends

	// AckTimeout is the code t of the local ACK timeout, 4.096 us * 2^t. The client's applies to both ends; 0 stands
	// for the default of package rdmacm.
	AckTimeout int

	// MTU is the largest path MTU to ask for, or at a server to accept: 256, 512, 1024, 2048 or 4096; 0 is the largest
	// that the port and the route have.
	MTU ib.MTU

	// Timeout limits the connection's setup and each wait for the peer. A server waits for clients without limit.
	Timeout time.Duration

	Here device.Here // what a client on this machine needs, for the line of a server that waits

	Out io.Writer // standard output of the C tool
	// Columns is the width of Out if it is a terminal; 0 if it is not, and gets the C tool's lines.
	Columns int
	Log     io.Writer // events, steps and advice for people; may be nil
}

// Defaults returns the defaults of the C tool.
func Defaults() Options {
	return Options{Port: 7174, Size: 64, Timeout: 10 * time.Second, Out: io.Discard}
}

// check refuses invalid options before the peer is contacted.
func (o *Options) check() error {
	lowest := 1
	if o.Server {
		lowest = 0
	}
	for _, c := range []struct {
		attr            string
		value, min, max int
	}{
		{"Port", o.Port, lowest, 65535},
		{"Count", o.Count, 0, 1<<31 - 1},
		{"Size", o.Size, 1, MaxSize},
		{"AckTimeout", o.AckTimeout, 0, 31},
	} {
		if c.value < c.min || c.value > c.max {
			return driver.Refuse("rping", c.attr, c.value, fmt.Sprintf("%d to %d", c.min, c.max), ib.ErrInvalid)
		}
	}
	switch {
	case !o.Server && o.Addr == "":
		return driver.Refuse("rping", "Addr", `""`, "the server's address at a client (-a)", ib.ErrInvalid)
	case !o.Server && o.Persistent:
		return driver.Refuse("rping", "Persistent", true, "false at a client (-P is for -s)", ib.ErrInvalid)
	case o.Server && o.Source.IsValid():
		return driver.Refuse("rping", "Source", o.Source, "none at a server (-I is for -c; -a says where to listen)",
			ib.ErrInvalid)
	case o.Timeout <= 0:
		return driver.Refuse("rping", "Timeout", o.Timeout, "more than 0", ib.ErrInvalid)
	}
	return nil
}

// hostPort returns the address of the server.
func (o *Options) hostPort() string { return net.JoinHostPort(o.Addr, strconv.Itoa(o.Port)) }
