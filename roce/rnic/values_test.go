//go:build rnic && cgo

package rnic

import (
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
)

// TestAttributesRoundTrip checks that attributes are unchanged after conversion to the C
// form and back. The compiler checks in constants.go that the constants are equal.
func TestAttributesRoundTrip(t *testing.T) {
	attr := ib.QPAttr{
		State: ib.StateSQD, CurState: ib.StateRTS, Port: 1, PKeyIndex: 2, Access: ib.QPAccessMask, QKey: 0x80000001,
		AH: ib.AHAttr{DGID: ib.GID{0: 0xFD, 15: 9}, SGIDIndex: 255, Port: 1, TrafficClass: 0xB8, HopLimit: 3,
			FlowLabel: 0xFFFFF},
		PathMTU: ib.MTU2048, DestQPN: 0xFFFFFE, RQPSN: ib.PSNMask, SQPSN: 1,
		MaxRdAtomic: 16, MaxDestRdAtomic: 255, MinRNRTimer: 31, Timeout: 30, RetryCnt: 6, RNRRetry: 7,
		RateLimit: 1 << 31, SQDNotify: true, Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 2, MaxSendSGE: 3, MaxRecvSGE: 4,
			MaxInline: 5},
	}
	c := cAttr(&attr)
	if diff := cmp.Diff(attr, goAttr(&c)); diff != "" {
		t.Errorf("QP attributes, sent and got back (-want +got):\n%s", diff)
	}
	for _, m := range []ib.MTU{ib.MTU256, ib.MTU512, ib.MTU1024, ib.MTU2048, ib.MTU4096} {
		c := cAttr(&ib.QPAttr{PathMTU: m})
		if got := goAttr(&c).PathMTU; got != m {
			t.Errorf("path MTU %d comes back as %d, want %d", m, got, m)
		}
	}
}

// TestAddressDefaults checks that an address vector is always global, as RoCE requires, and
// that the hop limit is that of Linux's routes by default.
func TestAddressDefaults(t *testing.T) {
	c := cAH(&ib.AHAttr{DGID: ib.GID{15: 1}})
	if c.is_global != 1 || c.port_num != 1 || c.grh.hop_limit != 64 {
		t.Errorf("is_global %d, port %d, hop limit %d; want 1, 1, 64", c.is_global, c.port_num, c.grh.hop_limit)
	}
	c.is_global = 0
	if got := goAH(&c); got != (ib.AHAttr{}) {
		t.Errorf("a vector that was never set reads %+v, want %+v", got, ib.AHAttr{})
	}
}

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		errno    syscall.Errno
		op, post error
	}{
		{syscall.EINVAL, ib.ErrInvalid, ib.ErrInvalid},
		{syscall.ENOMEM, ib.ErrLimit, ib.ErrQueueFull},
		{syscall.EBUSY, ib.ErrBusy, ib.ErrBusy},
		{syscall.EOPNOTSUPP, ib.ErrNotSupported, ib.ErrNotSupported},
		{syscall.ENOSYS, ib.ErrNotSupported, ib.ErrNotSupported},
		{syscall.ENODEV, ib.ErrClosed, ib.ErrClosed},
		{syscall.ENOSPC, ib.ErrLimit, ib.ErrQueueFull},
		{syscall.EXDEV, syscall.EXDEV, syscall.EXDEV}, // has no sentinel
	} {
		if err := check("test", int32(c.errno)); !errors.Is(err, c.op) || !errors.Is(err, c.errno) {
			t.Errorf("errno %d from a verb is %v, want %v", int(c.errno), err, c.op)
		}
		if err := check("test", -int32(c.errno)); !errors.Is(err, c.op) {
			t.Errorf("errno %d, negative, from a verb is %v, want %v", int(c.errno), err, c.op)
		}
		if err := postError(int32(c.errno)); !errors.Is(err, c.post) {
			t.Errorf("errno %d from a post is %v, want %v", int(c.errno), err, c.post)
		}
	}
	if check("test", int32(0)) != nil || postError(int32(0)) != nil {
		t.Error("0 is an error")
	}
}

// TestClockConversion checks that ticks of any clock, over the whole range, are converted to
// nanoseconds without overflow.
func TestClockConversion(t *testing.T) {
	for _, c := range []struct {
		kHz, ticks uint64
		want       ib.Instant
	}{
		{1e6, 12345, 12345}, {78125, 78125, 1e6}, {156250, 1, 6}, {1e6, math.MaxInt64, math.MaxInt64}, {1000, 5, 5000},
	} {
		if got := (clock{kHz: c.kHz}).instant(c.ticks); got != c.want {
			t.Errorf("%d ticks at %d kHz are %d ns, want %d", c.ticks, c.kHz, got, c.want)
		}
	}
}

func TestRoundUp(t *testing.T) {
	for _, c := range [][3]int{{1, 100, 1}, {2, 100, 2}, {3, 100, 4}, {64, 100, 64}, {65, 100, 100}, {100, 100, 100}} {
		if got := roundUp(c[0], c[1]); got != c[2] {
			t.Errorf("%d of at most %d becomes %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// TestAHNumbers checks that a number identifies one handle, and none after that is closed,
// even if its index is reused.
func TestAHNumbers(t *testing.T) {
	var r refs
	first, second := &ah{}, &ah{}
	first.num = r.addAH(first)
	if first.num == 0 || r.ah(first.num) != first || r.ah(0) != nil || r.ah(first.num+1) != nil {
		t.Fatalf("number %#x does not name its handle alone", first.num)
	}
	r.removeAH(first)
	r.removeAH(first)
	second.num = r.addAH(second)
	if r.ah(first.num) != nil || r.ah(second.num) != second || len(r.ahs) != 1 {
		t.Errorf("numbers %#x and %#x, %d places; want one place and two numbers", first.num, second.num, len(r.ahs))
	}
}
