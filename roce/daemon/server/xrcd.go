package server

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// XRC domains and target QPs that several processes share, as with ibv_open_xrcd(3) and ibv_open_qp(3). What is
// shared has no owner among the sessions: a domain, and each target, ends with its last handle, whichever session has
// that.

// mostOpeners is how many handles there may be of one target QP. Each is told of the QP's events, by the shard.
const mostOpeners = 256

// domain is an XRC domain: of one session, or of all sessions of a user that name the same file. It is the tenant
// (device.Group) of the target QPs that are made in it without a PD, and so may outlive the session that has made
// them. Such a QP has no rings, and reaches only memory of the SRQs that its peer's requests name, which are of one
// session each: their PDs, their worker. Events of a target are told to all who have it open.
type domain struct {
	unit *unit
	key  domainKey // zero for a domain of one session

	// life is held while the domain, or a target, is made or closed. It is taken before the locks of
	// the device.
	life    sync.Mutex
	core    *device.XRCD
	pd      *device.PD // of the targets, which reach no memory by it; nil before the first one
	handles int        // of all sessions
	targets map[ib.QPN]*device.QP
	deleted [2]int // entries of targets and of openers, for compact

	mu      sync.Mutex                // taken under locks of the device
	openers map[*device.QP][]*session // written with life held, too; a session is there once for each handle
}

// domainKey identifies a file, by the time of its creation too: a later file may have the same inode.
type domainKey struct {
	uid          uint32
	major, minor uint32
	inode        uint64
	born         unix.StatxTimestamp
}

// domains are the shared XRC domains of a device.
type domains struct {
	mu  sync.Mutex // taken before domain.life
	all map[domainKey]*domain
}

// xrcd is the handle of a session for a domain.
type xrcd struct {
	*domain
	users int // SRQs and QPs of the session in the domain
}

// fileOf returns the key of the domain of a file. It uses what the kernel knows, and so does not wait
// for the file's server, which may be a program of the client.
func (c *session) fileOf(op abi.Op, fd int) (key domainKey, err error) {
	var st unix.Statx_t
	// Who can open the file may share the domain, as with ibv_open_xrcd, but only with processes of the same user.
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_BTIME, &st)
	if err != nil {
		return key, fmt.Errorf("%v: the file: %w: %w", op, ib.ErrInvalid, os.NewSyscallError("statx", err))
	}
	return domainKey{c.who.Uid, st.Dev_major, st.Dev_minor, st.Ino, st.Btime}, nil
}

// allocXRCD makes a domain or, with a file, finds the one of that file. The descriptor is closed with the request:
// the domain knows the file by its key, and does not keep it.
func allocXRCD(c *session, body []byte, fds []int) (reply, error) {
	const op = abi.OpAllocXRCD
	r, err := abi.Get[abi.AllocXRCD](body)
	if err == nil {
		err = c.take(op, xrcds, 1)
	}
	if err != nil {
		return noBody(err)
	}
	var d *domain
	switch len(fds) {
	case 0:
		d, err = c.unit.newDomain(domainKey{})
	case 1:
		var key domainKey
		if key, err = c.fileOf(op, fds[0]); err == nil {
			d, err = c.unit.share(key, r.Flags)
		}
	default:
		err = driver.Refuse(op.String(), "descriptors", len(fds), "none, or the file of the domain", ib.ErrInvalid)
	}
	if err != nil {
		return noBody(err)
	}
	x := &xrcd{domain: d}
	return c.holds(abi.KindXRCD, x, x.close)
}

// using counts an object of the session in the domain, and returns a function that closes the object by f
// and, if f succeeds, ends the count. If x is nil it returns f.
func (x *xrcd) using(f func() error) func() error {
	if x == nil {
		return f
	}
	x.users++
	return func() error {
		err := f()
		if err == nil {
			x.users--
		}
		return err
	}
}

// newDomain makes a domain with one handle.
func (u *unit) newDomain(key domainKey) (*domain, error) {
	core, err := u.dev.AllocXRCD()
	if err != nil {
		return nil, err
	}
	return &domain{unit: u, key: key, core: core.(*device.XRCD), handles: 1, targets: map[ib.QPN]*device.QP{},
		openers: map[*device.QP][]*session{}}, nil
}

