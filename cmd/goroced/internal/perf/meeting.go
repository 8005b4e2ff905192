package perf

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
)

// ErrExchange: the exchange with the peer has failed.
var ErrExchange = meet.ErrExchange

// meeting is the connection by which two ends exchange parameters and stay in step.
type meeting interface {
	// swap sends a message and receives one of the same length. The client sends first, so the server's swap returns
	// when the client has called its own. limit limits the time; 0 does not.
	swap(mine, theirs []byte, limit time.Duration) error
	// encode and decode convert addresses; all have the same length.
	encode(*address) []byte
	decode([]byte) (address, error)
	// peer returns what is known about the peer while no swap is running.
	peer() presence
	// leave waits, for at most limit, until a peer that ends without a message has left.
	leave(limit time.Duration)
	localAddr() netip.Addr
	Close() error
}

// presence is what is known about the peer.
type presence int32

const (
	here  presence = iota
	ahead          // it has sent the next message, so for it the run is over
	gone           // it has closed the connection
)

// findPeer connects to the server, or waits for the client, until ctx ends. The second result is the same meeting if
// queue pairs are to be connected by rdma_cm, otherwise nil.
func findPeer(ctx context.Context, dev ib.Device, o *Options) (meeting, *cmMeeting, error) {
	if !o.CM {
		m, err := meetTCP(ctx, o)
		return m, nil, err
	}
	m, err := meetCM(ctx, dev, o)
	return m, m, err
}

// awaited returns what this end waits for at first.
func (o *Options) awaited() string {
	switch {
	case o.server() && o.CM:
		return fmt.Sprintf("a client on rdma_cm port %d", o.Port)
	case o.server():
		return fmt.Sprintf("a client on TCP port %d", o.Port)
	case o.CM:
		return fmt.Sprintf("%s to answer the request to rdma_cm port %d", o.Host, o.Port)
	}
	return fmt.Sprintf("%s to accept the TCP connection to port %d", o.Host, o.Port)
}

// announce prints that this end listens.
func (o *Options) announce() {
	fmt.Fprint(o.Out, waitingLine)
	cm := ""
	if o.CM {
		cm = " -R"
	}
	fmt.Fprintf(o.Log, "waiting for %s: %s%s\n", o.awaited(), o.command(o.Both+" HOST"),
		o.Here.Client(fmt.Sprintf("goroced perf %v %v%s%s -p %d %%s %%v", o.Op, o.Test, cm, o.Both, o.Port)))
}

// command returns the command line of the other end, with goroced or the C tool.
func (o *Options) command(args string) string {
	if o.CM {
		return fmt.Sprintf("`goroced perf %v %v -R%s`, or `%s -R%s`", o.Op, o.Test, args, o.traits().tool, args)
	}
	return fmt.Sprintf("`goroced perf %v %v%s`, or `%s -x INDEX%s`", o.Op, o.Test, args, o.traits().tool, args)
}
