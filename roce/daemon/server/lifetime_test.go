package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/uffd"
)

// stuckClient is a client whose worker accesses memory that blocks.
type stuckClient struct {
	*client.Device
	pd     ib.PD
	pages  []byte // access to them blocks
	fault  uffd.Fault
	slow   ib.MR // of pages
	mapped ib.MR // of a memfd
	qp     ib.QP // connected to itself
}

const stuckBytes = 64 << 10

// sendStuck is a SEND of memory that blocks, and then of a memfd.
func (c *stuckClient) sendStuck() ib.SendWR {
	return ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{
		{Addr: c.slow.Addr(), Length: stuckBytes / 2, LKey: c.slow.LKey()},
		{Addr: c.mapped.Addr(), Length: stuckBytes / 2, LKey: c.mapped.LKey()}}}
}

// writeStuck is a WRITE to memory that blocks.
func (c *stuckClient) writeStuck() ib.SendWR {
	return ib.SendWR{Opcode: ib.WRWrite, RemoteAddr: c.slow.Addr(), RKey: c.slow.RKey(),
		SGL: []ib.SGE{{Addr: c.mapped.Addr(), Length: stuckBytes, LKey: c.mapped.LKey()}}}
}

// newStuckClient starts a client that is stuck in a request.
func newStuckClient(t *testing.T, socket string, request func(*stuckClient) ib.SendWR) *stuckClient {
	t.Helper()
	dev, err := client.Dial(t.Context(), client.Options{Socket: socket})
	must(t, err)
	t.Cleanup(func() { dev.Close() })
	c := &stuckClient{Device: dev}
	c.pd, err = dev.AllocPD()
	must(t, err)
	c.pages, err = unix.Mmap(-1, 0, stuckBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	if c.fault, err = uffd.Hang(c.pages); err != nil {
		require.Missing(t, uffd.Needs, err)
	}
	t.Cleanup(func() { unix.Close(int(c.fault)) }) // ends the wait in any case
	c.slow, err = c.pd.RegMR(ib.MRInit{Buf: c.pages, Access: ib.LocalWrite | ib.RemoteWrite})
	must(t, err)
	buf, err := client.Alloc(stuckBytes)
	must(t, err)
	t.Cleanup(func() { must(t, client.Free(buf)) })
	c.mapped, err = c.pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite})
	must(t, err)
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 16})
	must(t, err)
	c.qp, err = c.pd.CreateQP(ib.QPInit{Type: ib.UC, SendCQ: cq, RecvCQ: cq,
		Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 2}})
	must(t, err)
	gids, err := dev.GIDs(1)
	must(t, err)
	attr := ib.QPAttr{PathMTU: ib.MTU1024, DestQPN: c.qp.Num(), AH: ib.AHAttr{DGID: gids[0].GID, Port: 1}, Port: 1,
		Access: ib.RemoteWrite}
	must(t, ib.ModifyTo(c.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
	_, err = c.qp.PostSend([]ib.SendWR{request(c)})
	must(t, err)
	must(t, c.fault.Wait())
	return c
}

// TestMemoryInUse checks that memory of a client stays mapped while its worker may read it,
// however the registration ends. Until then it is booked, and the client counts as one of its
// user's, but the session has ended, and no other session waits.
func TestMemoryInUse(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, c *stuckClient){
		"the client goes": func(t *testing.T, c *stuckClient) { must(t, c.Close()) },
		"deregister": func(t *testing.T, c *stuckClient) {
			if err := c.mapped.Close(); !errors.Is(err, ib.ErrClosed) && !errors.Is(err, client.ErrGone) {
				t.Errorf("to deregister what is in use, and does not move: %v, want %v or %v", err, ib.ErrClosed,
					client.ErrGone)
			}
		},
		"re-register": func(t *testing.T, c *stuckClient) {
			other, err := client.Alloc(4096)
			must(t, err)
			defer client.Free(other)
			err = c.mapped.Rereg(ib.ReregTranslation, nil, ib.MRInit{Buf: other})
			if !errors.Is(err, ib.ErrClosed) && !errors.Is(err, client.ErrGone) {
				t.Errorf("to re-register what is in use, and does not move: %v, want %v or %v", err, ib.ErrClosed,
					client.ErrGone)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, listener := newServer(t)
			s.SetProcesses(true, true)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ctx, listener) }()
			c := newStuckClient(t, listener.Addr().String(), (*stuckClient).sendStuck)
			end(t, c)
			require.Until(t, "the session ends", func() bool { return s.Clients() == 0 })
			u := s.Usage()
			if len(u) != 1 || u[0].Amount["connections"] != 1 || u[0].Amount["pinned"] < stuckBytes ||
				u[0].Amount["mappings"] < 2 {
				t.Errorf("while memory is in use its user holds %+v, want 1 connection, 2 mappings of %d bytes",
					u, stuckBytes)
			}
			other, err := client.Dial(t.Context(), client.Options{Socket: listener.Addr().String()})
			must(t, err)
			must(t, other.Close())
			cancel()
			must(t, <-ended) // does not wait for the memory
			if len(s.Usage()) == 0 {
				t.Error("nothing is booked for memory that is in use")
			}
			must(t, c.fault.Resolve(c.pages))
			require.Until(t, "the user holds nothing", func() bool { return len(s.Usage()) == 0 })
			if s.accounts.scarce[scarceMappings].used != 0 {
				t.Errorf("%d mappings are left, want none", s.accounts.scarce[scarceMappings].used)
			}
		})
	}
}

