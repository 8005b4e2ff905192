package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// knocker fills a user's half-open connections: its IDs connect to a listener of the same user,
// which reads the requests and answers none.
type knocker struct {
	n      *tenant
	cm     ib.CM
	to     netip.AddrPort
	qps    map[ib.CMID]ib.QP // one each, as a REQ with the QPN of a connection is stale (IBTA 12.9.8.3.1)
	asked  int               // requests that have arrived
	denied int               // requests that were rejected or never answered
}

// knock opens a knocker, and waits until a request is rejected to make room for another one.
func knock(n *tenant, ids int) (*knocker, error) {
	k := &knocker{n: n, qps: map[ib.CMID]ib.QP{}}
	err := n.addQPs(ids)
	if err != nil {
		return nil, err
	}
	if k.cm, err = n.dev.OpenCM(); err != nil {
		return nil, err
	}
	l, err := k.cm.CreateID(ib.CMIDInit{})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.Bind(netip.AddrPortFrom(n.gid.Addr(), 0)), l.Listen(0)); err != nil {
		return nil, err
	}
	a, err := l.Query()
	if err != nil {
		return nil, err
	}
	k.to = a.Local
	for _, q := range n.qps[len(n.qps)-ids:] {
		if err := k.open(q); err != nil {
			return nil, err
		}
	}
	for k.denied == 0 || k.asked < ids {
		if err := k.step(); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *knocker) open(q ib.QP) error {
	id, err := k.cm.CreateID(ib.CMIDInit{})
	if err != nil {
		return err
	}
	k.qps[id] = q
	return id.ResolveAddr(netip.AddrPort{}, k.to, time.Second)
}

// step handles an event. An ID whose request was denied is replaced by a new one.
func (k *knocker) step() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ev, err := k.cm.NextEvent(ctx)
	if err != nil {
		return fmt.Errorf("%d requests have arrived: %w", k.asked, err)
	}
	switch ev.Type {
	case ib.CMAddrResolved:
		return ev.ID.ResolveRoute(time.Second)
	case ib.CMRouteResolved:
		return ev.ID.Connect(ib.CMConnParam{QPN: k.qps[ev.ID].Num(), RetryCount: 7})
	case ib.CMConnectRequest:
		k.asked++
		return nil
	case ib.CMRejected, ib.CMUnreachable:
		q, active := k.qps[ev.ID]
		if !active {
			return ev.ID.Close()
		}
		k.denied++
		delete(k.qps, ev.ID)
		return errors.Join(ev.ID.Close(), k.open(q))
	}
	return nil
}

// byAddress connects two clients by address, and disconnects them.
func byAddress(t *testing.T, from, to *daemon) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var cms [2]*rdmacm.CM
	var gids [2]ib.GID
	for i, d := range []*daemon{from, to} {
		n, err := newTenant(d.socket, shape{size: piece})
		if err != nil {
			t.Fatal(err)
		}
		defer n.close()
		gids[i] = n.gid
		if cms[i], err = rdmacm.Open(n.dev, rdmacm.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := cms[1].Listen(ctx, netip.AddrPortFrom(gids[1].Addr(), 0).String(), rdmacm.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept(ctx)
		if err == nil {
			<-c.Done()
			err = c.Close()
		}
		accepted <- err
	}()
	c, err := cms[0].Dial(ctx, l.Addr().String(), rdmacm.Config{})
	if err != nil {
		t.Fatalf("connect by address: %v", err)
	}
	if err := errors.Join(c.Close(), <-accepted); err != nil {
		t.Fatal(err)
	}
}
