package server

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// newQP creates a QP in RESET.
func newQP(t *testing.T, dev ib.Device, typ ib.QPType) ib.QP {
	t.Helper()
	pd, err := dev.AllocPD()
	must(t, err)
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 16})
	must(t, err)
	q, err := pd.CreateQP(ib.QPInit{Type: typ, SendCQ: cq, RecvCQ: cq,
		Cap: ib.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(t, err)
	return q
}

// users are replacements of Server.privileged, by the user that the test's client seems to be.
var users = map[string]func(uint32) bool{
	"root, or the daemon's own": privileged, // true for the user that runs the test
	"another":                   func(uint32) bool { return false },
}

// TestPrivilegedQKey checks that only privileged users may set a Q_Key with the high bit, also that of QP 1.
func TestPrivilegedQKey(t *testing.T) {
	for user, privileged := range users {
		may := privileged(0)
		for _, c := range []struct {
			typ  ib.QPType
			qkey uint32
			ok   bool
		}{
			{ib.UD, 0x01234567, true}, // RDMA_UDP_QKEY
			{ib.UD, 0x7FFFFFFF, true},
			{ib.UD, 0x80000000, may},
			{ib.UD, 0x80010000, may},
		} {
			t.Run(fmt.Sprintf("%s/%v/%#x", user, c.typ, c.qkey), func(t *testing.T) {
				q := newQP(t, serving(t, func(s *Server) { s.privileged = privileged }), c.typ)
				mask := ib.AttrState | ib.AttrPKeyIndex | ib.AttrQKey
				if c.typ == ib.UD {
					mask |= ib.AttrPort
				}
				attr := ib.QPAttr{State: ib.StateInit, Port: 1, QKey: c.qkey}
				allowed(t, q.Modify(attr, mask), c.ok, "QKey", "less than 0x80000000 for user")
				if c.ok && !may {
					attr.QKey = 0x80000001
					allowed(t, q.Modify(attr, ib.AttrQKey), false, "QKey", "root and the daemon's own user")
				}
			})
		}
	}
}

// TestNoAdministrator checks that with this option the daemon's own user, and root, may no more than others: neither
// privileged Q_Keys and ports, nor memory by the daemon's own right to ptrace.
func TestNoAdministrator(t *testing.T) {
	for _, none := range []bool{false, true} {
		links, err := udp.OpenShards([]netip.Addr{linktest.Loopback()}, udp.Options{}, 1)
		must(t, err)
		dev, err := device.OpenShards([]link.Link{wrap.Seal(wrap.Loopback(links[0]))}, device.Options{})
		must(t, err)
		s, err := New([]roce.Device{dev}, Options{OwnProcesses: true, NoAdministrator: none})
		must(t, err)
		for _, uid := range []uint32{0, uint32(os.Geteuid())} {
			if got := s.privileged(uid); got == none {
				t.Errorf("without an administrator %v: user %d is privileged %v, want %v", none, uid, got, !none)
			}
			err := s.mayBind(uid)(ib.PortSpaceTCP, 80)
			allowed(t, err, !none, "1024 and above")
		}
		if got := s.isOwn(uint32(os.Getuid())); got == none {
			t.Errorf("without an administrator %v: the daemon reaches processes of its user %v, want %v", none, got,
				!none)
		}
		must(t, dev.Close())
		must(t, s.Close())
	}
}

// allowed checks that a request was carried out, or refused with an error that contains words.
func allowed(t *testing.T, err error, want bool, words ...string) {
	t.Helper()
	if want {
		must(t, err)
		return
	}
	if !errors.Is(err, abi.ErrPermission) {
		t.Fatalf("%v, want ErrPermission", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q, want it to say %q", err, w)
		}
	}
}
