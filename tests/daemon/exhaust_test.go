package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
)

// limits creates as many objects of each kind as it may. Each refusal must name the limit, its
// value and how to raise it; after a Close one more object must be possible.
func (a *attacker) limits(rounds int) {
	for range rounds {
		for _, l := range limited {
			n, err := newTenant(a.Socket, shape{size: 4096, qps: 1})
			must(err)
			if err := l.exhaust(n); err != nil {
				a.problem("%s: %v", l.key, err)
			}
			n.close()
			a.count("limits")
		}
	}
}

// limited are the kinds of objects, with the limits that small sets for a client.
var limited = []limit{
	{"qps", 20, func(n *tenant) (any, error) {
		return n.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: n.cq, RecvCQ: n.cq,
			Cap: ib.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	}},
	{"mrs", 20, func(n *tenant) (any, error) { return n.pd.RegMR(ib.MRInit{Buf: n.buf, Access: rights}) }},
	{"mws", 20, func(n *tenant) (any, error) { return n.pd.AllocMW(ib.MWType2) }},
	{"cq_entries", 4096, func(n *tenant) (any, error) { return n.dev.CreateCQ(ib.CQInit{Entries: 100}) }},
	{"pds", 10, func(n *tenant) (any, error) { return n.dev.AllocPD() }},
	{"srqs", 10, func(n *tenant) (any, error) {
		return n.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 1, MaxSGE: 1}})
	}},
	{"ahs", 10, func(n *tenant) (any, error) { return n.pd.CreateAH(ib.AHAttr{DGID: n.gid, Port: 1}) }},
	{"xrcds", 10, func(n *tenant) (any, error) { return n.dev.AllocXRCD() }},
	{"channels", 10, func(n *tenant) (any, error) { return n.dev.CreateChannel() }},
	{"pinned", 16 << 20, func(n *tenant) (any, error) {
		buf, err := client.Alloc(1 << 20)
		if err != nil {
			return nil, err
		}
		defer client.Free(buf) // the registration keeps the memory
		return n.pd.RegMR(ib.MRInit{Buf: buf, Access: rights})
	}},
}

type limit struct {
	key  string
	most int
	make func(n *tenant) (any, error)
}

// exhaust creates objects until one is refused.
func (l *limit) exhaust(n *tenant) error {
	var last interface{ Close() error }
	for range l.most + 1 {
		made, err := l.make(n)
		if err != nil {
			return errors.Join(l.says(err), l.another(n, last))
		}
		last = made.(interface{ Close() error })
	}
	return errors.New("there is no limit")
}

// says checks the text of a refusal.
func (l *limit) says(err error) error {
	var attr *ib.AttrError
	if !errors.Is(err, ib.ErrLimit) || !errors.As(err, &attr) ||
		!strings.Contains(attr.Allowed, fmt.Sprintf("%d; limits.connection.%s ", l.most, l.key)) {
		return fmt.Errorf("refused with %w", err)
	}
	return nil
}

// another closes the last object, and creates one more.
func (l *limit) another(n *tenant, last interface{ Close() error }) error {
	if last == nil {
		return errors.New("there was none")
	}
	if err := last.Close(); err != nil {
		return err
	}
	_, err := l.make(n)
	return err
}

// connections opens as many connections as it may, sends something on some of them, and closes
// them.
func (a *attacker) connections(rounds int) {
	for range rounds {
		var open []*client.Device
		for {
			d, err := client.Dial(context.Background(), client.Options{Socket: a.Socket})
			if err != nil {
				a.count("refused")
				heard := errors.Is(err, ib.ErrLimit) && strings.Contains(err.Error(), "40; limits.user.connections")
				if !heard && !cut(err) {
					a.problem("one connection too many: %v", err)
				}
				break
			}
			a.count("taken")
			open = append(open, d)
		}
		for _, d := range open {
			must(d.Close())
		}
		for range 200 {
			r, err := dialRaw(a.Socket)
			must(err)
			if a.rng.IntN(2) == 0 {
				if err := r.conn.Send(abi.Header{Op: abi.OpHello, Seq: 1}, a.body(8)); err != nil && !cut(err) {
					a.problem("hello: %v", err)
				}
			}
			r.close()
		}
	}
}

// cut reports whether the daemon has closed a connection at once, as it does if a user has too many
// connections beyond its limit, including refused ones that are not closed yet.
func cut(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, client.ErrGone)
}

// silence sends requests without reading the replies, and requests events without reading them.
func (a *attacker) silence(rounds int) {
	var quiet []*queues
	for range rounds {
		q := newQueues(a.Socket)
		quiet = append(quiet, q)
		for range 20_000 { // armed again and again
			*word(q.ready, ringWake) = 2
			a.plausible(q, q.send[0])
			a.ring(q, 0)
		}
		a.again(q, 0)
		raw, err := q.conn.SyscallConn()
		must(err)
		must(raw.Control(func(fd uintptr) {
			request := abi.Put(nil, &abi.Header{Op: abi.OpHello})
			request = append(request, abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version,
				MaxVersion: abi.Version})...)
			for err = nil; err == nil; { // until the daemon stops reading
				err = unix.Sendto(int(fd), request, unix.MSG_DONTWAIT, nil)
			}
		}))
		if !errors.Is(err, unix.EAGAIN) {
			a.problem("requests without end: %v", err)
		}
		a.count("waits")
	}
	for _, q := range quiet {
		q.close()
	}
}
