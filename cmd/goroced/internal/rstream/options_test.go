package rstream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/toolstest"
)

func TestOptions(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open opener) { options(t, open(wrap.FaultConfig{})) })
}

func options(t *testing.T, dev ib.Device) {
	for _, c := range []struct {
		attr   string
		change func(*Options)
	}{
		{"Port", func(o *Options) { o.Port = 65536 }},
		{"Port", func(o *Options) { o.Port = -1 }},
		{"Port", func(o *Options) { o.Server, o.Port = "192.0.2.1", 0 }},
		{"Iterations", func(o *Options) { o.Iterations = 0 }},
		{"Transfers", func(o *Options) { o.Transfers = 0 }},
		{"Size", func(o *Options) { o.Size = 0 }},
		{"Size", func(o *Options) { o.Size = MaxSize + 1 }},
		{"AckTimeout", func(o *Options) { o.AckTimeout = 32 }},
		{"MTU", func(o *Options) { o.Server, o.MTU = "192.0.2.1", 1500 }},
		{"Timeout", func(o *Options) { o.Timeout = 0 }},
		{"Server", func(o *Options) { o.Server, o.Numeric = "name.invalid", true }},
		{"Bind", func(o *Options) { o.Bind, o.Numeric = "name.invalid", true }},
		{"Bind", func(o *Options) { o.Server, o.Bind = "192.0.2.1", "name.invalid" }},
		{"Server", func(o *Options) { o.Server, o.Bind = "name.invalid", "name.invalid"; o.Numeric = true }},
		{"SendBuffer", func(o *Options) { o.Buffer = -1 }},
	} {
		o := Defaults()
		c.change(&o)
		var refused *ib.AttrError
		if err := Run(t.Context(), dev, o); !errors.As(err, &refused) || refused.Attr != c.attr &&
			refused.Attr != "ReceiveBuffer" {
			t.Errorf("%+v: %v, want a word on %s", o, err, c.attr)
		}
	}
}

func TestSetTest(t *testing.T) {
	for _, c := range []struct {
		arg    string
		verify bool
		want   error
	}{
		{"a", false, nil}, {"async", false, nil}, {"b", false, nil}, {"blocking", false, nil}, {"Block", false, nil},
		{"n", false, nil}, {"nonblocking", false, nil}, {"r", false, nil}, {"resolve", false, nil},
		{"v", true, nil}, {"verify", true, nil},
		{"s", false, ib.ErrNotSupported}, {"sockets", false, ib.ErrNotSupported},
		{"f", false, ib.ErrNotSupported}, {"fork", false, ib.ErrNotSupported},
		{"", false, ib.ErrInvalid}, {"x", false, ib.ErrInvalid}, {"ver", false, ib.ErrInvalid},
		{"V", false, ib.ErrInvalid},
	} {
		o := Defaults()
		if err := o.SetTest(c.arg); !errors.Is(err, c.want) || o.Verify != c.verify {
			t.Errorf("%q: verify %v, %v; want %v, %v", c.arg, o.Verify, err, c.verify, c.want)
		}
	}
}

// TestDefaultSeries: what the C tool does without options.
func TestDefaultSeries(t *testing.T) {
	o := Defaults()
	series := o.connections()
	want := [][]test{
		{{"64_lat", 64, 1, 100_000}, {"4k_lat", 4 << 10, 1, 10_000}, {"64k_lat", 64 << 10, 1, 1000},
			{"1m_lat", 1 << 20, 1, 100}},
		{{"64_bw", 64, 100_000, 1}, {"4k_bw", 4 << 10, 10_000, 1}, {"64k_bw", 64 << 10, 1000, 1},
			{"1m_bw", 1 << 20, 100, 1}},
	}
	if diff := cmp.Diff(want, series, cmp.AllowUnexported(test{})); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	if got := largest(series); got != 1<<20 {
		t.Errorf("the largest transfer has %d bytes, want %d", got, 1<<20)
	}
}

// TestTable: rows as the C tool prints them.
func TestTable(t *testing.T) {
	var out strings.Builder
	printHeader(&out)
	printRow(&out, &test{"64_lat", 64, 1, 100_000}, 200_000, 1500*time.Millisecond)
	printRow(&out, &test{"1.5k_bw", 1536, 10_000, 1}, 20_000, 25*time.Millisecond)
	want := `name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer
64_lat    64      1       100k    12m         1.50s      0.07       7.50
1.5k_bw   1.5k    10k     1       29m         0.03s      9.83       1.25
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for n, want := range map[int64][2]string{
		0: {"0", "0"}, 999: {"999", "999"}, 1000: {"1000", "1k"}, 1024: {"1k", "1k"}, 1536: {"1.5k", "1k"},
		10 << 10:   {"10k", "10k"},
		11<<10 - 1: {"10k", "11k"}, 1<<20 - 1: {"1023k", "1m"}, 1 << 20: {"1m", "1m"}, 5 << 29: {"2.5g", "2b"},
		1 << 40: {"1024g", "1099b"},
	} {
		if got := [2]string{sizeText(n), countText(n)}; got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	printRow(io.Discard, &test{"custom", 1, 1, 1}, 2, 0) // a clock may stand still
}
