package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/server"
)

// holder is a client with the objects that others need: a PD, an XRC domain and a CQ of one
// entry.
type holder struct {
	dev *Device
	pd  ib.PD
	x   ib.XRCD
	cq  ib.CQ
	buf []byte
}

func (d *daemon) newHolder(t *testing.T) *holder {
	t.Helper()
	dev, err := Dial(t.Context(), Options{Socket: d.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	h := &holder{dev: dev}
	var errs [4]error
	h.pd, errs[0] = dev.AllocPD()
	h.x, errs[1] = dev.AllocXRCD()
	h.cq, errs[2] = dev.CreateCQ(ib.CQInit{Entries: 1})
	h.buf, errs[3] = Alloc(1 << 20)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Free(h.buf) })
	return h
}

// resources is the table of limited resources: how the limit is set, how a client creates one
// more, and how many a holder has at first.
var resources = []struct {
	key, name string // key in the configuration, name in messages
	set       func(l *server.Limits, n int)
	first     int
	more      func(h *holder) (any, error)
	each      int // how many more it takes; 0: one
}{
	{"qps", "QPs", func(l *server.Limits, n int) { l.QPs = n }, 0, func(h *holder) (any, error) {
		return h.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: h.cq, RecvCQ: h.cq,
			Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
	}, 0},
	{"mrs", "memory regions", func(l *server.Limits, n int) { l.MRs = n }, 0, func(h *holder) (any, error) {
		return h.pd.RegMR(ib.MRInit{Buf: h.buf[:64]})
	}, 0},
	{"mws", "memory windows", func(l *server.Limits, n int) { l.MWs = n }, 0,
		func(h *holder) (any, error) { return h.pd.AllocMW(ib.MWType1) }, 0},
	{"cqs", "CQs", func(l *server.Limits, n int) { l.CQs = n }, 1, func(h *holder) (any, error) {
		return h.dev.CreateCQ(ib.CQInit{Entries: 1})
	}, 0},
	{"cq_entries", "CQ entries", func(l *server.Limits, n int) { l.CQEntries = n }, 2, func(h *holder) (any, error) {
		return h.dev.CreateCQ(ib.CQInit{Entries: 1})
	}, 2},
	{"pds", "PDs", func(l *server.Limits, n int) { l.PDs = n }, 1,
		func(h *holder) (any, error) { return h.dev.AllocPD() }, 0},
	{"srqs", "SRQs", func(l *server.Limits, n int) { l.SRQs = n }, 0, func(h *holder) (any, error) {
		return h.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 1, MaxSGE: 1}})
	}, 0},
	{"ahs", "address handles", func(l *server.Limits, n int) { l.AHs = n }, 0, func(h *holder) (any, error) {
		gids, err := h.dev.GIDs(1)
		if err != nil {
			return nil, err
		}
		return h.pd.CreateAH(ib.AHAttr{DGID: gids[0].GID, Port: 1})
	}, 0},
	{"xrcds", "XRC domains", func(l *server.Limits, n int) { l.XRCDs = n }, 1,
		func(h *holder) (any, error) { return h.dev.AllocXRCD() }, 0},
	{"channels", "completion channels", func(l *server.Limits, n int) { l.Channels = n }, 1, // for the CQ's Wait
		func(h *holder) (any, error) { return h.dev.CreateChannel() }, 0},
}

// full checks that an error names the exhausted limit, its value and how to raise it. A test of
// package config checks that the configuration has such a key.
func full(t *testing.T, err error, what string, limit any, key string) {
	t.Helper()
	if !errors.Is(err, ib.ErrLimit) {
		t.Fatalf("beyond a limit: %v, want ErrLimit", err)
	}
	var refused *ib.AttrError
	if !errors.As(err, &refused) || strings.Count(err.Error(), refused.Op+": ") != 1 {
		t.Errorf("%q, want it to say once what was refused", err)
	}
	for _, w := range []string{what, fmt.Sprintf("; allowed: %v; %s in the daemon's configuration raises it", limit,
		key)} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q, want it to say %q", err, w)
		}
	}
}