// TestWrittenByQP checks that the reply to the reset or the close of a QP waits while the worker writes
// what the QP has received. Here the write blocks, so the request fails when the session is dropped.
func TestWrittenByQP(t *testing.T) {
	for what, end := range map[string]func(q ib.QP) error{
		"reset": func(q ib.QP) error { return q.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState) },
		"close": ib.QP.Close,
	} {
		t.Run(what, func(t *testing.T) {
			s, listener := newServer(t)
			s.SetProcesses(true, true)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ctx, listener) }()
			c := newStuckClient(t, listener.Addr().String(), (*stuckClient).writeStuck)
			if err := end(c.qp); !errors.Is(err, ib.ErrClosed) && !errors.Is(err, client.ErrGone) {
				t.Errorf("while the worker writes: %v, want %v or %v", err, ib.ErrClosed, client.ErrGone)
			}
			must(t, c.fault.Resolve(c.pages))
			cancel()
			must(t, <-ended)
		})
	}
}

// fewMappings serves a client on a machine with the given number of mappings. holds returns what
// the client's user holds.
func fewMappings(t *testing.T, most int64) (s *Server, c *client.Device, holds func(key string) int64) {
	t.Helper()
	c = serving(t, func(server *Server) {
		s = server
		s.accounts.scarce[scarceMappings].most = most
	})
	return s, c, func(key string) int64 { return s.Usage()[0].Amount[key] }
}

