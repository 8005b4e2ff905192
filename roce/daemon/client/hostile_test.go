package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/server"
)

// stranger is a connection to the daemon that does not use this package.
type stranger struct {
	t    *testing.T
	conn *abi.Conn
	seq  uint32
}

func (d *daemon) newStranger(t *testing.T) *stranger {
	t.Helper()
	c, err := net.Dial("unixpacket", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &stranger{t: t, conn: abi.NewConn(c.(*net.UnixConn))}
}

// say sends a request and returns the reply's status; false if the daemon closed the connection.
func (s *stranger) say(op abi.Op, body []byte, fds ...int) (abi.Status, bool) {
	s.t.Helper()
	status, _, alive := s.ask(op, body, fds...)
	return status, alive
}

// ask is say, and returns the reply's body too.
func (s *stranger) ask(op abi.Op, body []byte, fds ...int) (_ abi.Status, reply []byte, alive bool) {
	s.t.Helper()
	s.seq++
	if s.conn.Send(abi.Header{Op: op, Seq: s.seq}, body, fds...) != nil {
		return 0, nil, false
	}
	h, reply, got, err := s.conn.Receive()
	abi.CloseAll(got)
	if err == nil && (h.Op != op || h.Seq != s.seq) {
		s.t.Fatalf("answered as %v %d, want %v %d", h.Op, h.Seq, op, s.seq)
	}
	return h.Status, reply, err == nil
}

func hello(min, max uint16) []byte {
	return abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: min, MaxVersion: max})
}

// TestNonsense sends all requests with random bodies. The daemon must go on, and so must two
// clients that exchange data meanwhile.
func TestNonsense(t *testing.T) {
	d := newDaemon(t, server.Options{User: server.Limits{QPs: 100, CQEntries: 10000, Pinned: 4 << 20}})
	a, b := d.newTenant(t, 4096), d.newTenant(t, 4096)
	connect(a, b)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var s *stranger
	counts := map[abi.Status]int{}
	for i := range 4000 {
		if s == nil {
			s = d.newStranger(t)
			s.say(abi.OpHello, hello(abi.Version, abi.Version))
			s.say(abi.OpOpen, abi.Put(nil, &abi.Open{}))
		}
		body := make([]byte, rng.IntN(60)*4)
		for j := range body {
			if rng.IntN(3) == 0 { // small numbers are plausible handles, kinds and sizes
				body[j] = byte(rng.IntN(6))
			}
		}
		var fds []int
		if rng.IntN(4) == 0 {
			buf, fd, err := makeMemory("stranger", 4096)
			if err != nil {
				t.Fatal(err)
			}
			fds = []int{fd}
			_ = unix.Munmap(buf)
		}
		status, alive := s.say(abi.Op(rng.IntN(int(abi.OpShareMemory)+2)), body, fds...)
		abi.CloseAll(fds)
		counts[status]++
		if !alive || rng.IntN(400) == 0 {
			s.conn.Close()
			s = nil
		}
		if i%500 == 0 {
			_, err := a.qp.PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: a.sge(),
				RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}})
			a.must(err)
			if wc := a.wait(); wc.Err() != nil {
				t.Fatal(wc.Err())
			}
		}
	}
	if counts[abi.OK] == 0 || counts[abi.Invalid] == 0 {
		t.Errorf("the test tries too little: %v, want some OK and some Invalid", counts)
	}
}

// TestHello checks the errors for a client with another version, and for one that is not allowed.
func TestHello(t *testing.T) {
	d := newDaemon(t, server.Options{})
	s := d.newStranger(t)
	if status, _ := s.say(abi.OpAllocPD, nil); status != abi.State {
		t.Errorf("a PD without a device: status %d, want %d", status, abi.State)
	}
	for _, v := range [][2]uint16{{7, 9}, {1, abi.Version - 1}} {
		status, why, _ := s.ask(abi.OpHello, hello(v[0], v[1]))
		want := fmt.Sprintf("the daemon speaks version %d, the client %d to %d", abi.Version, v[0], v[1])
		if err := abi.GetError(why, status); !errors.Is(err, abi.ErrVersion) || !strings.Contains(err.Error(), want) {
			t.Errorf("versions %d to %d: %v, want %v with %q", v[0], v[1], err, abi.ErrVersion, want)
		}
	}
	none := newDaemon(t, server.Options{Allow: func(uid, _ uint32) error { return errors.New("only the group rdma") }})
	_, err := Dial(t.Context(), Options{Socket: none.socket})
	if !errors.Is(err, abi.ErrPermission) || !strings.Contains(err.Error(), "group rdma") {
		t.Errorf("a user without rights hears %v, want %v and %q", err, abi.ErrPermission, "group rdma")
	}
	if _, err := Dial(t.Context(), Options{Socket: d.socket + "x"}); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "goroced serve") {
		t.Errorf("no socket: %v, want %v and %q", err, os.ErrNotExist, "goroced serve")
	}
	if _, err := Dial(t.Context(), Options{Socket: d.socket, Device: "mlx5_0"}); !errors.Is(err, ib.ErrInvalid) ||
		!strings.Contains(err.Error(), "goroce0") {
		t.Errorf("a device that is not there: %v, want %v and %q", err, ib.ErrInvalid, "goroce0")
	}
}