// share returns the domain of a file, with one more handle. It holds domains.mu over the verb, so that of two who ask
// for a new domain one makes it.
func (u *unit) share(key domainKey, flags uint32) (*domain, error) {
	const op = "allocate XRCD"
	u.domains.mu.Lock()
	defer u.domains.mu.Unlock()
	d := u.domains.all[key]
	switch {
	case d != nil && flags&abi.XRCDExclusive != 0:
		return nil, driver.Refuse(op, "flags", flags, "without XRCDExclusive: the file has a domain", ib.ErrInvalid)
	case d != nil:
		// close holds both locks, too: a domain that is found here is not about to end.
		d.life.Lock()
		defer d.life.Unlock()
		d.handles++
		return d, nil
	case flags&abi.XRCDCreate == 0:
		return nil, fmt.Errorf("%s: the file has no domain, and XRCDCreate is not set: %w", op, ib.ErrState)
	}
	d, err := u.newDomain(key)
	if err == nil {
		u.domains.all[key] = d
	}
	return d, err
}

// close closes the session's handle. The last one of all sessions ends the domain.
func (x *xrcd) close() error {
	if x.users > 0 {
		return fmt.Errorf("close XRCD: %w by %d SRQs and QPs; close them first", ib.ErrBusy, x.users)
	}
	d := x.domain
	d.unit.domains.mu.Lock()
	defer d.unit.domains.mu.Unlock()
	d.life.Lock()
	defer d.life.Unlock()
	if d.handles > 1 {
		d.handles--
		return nil
	}
	// It refuses while there are targets, or SRQs of any session.
	if err := d.core.Close(); err != nil {
		return err
	}
	d.handles = 0
	if d.unit.domains.all[d.key] == d {
		delete(d.unit.domains.all, d.key)
	}
	if d.pd == nil {
		return nil
	}
	return d.pd.Close()
}

// createTarget makes an XRC target QP that belongs to the domain.
func createTarget(c *session, r *abi.CreateQP) (reply, error) {
	x, err := lookup[*xrcd](c, abi.OpCreateQP, "XRCD", r.XRCD)
	if err == nil {
		err = c.takeTarget(abi.OpCreateQP)
	}
	if err != nil {
		return noBody(err)
	}
	q, err := x.create(c)
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.Ring{Handle: c.addTarget(x, q), Num: uint32(q.Num())})
}

// create makes a target, with its first opener.
func (d *domain) create(c *session) (*device.QP, error) {
	d.life.Lock()
	defer d.life.Unlock()
	if d.pd == nil {
		// Without a worker: targets reach memory by the PDs of SRQs, each with the worker of its session.
		pd, err := d.unit.dev.AllocPDFor(d, nil)
		if err != nil {
			return nil, err
		}
		d.pd = pd
	}
	made, err := d.pd.CreateQP(ib.QPInit{Type: ib.XRCTGT, XRCD: d.core})
	if err != nil {
		return nil, err
	}
	q := made.(*device.QP)
	d.targets[q.Num()] = q
	// Under life, so that nobody opens or ends the target before its first opener is noted.
	d.join(q, c)
	return q, nil
}

// openQP gives the session a handle of a target that another one has made in the same domain (ibv_open_qp(3)).
func openQP(c *session, r *abi.OpenQP) (reply, error) {
	const op = abi.OpOpenQP
	if err := c.take(op, qps, 1); err != nil {
		return noBody(err)
	}
	x, err := lookup[*xrcd](c, op, "XRCD", r.XRCD)
	if err != nil {
		return noBody(err)
	}
	if r.Type != uint32(ib.XRCTGT) {
		return noBody(driver.Refuse(op.String(), "Type", r.Type, fmt.Sprintf("%d, XRC_RECV", ib.XRCTGT), ib.ErrInvalid))
	}
	if err := c.takeTarget(op); err != nil {
		return noBody(err)
	}
	q, err := x.open(c, ib.QPN(r.QPN))
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.Object{Handle: c.addTarget(x, q)})
}