// TestMappings checks that registrations of one memfd share its mappings, and that each page counts once. The first
// extent stays until the memory is freed.
func TestMappings(t *testing.T) {
	_, dev, holds := fewMappings(t, 20)
	pd, err := dev.AllocPD()
	must(t, err)
	before := holds("mappings")
	const page = 4096
	buf, err := client.Alloc(2*extentBytes + 10)
	must(t, err)
	var list []ib.MR
	for _, c := range []struct {
		from, to, pages int
		mappings        int64
	}{
		{10, 20, 1, 1}, {0, 2 * page, 2, 1}, {page + 1, 3*page + 1, 4, 1}, // in one extent
		{extentBytes - 1, extentBytes + 1, 6, 2}, {extentBytes, extentBytes + 9, 6, 2}, // an extent of twice the size
		{2 * extentBytes, 2*extentBytes + 10, 7, 3}, {1, 1, 7, 3},
	} {
		m, err := pd.RegMR(ib.MRInit{Buf: buf[c.from:c.to]})
		must(t, err)
		list = append(list, m)
		if got := holds("mappings") - before; got != c.mappings || holds("pinned") != int64(c.pages*page) {
			t.Errorf("with [%d, %d): %d mappings, %d bytes pinned; want %d and %d pages", c.from, c.to, got,
				holds("pinned"), c.mappings, c.pages)
		}
	}
	for i, m := range list {
		must(t, m.Close())
		if i == 4 && (holds("mappings") != before+2 || holds("pinned") != page) {
			t.Errorf("without the second extent: %d mappings, %d bytes; want 2, %d", holds("mappings")-before,
				holds("pinned"), page)
		}
	}
	if holds("mappings") != before+1 || holds("pinned") != 0 {
		t.Errorf("without registrations: %d mappings, %d bytes; want %d, 0", holds("mappings"), holds("pinned"),
			before+1)
	}
	must(t, client.Free(buf))
	if holds("mappings") != before {
		t.Errorf("without the memory: %d mappings, want %d as before", holds("mappings"), before)
	}
}

// TestMappingsOfUsers checks that a user may have as many mappings as are left for others.
func TestMappingsOfUsers(t *testing.T) {
	s, dev, holds := fewMappings(t, 20)
	before := holds("mappings")
	var made []ib.CQ
	for {
		cq, err := dev.CreateCQ(ib.CQInit{Entries: 1})
		if err != nil {
			if !errors.Is(err, ib.ErrLimit) {
				t.Error(err)
			}
			break
		}
		made = append(made, cq)
	}
	if n := holds("mappings"); n != 10 {
		t.Errorf("a user that is alone has %d mappings, want 10 of 20", n)
	}
	other := &session{srv: s, user: &account{}}
	var err error
	for range 6 {
		err = other.book(0, mappings, 1)
	}
	if used := other.user.used[mappings]; used != 5 || !errors.Is(err, ib.ErrLimit) {
		t.Errorf("the second user has %d of 20 mappings, want 5: %v", used, err)
	}
	other.give([]held{{mappings, 5}})
	must(t, made[0].Close())
	must(t, made[1].Resize(2)) // temporarily needs both rings
	for _, cq := range made {
		must(t, cq.Close())
	}
	if holds("mappings") != before {
		t.Errorf("%d mappings, want %d as before", holds("mappings"), before)
	}
}

// TestScarce checks for each scarce resource that a user leaves enough of it for others. Pinned
// memory and heap count as one. The refusal says how to raise the limit.
func TestScarce(t *testing.T) {
	for _, c := range []struct {
		kind scarceKind
		what []resource
		help string
	}{
		{scarceMappings, []resource{mappings}, "vm.max_map_count"},
		{scarceDescriptors, []resource{descriptors}, "LimitNOFILE="},
		{scarceThreads, []resource{threads}, "TasksMax="},
		{scarceMemory, []resource{pinned, heap}, "MemoryMax="},
	} {
		s := &Server{}
		s.accounts.scarce[c.kind].most = 80
		var users [3]*session
		for i, want := range []int64{40, 20, 10} {
			u := &session{srv: s, user: &account{}}
			users[i] = u
			var err error
			for n := 0; err == nil && n < 100; n++ {
				err = u.book(abi.OpCreateCQ, c.what[n%len(c.what)], 1)
			}
			if got := u.user.usedOf(c.kind); got != want || !errors.Is(err, ib.ErrLimit) ||
				!strings.Contains(err.Error(), c.help) {
				t.Errorf("%s: user %d gets %d of 80, want %d; then %v", resourceText[c.what[0]].name, i, got, want, err)
			}
		}
		for _, u := range users {
			for _, what := range c.what {
				u.give([]held{{what, u.user.used[what]}})
			}
		}
		if n := s.accounts.scarce[c.kind].used; n != 0 {
			t.Errorf("%d are left, want none", n)
		}
	}
}