// TestEveryLimit checks the limits of each resource for a client and for a user, and their
// errors. A raised limit takes effect at once.
func TestEveryLimit(t *testing.T) {
	for _, r := range resources {
		each := max(r.each, 1)
		limit := 3 * each
		for _, scope := range []string{"client", "user"} {
			t.Run(r.key+"/"+scope, func(t *testing.T) {
				d := newDaemon(t, server.Options{})
				set := func(n int) {
					var of, none server.Limits
					r.set(&of, n)
					if scope == "client" {
						d.server.SetLimits(of, none)
					} else {
						d.server.SetLimits(none, of)
					}
				}
				h := d.newHolder(t)
				set(limit)
				for n := r.first; n < limit; n += each {
					if _, err := r.more(h); err != nil {
						t.Fatalf("%d of %d: %v", n+1, limit, err)
					}
				}
				table := map[string]string{"client": "limits.connection.", "user": "limits.user."}[scope]
				_, err := r.more(h)
				full(t, err, fmt.Sprintf("%s of one %s is %d", r.name, scope, limit+each), limit, table+r.key)
				set(limit + each)
				if _, err := r.more(h); err != nil {
					t.Errorf("when there is room: %v", err)
				}
			})
		}
	}
}

// TestPinnedLimit checks that registered memory and rings count together.
func TestPinnedLimit(t *testing.T) {
	const limit = 1 << 20
	d := newDaemon(t, server.Options{Client: server.Limits{Pinned: limit}})
	h := d.newHolder(t)
	_, err := h.pd.RegMR(ib.MRInit{Buf: h.buf[:limit]})
	full(t, err, "bytes of memory of one client", limit, "limits.connection.pinned")
	half, err := h.pd.RegMR(ib.MRInit{Buf: h.buf[:limit/2]})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.dev.CreateCQ(ib.CQInit{Entries: limit / 64})
	full(t, err, "bytes of memory of one client", limit, "limits.connection.pinned")
	_, err = h.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: h.cq, RecvCQ: h.cq,
		Cap: ib.QPCap{MaxSendWR: limit / 64, MaxSendSGE: 1}})
	full(t, err, "bytes of memory of one client", limit, "limits.connection.pinned")
	_, err = h.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: limit / 64, MaxSGE: 4}})
	full(t, err, "bytes of memory of one client", limit, "limits.connection.pinned")
	err = h.cq.Resize(limit / 64)
	full(t, err, "bytes of memory of one client", limit, "limits.connection.pinned")
	if err := half.Close(); err != nil {
		t.Fatal(err)
	}
	d.server.SetLimits(server.Limits{}, server.Limits{Pinned: limit})
	_, err = h.pd.RegMR(ib.MRInit{Buf: h.buf[:limit]})
	full(t, err, "bytes of memory of one user", limit, "limits.user.pinned")
}

// TestLimits checks that a client beyond a limit gets an error that names the limit, and can
// allocate again after it has closed objects. Only clients of the same user count.
func TestLimits(t *testing.T) {
	d := newDaemon(t, server.Options{Client: server.Limits{PDs: 3, CQEntries: 100},
		User: server.Limits{PDs: 4, Connections: 2}})
	open := func() *Device {
		dev, err := Dial(t.Context(), Options{Socket: d.socket})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return dev
	}
	a, b := open(), open()
	limit := func(err error, words ...string) {
		t.Helper()
		if !errors.Is(err, ib.ErrLimit) {
			t.Fatalf("beyond a limit: %v, want %v", err, ib.ErrLimit)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want it to say %q", err, w)
			}
		}
	}
	_, err := Dial(t.Context(), Options{Socket: d.socket})
	full(t, err, "connections of one user is 3", 2, "limits.user.connections")
	var pds []ib.PD
	for range 3 {
		pd, err := a.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		pds = append(pds, pd)
	}
	_, err = a.AllocPD()
	limit(err, "PDs of one client", "3; limits.connection.pds")
	if _, err = b.AllocPD(); err != nil {
		t.Fatal(err)
	}
	_, err = b.AllocPD()
	limit(err, "PDs of one user", "4; limits.user.pds")
	if err := pds[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err = b.AllocPD(); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	cq, err := a.CreateCQ(ib.CQInit{Entries: 60})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.CreateCQ(ib.CQInit{Entries: 60})
	limit(err, "CQ entries of one client")
	if err := cq.Close(); err != nil {
		t.Fatal(err)
	}
	if cq, err = a.CreateCQ(ib.CQInit{Entries: 30}); err != nil {
		t.Fatal(err)
	}
	if err := cq.Resize(40); err != nil {
		t.Errorf("30 to 40 of 100 entries: %v", err)
	}
	limit(cq.Resize(101), "CQ entries of one client")
}

