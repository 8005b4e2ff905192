package server

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/internal/procmem"
	"github.com/goroce/goroce/roce/internal/device"
)

// This file registers clients' memory, of two kinds. Of a memfd (memfd.go) the daemon has a mapping, whose pages are
// there: shards copy from and to it themselves. Memory of the client's process (procmem) is reached by system calls,
// which may block for as long as the client likes: only the session's worker makes them.

// mapping is registered memory of a client: a range of a memfd, or of its process.
type mapping struct {
	mr.Memory
	files    *files // the session's; for memory of a process this and the following fields are zero
	file     *file
	extent   *extent // contains the range
	from, to uint64  // the range in the file, rounded to whole pages
}

// free releases the memory. The caller makes sure that nothing accesses it any more.
func (m *mapping) free() {
	if m.files != nil {
		m.files.release(m)
	}
}

// region is a registration and the memory behind it.
type region struct {
	*device.MR
	mapping *mapping      // the session's goroutine replaces it (reregMR)
	kind    atomic.Uint32 // abi.RegMR.Kind; inspections read it
	stays   atomic.Uint32 // abi.Stays
}

// of notes of what kind the memory of a request is, for inspections.
func (r *region) of(q *abi.RegMR) {
	r.kind.Store(q.Kind)
	r.stays.Store(0)
	if q.Kind == abi.MemProcess {
		r.stays.Store(uint32(q.File))
	}
}

// memory returns the memory that a request names, if the client may register it. Whatever it returns is freed by its
// caller if the verb fails.
func (c *session) memory(op abi.Op, r *abi.RegMR, fds []int) (*mapping, error) {
	switch r.Kind {
	case abi.MemFD:
		f, err := lookup[*file](c, op, "File", r.File)
		if err != nil {
			return nil, err
		}
		return c.files.acquire(f, op, r.Addr, r.Length)
	case abi.MemProcess:
		if err := c.openProcess(op, fds); err != nil {
			return nil, err
		}
		// At each registration: the process may have executed another program since the last one.
		if err := c.process.Probe(); err != nil {
			return nil, notTouched(op, err)
		}
		// Nothing is pinned. Pages may go, and an access may then block or fail, which is why only the worker
		// accesses it.
		mem, err := c.process.Memory(r.Addr, r.Length)
		if err != nil {
			return nil, notTouched(op, err)
		}
		return &mapping{Memory: mem}, nil
	}
	return nil, driver.Refuse(op.String(), "Kind", r.Kind, "MemFD or MemProcess", ib.ErrInvalid)
}

// isOwn reports whether a user is the daemon's own, whose processes it may reach by the right to ptrace. The real
// user counts, as in the kernel's check: process_vm_readv(2) asks for PTRACE_MODE_ATTACH_REALCREDS.
func (s *Server) isOwn(uid uint32) bool { return int(uid) == os.Getuid() && !s.opts.NoAdministrator }

// openProcess makes the memory of the client's process accessible. It does so once in a session, at the first
// registration, and keeps the descriptor and the account of the thread to the session's end.
func (c *session) openProcess(op abi.Op, fds []int) error {
	own := c.srv.isOwn(c.who.Uid)
	// Two switches, as the daemon's own user can read such memory without a daemon.
	may := &c.srv.otherProcesses
	if own {
		may = &c.srv.ownProcesses
	}
	if !may.Load() {
		return fmt.Errorf("%v: memory that is no memfd, of a process of user %d: %w; allocate it with client.Alloc, "+
			"or see memory.own_processes and memory.other_processes in the daemon's configuration",
			op, c.who.Uid, abi.ErrPermission)
	}
	if c.process != nil {
		return nil
	}
	// A descriptor, and the worker's thread, which the process's memory may block.
	for _, h := range []held{{descriptors, 1}, {threads, 1}} {
		if err := c.take(op, h.what, h.n); err != nil {
			return err
		}
	}
	p, err := c.findProcess(op, own, fds)
	if err != nil {
		return err
	}
	// QPs of the session may meet slow memory from now on, and need more of the daemon's heap for that.
	if err := c.takeLate(op); err != nil {
		p.Close()
		return err
	}
	c.keepBooked(descriptors, threads)
	c.process = p
	return nil
}

// findProcess does the work of openProcess after the permission is checked and the resources are booked.
func (c *session) findProcess(op abi.Op, own bool, fds []int) (p *procmem.Process, err error) {
	if c.pidfd.file == nil || c.who.Pid == 0 {
		return nil, fmt.Errorf("%v: memory that is no memfd: the daemon does not see the client's process, which is "+
			"in another PID namespace that is not below the daemon's: %w; run both in one PID namespace, or the "+
			"daemon on the host", op, ib.ErrNotSupported)
	}
	// The pidfd decides whether the process is still the one that has connected: its number may be used again.
	p = procmem.NewProcess(int(c.who.Pid), c.pidfd.fd)
	if !own || len(fds) > 0 && errors.Is(p.Probe(), procmem.ErrPermission) {
		p, err = c.bindProcess(fds)
	}
	if err != nil {
		return nil, notTouched(op, err)
	}
	return p, nil
}

