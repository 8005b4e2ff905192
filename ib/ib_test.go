package ib

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// TestPSN holds the circular arithmetic at its edges: the wrap at 2^24 and the
// half-space rule.
func TestPSN(t *testing.T) {
	for _, c := range []struct {
		p, q PSN
		sub  int
	}{
		{5, 5, 0}, {6, 5, 1}, {5, 6, -1},
		{0, PSNMask, 1}, {PSNMask, 0, -1}, {3, PSNMask - 1, 5},
		{1<<23 - 1, 0, 1<<23 - 1}, {1 << 23, 0, -1 << 23}, {0, 1 << 23, -1 << 23},
	} {
		if got := c.p.Sub(c.q); got != c.sub {
			t.Errorf("%#x.Sub(%#x) = %d, want %d", c.p, c.q, got, c.sub)
		}
		if got := c.q.Add(c.sub); got != c.p {
			t.Errorf("%#x.Add(%d) = %#x, want %#x", c.q, c.sub, got, c.p)
		}
		if c.p.Before(c.q) != (c.sub < 0) || c.p.After(c.q) != (c.sub > 0) {
			t.Errorf("order of %#x and %#x: before %v, after %v; want that of their distance %d", c.p, c.q,
				c.p.Before(c.q), c.p.After(c.q), c.sub)
		}
	}
}

func TestGID(t *testing.T) {
	for _, c := range []struct {
		addr, text string
		is4        bool
	}{
		{"10.0.0.1", "0000:0000:0000:0000:0000:ffff:0a00:0001", true},
		{"fd77::2", "fd77:0000:0000:0000:0000:0000:0000:0002", false},
		{"::", "0000:0000:0000:0000:0000:0000:0000:0000", false},
	} {
		addr := netip.MustParseAddr(c.addr)
		g := GIDFromAddr(addr)
		if g.String() != c.text || g.Is4() != c.is4 || g.Addr() != addr {
			t.Errorf("%s: %v, IPv4 %v, address %v; want %s, %v, %v", c.addr, g, g.Is4(), g.Addr(), c.text, c.is4, addr)
		}
	}
}

func TestMTU(t *testing.T) {
	for code, m := range []MTU{0, 256, 512, 1024, 2048, 4096} {
		if MTUFromCode(code) != m || m.Code() != code || m.Valid() != (code > 0) {
			t.Errorf("code %d: MTU %d, code %d, valid %v; want %d, %d, %v", code, MTUFromCode(code), m.Code(),
				m.Valid(), m, code, code > 0)
		}
	}
	if MTUFromCode(-1) != 0 || MTUFromCode(6) != 0 || MTU(1000).Valid() {
		t.Error("an MTU outside the table is taken for one")
	}
	// The netdev MTUs at which rdma_rxe's active MTU changes.
	for netdev, want := range map[int]MTU{335: 0, 336: 256, 1103: 512, 1104: 1024, 1500: 1024, 4175: 2048, 4176: 4096,
		9000: 4096} {
		if got := MTUFor(netdev); got != want {
			t.Errorf("MTUFor(%d) = %d, want %d", netdev, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	var err error = &AttrError{Op: "modify QP 0x12 INIT to RTR", Attr: "PathMTU", Value: 1000, Allowed: "256 to 4096",
		Err: ErrInvalid}
	for _, part := range []string{"0x12", "PathMTU", "1000", "256 to 4096"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q, want it to say %q", err, part)
		}
	}
	if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrState) {
		t.Errorf("%v matches the wrong sentinel, want only %v", err, ErrInvalid)
	}

	wc := WC{ID: 7, QPN: 0x12, Status: WCRetryExcErr}
	err = wc.Err()
	if !errors.Is(err, &WCError{Status: WCRetryExcErr}) || errors.Is(err, &WCError{Status: WCRemAccessErr}) {
		t.Errorf("%v matches the wrong status, want only %v", err, WCRetryExcErr)
	}
	if wc.Status = WCSuccess; wc.Err() != nil {
		t.Errorf("success is the error %v", wc.Err())
	}
}

// TestNames: every value has a name, and a value without one shows its number.
func TestNames(t *testing.T) {
	for s := range WCStatus(numWCStatus) {
		if strings.HasPrefix(s.String(), "WCStatus(") {
			t.Errorf("status %d is %v, want a name", s, s)
		}
	}
	for s := range QPState(NumQPStates) {
		if strings.HasPrefix(s.String(), "QPState(") {
			t.Errorf("state %d is %v, want a name", s, s)
		}
	}
	if got := WCStatus(200).String(); got != "WCStatus(200)" {
		t.Errorf("an unknown status is called %q, want WCStatus(200)", got)
	}
	if got := (AttrState | AttrDestQPN | AttrRateLimit).String(); got != "State|DestQPN|RateLimit" {
		t.Errorf("mask is called %q, want State|DestQPN|RateLimit", got)
	}
}