// TestProcesses checks that memory that is no memfd can be registered only if the daemon's
// options, which can change, allow it for the user.
func TestProcesses(t *testing.T) {
	d := newDaemon(t, server.Options{OwnProcesses: true})
	h := d.newHolder(t)
	for i, may := range []bool{true, false, true} {
		d.server.SetProcesses(may, !may)
		_, err := h.pd.RegMR(ib.MRInit{Buf: make([]byte, 64)})
		switch {
		case may && err != nil:
			t.Errorf("%d: %v, want no error", i, err)
		case !may && (!errors.Is(err, abi.ErrPermission) || !strings.Contains(err.Error(), "memory.own_processes")):
			t.Errorf("%d: %v, want ErrPermission", i, err)
		}
	}
}

// TestCMLimits checks the limits of the connection manager for all clients of a user. The refusal says how to raise the
// limit; a raised limit takes effect at once.
func TestCMLimits(t *testing.T) {
	const limit = 3
	newID := func(h *holder) (ib.CMID, error) {
		ch, err := h.dev.OpenCM()
		if err != nil {
			t.Fatal(err)
		}
		return ch.CreateID(ib.CMIDInit{Space: ib.PortSpaceTCP, Type: ib.RC})
	}
	for _, x := range []struct {
		key, what string
		limits    func(n int) server.CMLimits
		more      func(h *holder) error
	}{
		{"cm_ids", "IDs", func(n int) server.CMLimits { return server.CMLimits{IDs: n} }, func(h *holder) error {
			_, err := newID(h)
			return err
		}},
		{"cm_listeners", "listeners", func(n int) server.CMLimits { return server.CMLimits{Listeners: n} },
			func(h *holder) error {
				id, err := newID(h)
				if err != nil {
					t.Fatal(err)
				}
				return id.Listen(0)
			}},
	} {
		t.Run(x.key, func(t *testing.T) {
			d := newDaemon(t, server.Options{User: server.Limits{CM: x.limits(limit)}})
			one, other := d.newHolder(t), d.newHolder(t)
			for i, h := range []*holder{one, other, one} {
				if err := x.more(h); err != nil {
					t.Fatalf("%d of %d: %v", i+1, limit, err)
				}
			}
			full(t, x.more(other), "number of "+x.what+" is 4", "at most 3; free some first", "limits.user."+x.key)
			d.server.SetLimits(server.Limits{}, server.Limits{CM: x.limits(limit + 1)})
			if err := x.more(other); err != nil {
				t.Errorf("when there is room: %v", err)
			}
		})
	}
}

// TestCMHeapLimit: what IDs and memberships take of the daemon's memory counts for their user.
func TestCMHeapLimit(t *testing.T) {
	d := newDaemon(t, server.Options{})
	h := d.newHolder(t)
	ch, err := h.dev.OpenCM()
	if err != nil {
		t.Fatal(err)
	}
	used := d.server.Usage()[0].Amount["heap"]
	d.server.SetLimits(server.Limits{}, server.Limits{Heap: used + 64<<10})
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = ch.CreateID(ib.CMIDInit{})
	}
	full(t, err, "bytes of the daemon's heap of one user", used+64<<10, "limits.user.heap")
	if n < 10 {
		t.Errorf("%d IDs in 64 KiB, want more", n)
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if again := d.server.Usage()[0].Amount["heap"]; again > used {
		t.Errorf("%d bytes are booked after the end of the channel, want %d at most", again, used)
	}
}

// TestFileLimit: memory that is longer than files of this process may be is refused, where the kernel would end the
// process.
func TestFileLimit(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &before)
	if _, err := Alloc(1<<20 + 1); !errors.Is(err, ib.ErrLimit) || !strings.Contains(err.Error(), "ulimit -f") {
		t.Errorf("beyond the limit: %v, want ErrLimit", err)
	}
	buf, err := Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := Free(buf); err != nil {
		t.Error(err)
	}
}