// bindProcess accesses the memory of a process by the /proc/self/mem that it has opened. This
// is always used for processes of other users, as the daemon's own right to ptrace would extend
// to every program that the process may execute later. For processes of the daemon's user it is
// used if the kernel refuses ptrace (Yama, or a process with capabilities that the daemon lacks).
func (c *session) bindProcess(fds []int) (*procmem.Process, error) {
	if len(fds) != 1 {
		return nil, fmt.Errorf("%w: the client sends no descriptor of its /proc/self/mem; a process of user %d must "+
			"open the file and send it", procmem.ErrPermission, c.who.Uid)
	}
	return procmem.Bind(int(c.who.Pid), c.pidfd.fd, fds[0])
}

// notTouched returns the error that explains why memory of the client's process is refused. Clients tell by the
// sentinel whether other rights, or other arguments, would help.
func notTouched(op abi.Op, err error) error {
	switch {
	case errors.Is(err, procmem.ErrPermission):
		err = fmt.Errorf("%w: %w; memory of client.Alloc needs none", abi.ErrPermission, err)
	case errors.Is(err, procmem.ErrNotMemory), errors.Is(err, procmem.ErrUnmapped):
		err = fmt.Errorf("%w: %w", ib.ErrInvalid, err)
	case errors.Is(err, procmem.ErrGone):
		err = fmt.Errorf("%w: %w", ib.ErrClosed, err)
	}
	return fmt.Errorf("%v: memory that is no memfd: %w", op, err)
}

// regMR registers memory. The region's object has two ends: close revokes the key, free ends the mapping, which may
// be another one by then (reregMR).
func regMR(c *session, body []byte, fds []int) (reply, error) {
	const op = abi.OpRegMR
	r, err := abi.Get[abi.RegMR](body)
	if err == nil {
		err = c.take(op, mrs, 1)
	}
	if err != nil {
		return noBody(err)
	}
	pd, err := lookup[*device.PD](c, op, "PD", r.PD)
	if err != nil {
		return noBody(err)
	}
	m, err := c.memory(op, &r, fds)
	if err != nil {
		return noBody(err)
	}
	// The memory is there and populated before the key exists.
	core, err := pd.RegMemory(m.Memory, r.IOVA, ib.Access(r.Access))
	if err != nil {
		m.free()
		return noBody(err)
	}
	reg := &region{MR: core, mapping: m}
	reg.of(&r)
	o := &object{kind: abi.KindMR, value: reg}
	o.close = func() (err error) {
		o.gone, err = reg.Deregister()
		return err
	}
	// By reg: a re-registration may have put other memory there.
	o.free = func() { reg.mapping.free() }
	return withBody(abi.RegReply{Handle: c.add(o), Key: abi.Handle(core.LKey())})
}

// reregMR changes a region. The client's handle stays; the key does only if it asks for that (KeepKeys). When the
// verb has returned no shard is in the old memory, but the worker may be, until gone is closed.
func reregMR(c *session, body []byte, fds []int) (reply, error) {
	const op = abi.OpReregMR
	r, err := abi.Get[abi.ReregMR](body)
	if err != nil {
		return noBody(err)
	}
	reg, err := lookup[*region](c, op, "MR", r.MR)
	if err != nil {
		return noBody(err)
	}
	pd, err := optional[*device.PD](c, op, "PD", r.PD)
	if err != nil {
		return noBody(err)
	}
	mask, m := ib.ReregMask(min(r.Mask&^abi.KeepKeys, 0xFF)), &mapping{Memory: mr.Bytes(nil)}
	if mask&ib.ReregTranslation != 0 {
		if m, err = c.memory(op, &r.RegMR, fds); err != nil {
			return noBody(err)
		}
	}
	gone, err := reg.ReregMemory(mask, pd, m.Memory, r.IOVA, ib.Access(r.Access), r.Mask&abi.KeepKeys != 0)
	if err != nil {
		m.free()
		return noBody(err)
	}
	if mask&ib.ReregTranslation != 0 {
		// m is what is to be freed from here on: the old memory, once nobody is in it.
		m, reg.mapping = reg.mapping, m
		reg.of(&r.RegMR)
	}
	// Without a new translation m is empty, but a worker's turn by the old rights or the old domain may be under
	// way.
	if err := c.retire(op, gone, m.free); err != nil {
		return noBody(err)
	}
	return withBody(abi.RegReply{Handle: r.MR, Key: abi.Handle(reg.LKey())})
}
