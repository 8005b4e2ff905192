package doctor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/wire"
)

const (
	// firstWait is how long the first answer may take. The kernel asks for a MAC address for three seconds before it
	// says that there is none.
	firstWait = 4500 * time.Millisecond
	// nextWait is how long the others may take, which is shorter than the manager waits until it repeats a request: one
	// without an answer is one that was lost, or the answer was.
	nextWait = 150 * time.Millisecond
	// requests is how many are sent to count those that get lost.
	requests = 20
)

// answers are what a peer has said to requests for a connection.
type answers struct {
	errno syscall.Errno // why there is no answer: ETIMEDOUT if nobody says anything; 0 if there is one
	rtt   time.Duration // the median
	sent  int
	lost  int
	told  told // what a peer of goroce has said of the requests
}

// errNoDevice: there is no device to ask with.
var errNoDevice = errors.New("no device")

// askPeer asks the peer's connection manager, from a local address. The error matches errNoDevice if no device can be
// opened there; other checks say why.
func (e *env) askPeer(local netip.Addr) (a answers, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, err := e.deviceAt(ctx, local)
	if err != nil {
		return a, errors.Join(errNoDevice, err)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return askFrom(ctx, dev, local, e.Peer)
}

// askFrom asks the peer by a device.
func askFrom(ctx context.Context, dev ib.CMDevice, local, peer netip.Addr) (a answers, err error) {
	q, err := newAsker(dev, local, peer)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	first, err := q.ask(ctx, firstWait)
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		a.errno = errno
		return a, nil
	}
	if err != nil {
		return a, err
	}
	times := []time.Duration{first}
	for a.sent = 0; a.sent < requests; a.sent++ {
		q.marked = true // what comes to a host at all is known; with marks a bad network may do otherwise
		d, err := q.ask(ctx, max(nextWait, 3*slices.Min(times)))
		if errors.Is(err, syscall.ETIMEDOUT) {
			a.lost++
			continue
		}
		if err != nil {
			return a, err
		}
		times = append(times, d)
	}
	slices.Sort(times)
	a.rtt, a.told = times[len(times)/2], q.told
	return a, nil
}

// deviceAt returns a device with a local address: the daemon's that has it, or one of this process.
func (e *env) deviceAt(ctx context.Context, local netip.Addr) (ib.CMDevice, error) {
	for _, path := range e.sockets(socket.Client) {
		g, err := greet(ctx, path)
		if err != nil {
			continue
		}
		for _, name := range g.Devices {
			addrs, err := addressesOf(ctx, path, name)
			if err == nil && slices.Contains(addrs, local.WithZone("")) {
				return client.Dial(ctx, client.Options{Socket: path, Device: name})
			}
		}
	}
	return host.Open(host.Options{Addrs: []netip.Addr{local}, Shards: 1})
}

// asker requests connections that nobody accepts.
type asker struct {
	owned       []interface{ Close() error } // in the order in which they were made
	ch          ib.CM
	qp          ib.QP // that the requests name; it stays in RESET
	local, peer netip.Addr
	session     uint64
	sent        int  // requests
	marked      bool // they are ECN-capable
	told        told
}

func newAsker(dev ib.CMDevice, local, peer netip.Addr) (_ *asker, err error) {
	q := &asker{local: local.WithZone(""), peer: peer, session: rand.Uint64()}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.close())
		}
	}()
	if q.ch, err = dev.OpenCM(); err != nil {
		return nil, err
	}
	q.owned = append(q.owned, q.ch)
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	q.owned = append(q.owned, pd)
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 1})
	if err != nil {
		return nil, err
	}
	q.owned = append(q.owned, cq)
	q.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq,
		Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return nil, err
	}
	q.owned = append(q.owned, q.qp)
	return q, nil
}

func (q *asker) close() (err error) {
	for _, c := range slices.Backward(q.owned) {
		err = errors.Join(err, c.Close())
	}
	return err
}

// ask sends a request and returns how long the answer took. Without an answer within the time the error is
// syscall.ETIMEDOUT, and another syscall.Errno if the network says that the peer cannot be reached.
func (q *asker) ask(ctx context.Context, wait time.Duration) (time.Duration, error) {
	id, err := q.ch.CreateID(ib.CMIDInit{Type: ib.RC, ServiceID: wire.EchoService})
	if err != nil {
		return 0, err
	}
	defer id.Close()
	if err := id.ResolveAddr(netip.AddrPortFrom(q.local, 0), netip.AddrPortFrom(q.peer, 0), wait); err != nil {
		return 0, err
	}
	if _, err := q.await(ctx, id, ib.CMAddrResolved); err != nil {
		return 0, err
	}
	if q.marked {
		if err := id.SetOption(ib.CMOptionTOS, int(wire.ECT0)); err != nil {
			return 0, err
		}
	}
	// The smallest is what every port has: a peer with a narrower one does not refuse it for that.
	if err := id.SetOption(ib.CMOptionPathMTU, int(ib.MTU256)); err != nil {
		return 0, err
	}
	if err := id.ResolveRoute(wait); err != nil {
		return 0, err
	}
	if _, err := q.await(ctx, id, ib.CMRouteResolved); err != nil {
		return 0, err
	}
	ask := wire.EchoAsk{Session: q.session, Nonce: rand.Uint64()}
	q.sent++
	start := time.Now()
	if err := id.Connect(ib.CMConnParam{QPN: q.qp.Num(), RetryCount: 7, RNRRetry: 7, Timeout: wait,
		PrivateData: ask.Append(nil)}); err != nil {
		return 0, err
	}
	ev, err := q.await(ctx, id, ib.CMRejected, ib.CMConnectResponse)
	took := time.Since(start)
	var answer wire.EchoAnswer
	if err == nil && answer.Decode(ev.Param.PrivateData) && answer.Nonce == ask.Nonce {
		q.told.asked = q.sent
		q.told.add(&answer, start, took, q.marked)
	}
	return took, err
}

// await waits for an event of an ID of one of these types.
func (q *asker) await(ctx context.Context, id ib.CMID, want ...ib.CMEventType) (ib.CMEvent, error) {
	for {
		ev, err := q.ch.NextEvent(ctx)
		if err != nil {
			return ev, err
		}
		if ev.Listener != nil {
			_ = ev.ID.Close()
		}
		errno := ev.Errno()
		switch {
		case ev.ID != id || ev.Listener != nil: // of an ID that is closed
		case slices.Contains(want, ev.Type):
			return ev, nil
		case errno != 0:
			return ev, errno
		default:
			return ev, fmt.Errorf("ask the peer: %v is no answer: %w", ev.Type, ib.ErrState)
		}
	}
}
