package server

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/abi"
	"github.com/goroce/goroce/roce/procmem"
)

// mapping is memory of a client: a piece of its memfd, mapped here, or of its process.
type mapping struct {
	mr.Memory
	pages []byte // what is mapped: whole pages
}

func (m *mapping) free() {
	if m.pages != nil {
		_ = unix.Munmap(m.pages)
	}
}

// mapMemory maps length bytes of a memfd from addr on. The memory must not go away
// under us: the file keeps its size (F_SEAL_SHRINK), and its pages are there.
func mapMemory(op abi.Op, fds []int, addr, length uint64) (*mapping, error) {
	bad := func(attr string, value any, allowed string) (*mapping, error) {
		return nil, &ib.AttrError{Op: op.String(), Attr: attr, Value: value, Allowed: allowed, Err: ib.ErrInvalid}
	}
	if len(fds) != 1 {
		return bad("descriptors", len(fds), "one, of a memfd")
	}
	fd := fds[0]
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return bad("descriptor", err, "a memfd that was made with MFD_ALLOW_SEALING")
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return bad("seals", fmt.Sprintf("%#x", seals), "F_SEAL_SHRINK among them, so that the memory stays")
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return bad("seals", fmt.Sprintf("%#x", seals), "neither F_SEAL_WRITE nor F_SEAL_FUTURE_WRITE: the daemon maps it for writing")
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return bad("memfd", fmt.Sprintf("file system %#x", fs.Type), "plain memory; huge pages that are not reserved could be missing when they are needed")
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if size := uint64(st.Size); addr > size || length > size-addr {
		return bad("range", fmt.Sprintf("%d bytes from %d on", length, addr), fmt.Sprintf("within the %d bytes of the memfd", size))
	}
	if length == 0 {
		return &mapping{Memory: mr.Bytes(nil)}, nil
	}
	page := uint64(os.Getpagesize())
	start := addr &^ (page - 1)
	pages, err := unix.Mmap(fd, int64(start), int(addr-start+length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%v: map %d bytes: %w", op, length, err)
	}
	m := &mapping{mr.Bytes(pages[addr-start:]), pages}
	if err := unix.Madvise(pages, unix.MADV_POPULATE_WRITE); err != nil {
		m.free()
		return nil, fmt.Errorf("%v: there is no memory for %d bytes: %w: %w", op, length, err, ib.ErrLimit)
	}
	return m, nil
}

// region is a registration and the memory behind it.
type region struct {
	*roce.MR
	mapping *mapping
	kind    atomic.Uint32 // of abi.RegMR
}

// memory returns the memory that a request names, if the client may register it.
func (c *session) memory(op abi.Op, r *abi.RegMR, fds []int) (*mapping, error) {
	switch r.Kind {
	case abi.MemFD:
		if err := c.take(op, pinned, int64(min(r.Length, math.MaxInt64/2))); err != nil {
			return nil, err
		}
		return mapMemory(op, fds, r.Addr, r.Length)
	case abi.MemProcess:
		c.pending = append(c.pending, held{pinned, 0}) // in place of what a memfd held
		if err := c.openProcess(op, fds); err != nil {
			return nil, err
		}
		if err := c.process.Probe(); err != nil {
			return nil, notTouched(op, err)
		}
		mem, err := c.process.Memory(r.Addr, r.Length)
		return &mapping{Memory: mem}, err
	}
	return nil, &ib.AttrError{Op: op.String(), Attr: "Kind", Value: r.Kind, Allowed: "MemFD or MemProcess", Err: ib.ErrInvalid}
}

// openProcess finds the client's process, by a descriptor that is no other's later.
func (c *session) openProcess(op abi.Op, fds []int) error {
	own := int(c.who.Uid) == os.Getuid()
	may := &c.srv.otherProcesses
	if own {
		may = &c.srv.ownProcesses
	}
	if !may.Load() {
		return fmt.Errorf("%v: memory that is no memfd, of a process of user %d: %w; allocate it with client.Alloc, or see memory.own_processes and memory.other_processes in the daemon's configuration",
			op, c.who.Uid, abi.ErrPermission)
	}
	if c.process != nil {
		return nil
	}
	pidfd, err := peerPidfd(c.conn.UnixConn, int(c.who.Pid))
	if err != nil {
		return fmt.Errorf("%v: find the client's process: %w", op, err)
	}
	if err := spare(pidfd); err != nil {
		_ = unix.Close(pidfd)
		return err
	}
	p := procmem.NewProcess(int(c.who.Pid), pidfd)
	if !own || len(fds) > 0 && errors.Is(p.Probe(), procmem.ErrPermission) {
		p, err = c.bindProcess(pidfd, fds)
	}
	if err != nil {
		_ = unix.Close(pidfd)
		return notTouched(op, err)
	}
	c.pidfd, c.process = pidfd, p
	return nil
}

// bindProcess takes the memory of a process by what that has opened. Another user's is
// taken so always, as a right of our own would be one over every program that the process
// may begin; our own user's where the kernel refuses us that right (Yama, or a process with
// capabilities that we lack).
func (c *session) bindProcess(pidfd int, fds []int) (*procmem.Process, error) {
	if len(fds) != 1 {
		return nil, fmt.Errorf("%w: user %d has to open it: the client sends no descriptor of its /proc/self/mem", procmem.ErrPermission, c.who.Uid)
	}
	return procmem.Bind(int(c.who.Pid), pidfd, fds[0])
}

// notTouched explains why the client's process is not to be touched.
func notTouched(op abi.Op, err error) error {
	switch {
	case errors.Is(err, procmem.ErrPermission):
		err = fmt.Errorf("%w: %w; memory of client.Alloc needs none", abi.ErrPermission, err)
	case errors.Is(err, procmem.ErrNotMemory):
		err = fmt.Errorf("%w: %w", ib.ErrInvalid, err)
	}
	return fmt.Errorf("%v: memory that is no memfd: %w", op, err)
}

// soPeerPidfd is SO_PEERPIDFD of asm-generic/socket.h (Linux 6.5).
const soPeerPidfd = 77

// peerPidfd returns a pidfd of the process that has connected. Before Linux 6.5 it is
// opened by number, while the connection shows that the process is there.
func peerPidfd(conn *net.UnixConn, pid int) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := raw.Control(func(s uintptr) { fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, soPeerPidfd) })
	if controlErr != nil {
		return -1, controlErr
	}
	if errors.Is(err, unix.ENOPROTOOPT) {
		fd, err = unix.PidfdOpen(pid, 0)
	}
	return fd, err
}

