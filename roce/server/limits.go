package server

import (
	"fmt"
	"slices"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/abi"
)

// Limits bound what one client, or all clients of one user, may hold. A field of 0 is no
// limit but the device's. Pinned leaves out what a QP stages of memory that is no memfd,
// 512 KiB at most: QPs bound it.
type Limits struct {
	QPs, MRs, MWs, CQEntries, PDs, SRQs, AHs, XRCDs, Channels int
	Pinned                                                    int64 // bytes: registered memfds, and rings
	Connections                                               int   // of a user
}

// resource is what Limits count.
type resource uint8

const (
	qps resource = iota
	mrs
	mws
	cqEntries
	pds
	srqs
	ahs
	xrcds
	channels
	pinned
	numResources
)

var resourceText = [numResources]struct{ name, key string }{
	qps: {"QPs", "qps"}, mrs: {"memory regions", "mrs"}, mws: {"memory windows", "mws"}, cqEntries: {"CQ entries", "cq_entries"},
	pds: {"PDs", "pds"}, srqs: {"SRQs", "srqs"}, ahs: {"address handles", "ahs"}, xrcds: {"XRC domains", "xrcds"},
	channels: {"completion channels", "channels"}, pinned: {"bytes of memory", "pinned"},
}

// table returns the limits by resource.
func (l *Limits) table() [numResources]int64 {
	return [numResources]int64{qps: int64(l.QPs), mrs: int64(l.MRs), mws: int64(l.MWs), cqEntries: int64(l.CQEntries), pds: int64(l.PDs),
		srqs: int64(l.SRQs), ahs: int64(l.AHs), xrcds: int64(l.XRCDs), channels: int64(l.Channels), pinned: l.Pinned}
}

// held is an amount of a resource.
type held struct {
	what resource
	n    int64
}

// accounts are what clients and users hold.
type accounts struct {
	mu           sync.Mutex
	client, user [numResources]int64 // limits
	connections  int                 // limit of a user's
	users        map[uint32]*account
}

// account is what a client, or a user, holds.
type account struct {
	used    [numResources]int64
	clients int // of a user
}

func (a *accounts) set(client, user Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client, a.user, a.connections = client.table(), user.table(), user.Connections
}

// enter returns the account of a user, for one more client, and an error if that is one
// too many: it leaves all the same.
func (a *accounts) enter(uid uint32) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == nil {
		a.users = map[uint32]*account{}
	}
	u := a.users[uid]
	if u == nil {
		u = &account{}
		a.users[uid] = u
	}
	if u.clients++; a.connections > 0 && u.clients > a.connections {
		return u, &ib.AttrError{Op: "connect", Attr: "connections of one user", Value: u.clients,
			Allowed: fmt.Sprintf("%d; limits.user.connections in the daemon's configuration raises it", a.connections), Err: ib.ErrLimit}
	}
	return u, nil
}

func (a *accounts) leave(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u := a.users[uid]; u.clients == 1 {
		delete(a.users, uid)
	} else {
		u.clients--
	}
}

// take books n more for the object at hand, if the client and its user may have them.
func (c *session) take(op abi.Op, what resource, n int64) error {
	a := &c.srv.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range []struct {
		of    string
		most  int64
		used  *int64
		table string
	}{
		{"client", a.client[what], &c.own.used[what], "limits.connection"},
		{"user", a.user[what], &c.user.used[what], "limits.user"},
	} {
		if l.most > 0 && n > l.most-*l.used {
			text := &resourceText[what]
			return &ib.AttrError{Op: op.String(), Attr: fmt.Sprintf("%s of one %s", text.name, l.of), Value: *l.used + n,
				Allowed: fmt.Sprintf("%d; %s.%s in the daemon's configuration raises it", l.most, l.table, text.key), Err: ib.ErrLimit}
		}
	}
	c.own.used[what] += n
	c.user.used[what] += n
	c.pending = append(c.pending, held{what, n})
	return nil
}

// give books out.
func (c *session) give(list []held) {
	a := &c.srv.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range list {
		c.own.used[h.what] -= h.n
		c.user.used[h.what] -= h.n
	}
}

// change makes what was taken for this request o's, in place of what o held of that
// kind.
func (c *session) change(o *object) {
	for _, p := range c.pending {
		o.holds = slices.DeleteFunc(o.holds, func(h held) bool {
			if h.what == p.what {
				c.give([]held{h})
			}
			return h.what == p.what
		})
	}
	o.holds = append(o.holds, c.pending...)
	c.pending = nil
}