// TestBadMemory checks that memory which could disappear is refused.
func TestBadMemory(t *testing.T) {
	d := newDaemon(t, server.Options{Client: server.Limits{Pinned: 1 << 30}})
	s := d.newStranger(t)
	s.say(abi.OpHello, hello(abi.Version, abi.Version))
	s.say(abi.OpOpen, abi.Put(nil, &abi.Open{}))
	s.say(abi.OpAllocPD, nil)
	memfd := func(flags int, size int64, seals int) int {
		fd, err := unix.MemfdCreate("test", flags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		_ = unix.Ftruncate(fd, size)
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		return fd
	}
	good := memfd(unix.MFD_ALLOW_SEALING, 8192, unix.F_SEAL_SHRINK)
	for _, c := range []struct {
		what string
		fds  []int
		want abi.Status
	}{
		{"good", []int{good}, abi.OK}, // handle 2
		{"sparse", []int{memfd(unix.MFD_ALLOW_SEALING, 4<<40, unix.F_SEAL_SHRINK)}, abi.OK}, // handle 3
		{"nothing", nil, abi.Invalid},
		{"two", []int{good, good}, abi.Invalid},
		{"empty", []int{memfd(unix.MFD_ALLOW_SEALING, 0, unix.F_SEAL_SHRINK)}, abi.Invalid},
		{"not sealed", []int{memfd(unix.MFD_ALLOW_SEALING, 8192, 0)}, abi.Invalid},
		{"not to be sealed", []int{memfd(0, 8192, 0)}, abi.Invalid},
		{"not to be sealed any more", []int{memfd(unix.MFD_ALLOW_SEALING, 8192, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)},
			abi.Invalid},
		{"sealed against writing", []int{memfd(unix.MFD_ALLOW_SEALING, 8192,
			unix.F_SEAL_SHRINK|unix.F_SEAL_FUTURE_WRITE)}, abi.Invalid},
		{"a pipe", func() []int {
			r, w, _ := os.Pipe()
			t.Cleanup(func() { r.Close(); w.Close() })
			return []int{int(w.Fd())}
		}(), abi.Invalid},
	} {
		if got, _ := s.say(abi.OpShareMemory, nil, c.fds...); got != c.want {
			t.Errorf("%s: status %d, want %d", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		what         string
		file         abi.Handle
		addr, length uint64
		want         abi.Status
	}{
		{"good", 2, 100, 5000, abi.OK},
		{"nothing of it", 2, 8192, 0, abi.OK},
		{"no file", 0, 0, 1, abi.Closed},
		{"a PD", 1, 0, 1, abi.Invalid},
		{"beyond the end", 2, 8000, 1000, abi.Invalid},
		{"around", 2, 8000, ^uint64(0) - 100, abi.Invalid},
		{"too much", 3, 0, 4 << 30, abi.Limit},
		{"far away", 3, 1<<40 - 4096, 4096, abi.OK},
		{"too far away", 3, 1<<40 - 4096, 4097, abi.Invalid},
	} {
		body := abi.Put(nil, &abi.RegMR{PD: 1, Access: uint32(ib.LocalWrite), Kind: abi.MemFD, File: c.file,
			Addr: c.addr, Length: c.length, IOVA: 0x1000})
		if got, _ := s.say(abi.OpRegMR, body); got != c.want {
			t.Errorf("%s: status %d, want %d", c.what, got, c.want)
		}
	}
}

// TestClientsDie checks that all objects of clients that disconnect without closing them are
// closed soon.
func TestClientsDie(t *testing.T) {
	d := newDaemon(t, server.Options{})
	keeper := d.newTenant(t, 4096)
	fds := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	round := func() {
		a, b := d.newTenant(t, 4096), d.newTenant(t, 4096)
		connect(a, b)
		_, err := a.qp.PostSend([]ib.SendWR{{Opcode: ib.WRWrite, SGL: a.sge(), RemoteAddr: b.mr.Addr(),
			RKey: b.mr.RKey()}})
		a.must(err)
		for _, n := range []*tenant{a, b} {
			n.must(n.dev.Close())
			n.must(Free(n.buf))
		}
	}
	round()
	before := fds()
	for range 50 {
		round()
	}
	deadline := time.Now().Add(30 * time.Second)
	for fds() > before && time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, _ = ib.WaitOne(ctx, keeper.cq)
		cancel()
	}
	if now := fds(); now > before {
		t.Errorf("%d descriptors, want at most %d as before", now, before)
	}
	if err := d.dev.Close(); err != nil { // only the keeper's objects are left
		t.Error(err)
	}
}