func regMR(c *session, body []byte, fds []int) (reply, error) {
	const op = abi.OpRegMR
	r, err := abi.Get[abi.RegMR](body)
	if err == nil {
		err = c.take(op, mrs, 1)
	}
	if err != nil {
		return done(err)
	}
	pd, err := lookup[*roce.PD](c, op, "PD", r.PD)
	if err != nil {
		return done(err)
	}
	m, err := c.memory(op, &r, fds)
	if err != nil {
		return done(err)
	}
	core, err := pd.RegMemory(m.Memory, r.IOVA, ib.Access(r.Access))
	if err != nil {
		m.free()
		return done(err)
	}
	reg := &region{MR: core, mapping: m}
	reg.kind.Store(r.Kind)
	o := &object{kind: kindMR, value: reg}
	o.close = func() error {
		if err := reg.Close(); err != nil {
			return err
		}
		reg.mapping.free()
		return nil
	}
	return says(abi.RegReply{Handle: c.add(o), Key: abi.Handle(core.LKey())})
}

func reregMR(c *session, body []byte, fds []int) (reply, error) {
	const op = abi.OpReregMR
	r, err := abi.Get[abi.ReregMR](body)
	if err != nil {
		return done(err)
	}
	reg, err := lookup[*region](c, op, "MR", r.MR)
	if err != nil {
		return done(err)
	}
	pd, err := optional[*roce.PD](c, op, "PD", r.PD)
	if err != nil {
		return done(err)
	}
	mask, m := ib.ReregMask(min(r.Mask, 0xFF)), &mapping{Memory: mr.Bytes(nil)}
	if mask&ib.ReregTranslation != 0 {
		if m, err = c.memory(op, &r.RegMR, fds); err != nil {
			return done(err)
		}
	}
	if err := reg.ReregMemory(mask, pd, m.Memory, r.IOVA, ib.Access(r.Access)); err != nil {
		m.free()
		return done(err)
	}
	if mask&ib.ReregTranslation != 0 {
		reg.mapping.free()
		reg.mapping = m
		reg.kind.Store(r.Kind)
		c.change(c.objects[r.MR])
	}
	return says(abi.RegReply{Handle: r.MR, Key: abi.Handle(reg.LKey())})
}
