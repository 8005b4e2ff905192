package perf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestRefused: options that cannot work are refused before anybody is bothered, and
// the error names the option and what it may be.
func TestRefused(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) { refused(t, p.open(wrap.FaultConfig{})) })
}

func refused(t *testing.T, dev ib.Device) {
	for _, c := range []struct {
		op      Op
		test    Test
		change  func(*Options)
		attr    string
		allowed string
	}{
		{Write, BW, func(o *Options) { o.Service = UD }, "Service", "[RC UC]"},
		{Read, Lat, func(o *Options) { o.Service = UC }, "Service", "[RC]"},
		{Atomic, BW, func(o *Options) { o.Size = 4 }, "Size", "8"},
		{Atomic, BW, func(o *Options) { o.Size = 16 }, "Size", "1 to 8"},
		{Atomic, BW, func(o *Options) { o.All = true }, "All", "one size"},
		{Write, BW, func(o *Options) { o.All, o.Duration = true, time.Second }, "All", "Duration"},
		{Write, BW, func(o *Options) { o.All, o.Size = true, 1 }, "Size", "at least 2"},
		{Write, BW, func(o *Options) { o.Size = MaxSize + 1 }, "Size", "1 to"},
		{Write, BW, func(o *Options) { o.Size, o.NumQP = MaxSize/8, 8 }, "NumQP", "at most 4"},
		{Write, Lat, func(o *Options) { o.NumQP = 2 }, "NumQP", "1 with lat"},
		{Write, Lat, func(o *Options) { o.Events = true }, "Events", "no event"},
		{Write, Lat, func(o *Options) { o.Bidirectional = true }, "Bidirectional", "both ways"},
		{Write, BW, func(o *Options) { o.MTU = 1500 }, "MTU", "256, 512, 1024, 2048, 4096"},
		{Send, BW, func(o *Options) { o.Service, o.Size = UD, 5000 }, "Size", "one packet"},
		{Read, BW, func(o *Options) { o.Inline = 8 }, "Inline", "no data"},
		{Read, BW, func(o *Options) { o.Outstanding = 1000 }, "Outstanding", "1 to 128"},
		{Write, BW, func(o *Options) { o.TxDepth = 0 }, "TxDepth", "1 to"},
		{Write, BW, func(o *Options) { o.TxDepth, o.CQMod = 8, 9 }, "CQMod", "1 to 8"},
		{Write, BW, func(o *Options) { o.TxDepth, o.PostList = 8, 9 }, "PostList", "0 to 8"},
		{Write, BW, func(o *Options) { o.Duration = -1 }, "Duration", "0 or more"},
		{Write, BW, func(o *Options) { o.Timeout = 0 }, "Timeout", "more than 0"},
		{Write, BW, func(o *Options) { o.NumQP, o.Size, o.TxDepth = 16384, 8, 128 }, "NumQP", "at most 8128"},
		{numOps, BW, func(*Options) {}, "Op", "send, write"},
		{Write, numTests, func(*Options) {}, "Op", "bw or lat"},
	} {
		o := Defaults(c.op, c.test)
		o.Host = "never.invalid"
		c.change(&o)
		_, err := Run(t.Context(), dev, o)
		var attr *ib.AttrError
		if !errors.As(err, &attr) || attr.Attr != c.attr || !strings.Contains(attr.Allowed, c.allowed) {
			t.Errorf("%v %v: error %v, want one of %s that allows %q", c.op, c.test, err, c.attr, c.allowed)
		}
	}
}

func TestNames(t *testing.T) {
	var op Op
	var test Test
	var service Service
	var atomic AtomicOp
	for _, c := range []struct {
		v    interface{ UnmarshalText([]byte) error }
		text string
		want func() bool
	}{
		{&op, "atomic", func() bool { return op == Atomic }},
		{&test, "lat", func() bool { return test == Lat }},
		{&service, "ud", func() bool { return service == UD }},
		{&service, "UC", func() bool { return service == UC }},
		{&atomic, "CMP_AND_SWAP", func() bool { return atomic == CmpAndSwap }},
	} {
		if err := c.v.UnmarshalText([]byte(c.text)); err != nil || !c.want() {
			t.Errorf("%q is read as %v, %v", c.text, c.v, err)
		}
	}
	var attr *ib.AttrError
	if err := op.UnmarshalText([]byte("flush")); !errors.As(err, &attr) || attr.Allowed != "send, write, read, atomic" {
		t.Errorf("flush: error %v, want one that lists the operations", err)
	}
}
