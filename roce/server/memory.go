package server

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/abi"
)

// mapping is a piece of a client's memfd, mapped here.
type mapping struct {
	pages []byte // whole pages
	buf   []byte // what is registered
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
		return &mapping{}, nil
	}
	page := uint64(os.Getpagesize())
	start := addr &^ (page - 1)
	pages, err := unix.Mmap(fd, int64(start), int(addr-start+length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%v: map %d bytes: %w", op, length, err)
	}
	m := &mapping{pages, pages[addr-start:]}
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
}

// admit checks that the client may register so many bytes more.
func (c *session) admit(op abi.Op, kind uint32, length uint64) error {
	switch kind {
	case abi.MemFD:
	case abi.MemProcess:
		return fmt.Errorf("%v: memory that is no memfd: %w; allocate it with client.Alloc", op, ib.ErrNotSupported)
	default:
		return &ib.AttrError{Op: op.String(), Attr: "Kind", Value: kind, Allowed: "MemFD or MemProcess", Err: ib.ErrInvalid}
	}
	return c.take(op, pinned, int64(min(length, math.MaxInt64/2)))
}

func regMR(c *session, body []byte, fds []int) (reply, error) {
	const op = abi.OpRegMR
	r, err := abi.Get[abi.RegMR](body)
	if err == nil {
		err = c.take(op, mrs, 1)
	}
	if err == nil {
		err = c.admit(op, r.Kind, r.Length)
	}
	if err != nil {
		return done(err)
	}
	pd, err := lookup[*roce.PD](c, op, "PD", r.PD)
	if err != nil {
		return done(err)
	}
	m, err := mapMemory(op, fds, r.Addr, r.Length)
	if err != nil {
		return done(err)
	}
	core, err := pd.RegMemory(mr.Bytes(m.buf), r.IOVA, ib.Access(r.Access))
	if err != nil {
		m.free()
		return done(err)
	}
	reg := &region{core, m}
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
	mask, m := ib.ReregMask(min(r.Mask, 0xFF)), &mapping{}
	if mask&ib.ReregTranslation != 0 {
		if err := c.admit(op, r.Kind, r.Length); err != nil {
			return done(err)
		}
		if m, err = mapMemory(op, fds, r.Addr, r.Length); err != nil {
			return done(err)
		}
	}
	if err := reg.ReregMemory(mask, pd, mr.Bytes(m.buf), r.IOVA, ib.Access(r.Access)); err != nil {
		m.free()
		return done(err)
	}
	if mask&ib.ReregTranslation != 0 {
		reg.mapping.free()
		reg.mapping = m
		c.change(c.objects[r.MR])
	}
	return says(abi.RegReply{Handle: r.MR, Key: abi.Handle(reg.LKey())})
}
