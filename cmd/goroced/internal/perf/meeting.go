package perf

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
)

// ErrExchange: the ends could not tell one another what they have to.
var ErrExchange = meet.ErrExchange

// meeting is how two ends find one another and keep in step.
type meeting interface {
	// swap sends a message and receives one of the same length. The client's goes
	// first: the server's swap returns when the client has come to its own. limit
	// bounds it, 0 does not.
	swap(mine, theirs []byte, limit time.Duration) error
	// encode and decode are how addresses go over the wire, of one length.
	encode(*address) []byte
	decode([]byte) (address, error)
	// peer says where the peer is, as far as can be told while no swap is under way.
	peer() presence
	// leave waits, for the limit at most, until a peer has left that parts without a
	// word.
	leave(limit time.Duration)
	localAddr() netip.Addr
	Close() error
}

// presence is where the peer is.
type presence int32

const (
	here  presence = iota
	ahead          // it has said the next thing: in this end's view its run is over
	gone           // it has closed the connection
)

// findPeer connects to the server, or waits for the client, until ctx ends. The second
// result is the same meeting if queue pairs are to be connected by rdma_cm.
func findPeer(ctx context.Context, dev ib.Device, o *Options) (meeting, *cmMeeting, error) {
	if !o.CM {
		m, err := meetTCP(ctx, o)
		return m, nil, err
	}
	m, err := meetCM(ctx, dev, o)
	return m, m, err
}

// announce says that this end listens at a port of TCP's or rdma_cm's.
func (o *Options) announce(ports string) {
	fmt.Fprint(o.Out, waiting)
	fmt.Fprintf(o.Log, "waiting for a client on %s port %d: %s\n", ports, o.Port, o.command(" HOST"))
}

// command is how the other end is started, with goroced or the C tool.
func (o *Options) command(args string) string {
	if o.CM {
		return fmt.Sprintf("`goroced perf %v %v -R%s`, or `%s -R%s`", o.Op, o.Test, args, o.traits().tool, args)
	}
	return fmt.Sprintf("`goroced perf %v %v%s`, or `%s -x INDEX%s`", o.Op, o.Test, args, o.traits().tool, args)
}
