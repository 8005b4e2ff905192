package server

import (
	"fmt"
	"slices"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// What a client holds passes through these lists of held: pending, of the request that is carried out; then holds, of
// the object that it has made or changed (add, change), or booked, of the session itself. Each amount counts in the
// accounts from book to give, for the client, for its user, for the machine and for the device. give follows when the
// thing is gone, not when it is only closed: a client whose memory keeps the worker busy stays charged.

// Limits bound what one client, or all clients of one user, may hold. With a field of 0 only the
// limits of the device and the machine apply.
type Limits struct {
	QPs, MRs, MWs, CQs, CQEntries, PDs, SRQs, AHs, XRCDs, Channels int

	Pinned      int64 // bytes: registered pages of memfds, each counted once, and rings
	Heap        int64 // bytes of the daemon's own memory for all of these: see heap.go
	Connections int   // of a user; ignored for a client
	CM          CMLimits
}

// CMLimits bound a user's use of the devices' connection managers together (device.CMLimits).
// 0 means the default. They are ignored in the Limits of a client.
type CMLimits struct{ IDs, Listeners, HalfOpen, Backlog int }

// resource is a kind of thing that accounts count.
type resource uint8

const (
	qps resource = iota
	mrs
	mws
	cqs
	cqEntries
	pds
	srqs
	ahs
	xrcds
	channels
	pinned
	heap
	mappings // this and the following are limited by the machine only: see scarce.go
	descriptors
	threads
	numResources
)

var resourceText = [numResources]struct{ name, key string }{
	qps: {"QPs", "qps"}, mrs: {"memory regions", "mrs"}, mws: {"memory windows", "mws"}, cqs: {"CQs", "cqs"},
	cqEntries: {"CQ entries", "cq_entries"},
	pds:       {"PDs", "pds"}, srqs: {"SRQs", "srqs"}, ahs: {"address handles", "ahs"}, xrcds: {"XRC domains", "xrcds"},
	channels: {"completion channels", "channels"}, pinned: {"bytes of memory", "pinned"},
	heap:     {"bytes of the daemon's heap", "heap"},
	mappings: {"mappings", "mappings"}, descriptors: {"descriptors", "descriptors"},
	threads: {"threads that may hang", "threads"},
}

// table returns the limits by resource.
func (l *Limits) table() [numResources]int64 {
	return [numResources]int64{qps: int64(l.QPs), mrs: int64(l.MRs), mws: int64(l.MWs), cqs: int64(l.CQs),
		cqEntries: int64(l.CQEntries), pds: int64(l.PDs),
		srqs: int64(l.SRQs), ahs: int64(l.AHs), xrcds: int64(l.XRCDs), channels: int64(l.Channels), pinned: l.Pinned,
		heap: l.Heap}
}

// held is an amount of a resource.
type held struct {
	what resource
	n    int64
}

// accounts holds the limits, and the resources that users hold.
type accounts struct {
	// It is taken under locks of the device (Alloc, Stage, Charge), for which other clients wait: nothing here may
	// block.
	mu           sync.Mutex
	client, user [numResources]int64 // limits
	connections  int                 // limit for a user
	cm           CMLimits            // limits for a user
	users        map[uint32]*account
	scarce       [numScarce]scarce
}

// account counts the resources that a client, or a user, holds.
type account struct {
	used    [numResources]int64
	clients int // connections of a user
	closer  *closer
	traffic traffic                        // of a user's queue pairs that are closed
	shown   Bytes                          // what UserBytes has returned of a user last
	on      map[*unit]*[numResources]int64 // what of used a user has of each device
}

// of returns what a user has of a device. The caller holds accounts.mu.
func (u *account) of(d *unit) *[numResources]int64 {
	if u.on[d] == nil {
		if u.on == nil {
			u.on = map[*unit]*[numResources]int64{}
		}
		u.on[d] = &[numResources]int64{}
	}
	return u.on[d]
}

// set sets the limits. For what the machine is short of, UserLimits then shows the most that one user can have, not
// 0.
func (a *accounts) set(client, user Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client, a.user, a.connections = client.table(), user.table(), user.Connections
	a.cm = user.CM
	for what, s := range scarceOf {
		if s != plenty && a.user[what] == 0 {
			a.user[what] = a.scarce[s].most / 2 // room grants no single user more
		}
	}
}

// mostRefused is how many connections of a user beyond its limit may wait to be closed. With
// more, enter returns crowd, and the server accepts none until one of them is closed.
const mostRefused = 64

// enter returns the account of a user and counts one more client in it. An error says that the
// client must be refused; the caller must call leave all the same. crowd reports that many
// refused connections of the user wait to be closed.
func (a *accounts) enter(uid uint32) (u *account, crowd bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == nil {
		a.users = map[uint32]*account{}
	}
	if u = a.users[uid]; u == nil {
		u = &account{closer: newCloser()}
		a.users[uid] = u
	}
	// Also for one that is refused, until it is closed: its descriptor is there.
	u.clients++
	waiting := u.closer.waiting()
	switch {
	case a.connections > 0 && u.clients > a.connections:
		err = driver.Refuse("connect", "connections of one user", u.clients,
			fmt.Sprintf("%d; limits.user.connections in the daemon's configuration raises it", a.connections),
			ib.ErrLimit)
	case waiting >= mostWaiting:
		err = driver.Refuse("connect", "connections of one user that wait for files to be closed", waiting,
			fmt.Sprintf("less than %d; a program of this user has sent files that take long to close", mostWaiting),
			ib.ErrLimit)
	}
	return u, waiting >= 2*mostWaiting || a.connections > 0 && u.clients > a.connections+mostRefused, err
}

// leave undoes enter, once nothing of the connection is left, its descriptor included. With the last client the
// user's closer goes, whose threads have nothing to do then: each job of theirs keeps a client counted.
func (a *accounts) leave(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u := a.users[uid]; u.clients == 1 {
		delete(a.users, uid)
	} else {
		u.clients--
	}
}

// take books n more of a resource for the current request, and the heap that they use, if the
// client and its user may have them.
func (c *session) take(op abi.Op, what resource, n int64) error {
	if err := c.book(op, what, n); err != nil {
		return err
	}
	c.pending = append(c.pending, held{what, n})
	// What an object costs of the daemon's own memory is bounded for each user, too.
	if each := heapBytes[what]; each > 0 {
		return c.take(op, heap, each*n)
	}
	return nil
}

// keepBooked moves what the current request has taken of these resources to the session. They stay booked until reap
// has closed what they are for.
func (c *session) keepBooked(list ...resource) {
	c.pending = slices.DeleteFunc(c.pending, func(h held) bool {
		if slices.Contains(list, h.what) {
			c.booked = append(c.booked, h)
			return true
		}
		return false
	})
}

// book adds n to the accounts without assigning it to the current request or to the heap. The caller sees to it that
// give follows. Shards call it for Stage; all else is on the session's goroutine.
func (c *session) book(op abi.Op, what resource, n int64) error {
	a := &c.srv.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.room(op.String(), &c.own, c.user, what, n); err != nil {
		return err
	}
	if c.unit != nil {
		// The device's own tables are finite: the last user to come must find room in them.
		has := c.user.of(c.unit)[what]
		if most, ok := c.unit.objects[what].allows(has, n); !ok {
			return driver.Refuse(op.String(), resourceText[what].name+" of one user", has+n,
				fmt.Sprintf("%d: of the device's %d, a user may hold as many as stay free for others", most,
					c.unit.objects[what].most), ib.ErrLimit)
		}
	}
	c.own.used[what] += n
	c.user.used[what] += n
	a.scarce[scarceOf[what]].used += n
	if c.unit != nil {
		c.unit.objects[what].used += n
		c.user.of(c.unit)[what] += n
	}
	return nil
}

// charge books n more bytes of the heap for a user, or -n less. The connection manager calls it with its lock held
// (CMLimits.Charge). Less is always allowed.
func (a *accounts) charge(user *account, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > 0 {
		if err := a.room("connection manager", nil, user, heap, n); err != nil {
			return err
		}
	}
	user.used[heap] += n
	a.scarce[scarceOf[heap]].used += n
	return nil
}

// room returns an error if a client or its user may not have n more. client is nil for what belongs to a user only. The
// caller holds accounts.mu.
func (a *accounts) room(op string, client, user *account, what resource, n int64) error {
	text := &resourceText[what]
	full := func(of string, would int64, allowed string) error {
		return driver.Refuse(op, fmt.Sprintf("%s of one %s", text.name, of), would, allowed, ib.ErrLimit)
	}
	if kind := scarceOf[what]; kind != plenty {
		s, holds := &a.scarce[kind], user.usedOf(kind)
		if left, ok := s.allows(holds, n); !ok {
			return full("user", holds+n, fmt.Sprintf("%d: of %d, a user may hold as many as stay free for others; %s",
				left, s.most, scarceText[kind]))
		}
	}
	for _, l := range []struct {
		of     string
		most   int64
		holder *account
		table  string
	}{
		{"client", a.client[what], client, "limits.connection"},
		{"user", a.user[what], user, "limits.user"},
	} {
		// This way round the sum cannot overflow, whatever n a request asks for.
		if l.holder != nil && l.most > 0 && n > l.most-l.holder.used[what] {
			return full(l.of, l.holder.used[what]+n,
				fmt.Sprintf("%d; %s.%s in the daemon's configuration raises it", l.most, l.table, text.key))
		}
	}
	return nil
}

// give subtracts resources from the accounts. Descriptors and heap that were booked before the device was chosen are
// subtracted from its objects all the same: a device limits neither (scarceObjects).
func (c *session) give(list []held) {
	a := &c.srv.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range list {
		c.own.used[h.what] -= h.n
		c.user.used[h.what] -= h.n
		a.scarce[scarceOf[h.what]].used -= h.n
		if c.unit != nil {
			c.unit.objects[h.what].used -= h.n
			c.user.of(c.unit)[h.what] -= h.n
		}
	}
}

// change assigns the resources taken for the current request to o. They replace what o held of
// the same resources, which is given back.
func (c *session) change(o *object) {
	for _, p := range c.pending {
		o.holds = slices.DeleteFunc(o.holds, func(h held) bool {
			// A resize: the object has the new amount instead of the old one.
			if h.what == p.what {
				c.give([]held{h})
			}
			return h.what == p.what
		})
	}
	o.holds = append(o.holds, c.pending...)
	c.pending = nil
}