// open finds a target by its number. Who has the domain may open all that was made in it without a PD.
func (d *domain) open(c *session, num ib.QPN) (*device.QP, error) {
	d.life.Lock()
	defer d.life.Unlock()
	q := d.targets[num]
	if q == nil {
		return nil, driver.Refuse("open QP", "QPN", fmt.Sprintf("%#x", uint32(num)),
			"a target QP of the domain that was made without a PD", ib.ErrInvalid)
	}
	if n := len(d.openers[q]); n == mostOpeners {
		return nil, driver.Refuse("open QP", fmt.Sprintf("handles of target QP %#x", uint32(num)), n+1,
			fmt.Sprintf("%d of all processes; make another target QP", mostOpeners), ib.ErrLimit)
	}
	d.join(q, c)
	return q, nil
}

// ownTurn returns what the session waits for before it answers that a QP has ended: gone or, for an XRC
// target, the turn of its own worker. Other workers may write to memory of other sessions, which may
// block.
func (c *session) ownTurn(q *device.QP, gone <-chan struct{}) <-chan struct{} {
	if q.Type() == ib.XRCTGT {
		return c.worker.Ended()
	}
	return gone
}

// addTarget adds a handle of a target QP of a domain. Its close ends a handle. The QP may go on, for others, so what
// the client waits for is its own worker only.
func (c *session) addTarget(x *xrcd, q *device.QP) abi.Handle {
	o := &object{kind: abi.KindQP, value: q, target: true}
	o.close = x.using(func() error {
		x.leave(c, q)
		o.gone = c.ownTurn(q, nil)
		return nil
	})
	c.visit.madeQP()
	return c.add(o)
}

// join notes that a session has a handle of a target.
func (d *domain) join(q *device.QP, c *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.openers[q] = append(d.openers[q], c)
}

// leave undoes join. The QP ends with the last handle. When it returns, no event of the QP is on its
// way to the session for this handle.
func (d *domain) leave(c *session, q *device.QP) {
	d.life.Lock()
	defer d.life.Unlock()
	d.mu.Lock()
	last := len(d.openers[q]) == 1
	d.mu.Unlock()
	if last { // without mu, which Event takes under locks of the device
		c.closesQP(q)
		q.Destroy()
		delete(d.targets, q.Num())
		d.targets = compact(d.targets, &d.deleted[0])
	}
	d.part(c, q)
	if last {
		smaller := compact(d.openers, &d.deleted[1]) // without mu
		d.mu.Lock()
		d.openers = smaller
		d.mu.Unlock()
	}
}

// part undoes one join.
func (d *domain) part(c *session, q *device.QP) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.openers[q]
	for i := range list {
		if list[i] == c {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if d.openers[q] = list; len(list) == 0 {
		delete(d.openers, q)
	}
}

// Alloc is not used: targets have no rings (device.Tenant).
func (d *domain) Alloc(int) ([]byte, error) {
	return nil, errors.New("an XRC target has no rings")
}

// Notify is not used: targets have no CQs (device.Tenant).
func (d *domain) Notify(*device.CQ) {}

// Stage allows it: each session with a handle of the target has booked it (device.Tenant).
func (d *domain) Stage(*device.QP) bool { return true }

// Event sends an event of a target to all sessions that have it open (device.Tenant). A shard calls it with its lock
// held.
func (d *domain) Event(e ib.Event) {
	q, ok := e.QP.(*device.QP)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	told := map[*session]bool{}
	for _, c := range d.openers[q] {
		if !told[c] { // Event goes to all handles of the session
			told[c] = true
			c.Event(e)
		}
	}
}

// QPFailed records the failure of a target for one of the sessions that have it open (device.Tenant).
func (d *domain) QPFailed(f device.QPFailure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for q, openers := range d.openers {
		if q.Num() == f.Num && len(openers) > 0 {
			// One line in the log for one failure, whoever has it open.
			openers[0].QPFailed(f)
			return
		}
	}
}

// Fault ends the sessions that have targets open (device.Tenant): the memory is of one of them. Which one, the engine
// cannot tell: it knows the target that it was working on. They are all of one user.
func (d *domain) Fault(addr uintptr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := map[*session]bool{}
	for _, list := range d.openers {
		for _, c := range list {
			if !told[c] {
				told[c] = true
				c.Fault(addr)
			}
		}
	}
}

// Includes reports whether a session has a target of the domain open (device.Group). The connection manager asks,
// with its lock held, whether an ID of t may connect a target.
func (d *domain) Includes(t device.Tenant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, list := range d.openers {
		for _, c := range list {
			if c.Includes(t) {
				return true
			}
		}
	}
	return false
}
