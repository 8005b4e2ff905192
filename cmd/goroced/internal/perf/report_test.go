package perf

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/tests/toolstest"
)

// TestTally counts 100 messages of 1 MiB, the second half of them twice as fast.
func TestTally(t *testing.T) {
	o := Defaults(Write, BW)
	now := time.Unix(1000, 0)
	var y tally
	y.begin(now, 10)
	for i := range 100 {
		step := 10 * time.Millisecond
		if i >= 50 {
			step /= 2
		}
		now = now.Add(step)
		y.add(1, now)
	}
	r := y.row(&o, 1<<20)
	want := Row{Size: 1 << 20, Iterations: 100, Seconds: 0.75,
		Bandwidth: &Bandwidth{Peak: 200, Average: 100 / 0.75, MsgRate: 100 / 0.75 / 1e6}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	o.Gbits = true
	if r := y.row(&o, 1<<20); math.Abs(r.Bandwidth.Average-float64(8<<20)*100/0.75/1e9) > 1e-9 {
		t.Errorf("%v Gb/s, want %v", r.Bandwidth.Average, float64(8<<20)*100/0.75/1e9)
	}
	o.Duration = time.Second
	if r := y.row(&o, 1<<20); r.Peak != 0 {
		t.Errorf("a run of a duration has a peak of %v, want none", r.Peak)
	}
}

// TestSamples: a thousand times of 1 to 1000 us.
func TestSamples(t *testing.T) {
	var s samples
	s.begin()
	now := time.Unix(1000, 0)
	s.tick(now)
	for us := range 1000 {
		now = now.Add(time.Duration(us+1) * time.Microsecond)
		s.tick(now)
	}
	r := s.row(2, 2)
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > want/500 {
			t.Errorf("%s %v, want %v", what, got, want)
		}
	}
	near("min", r.Min, 0.5)
	near("max", r.Max, 500)
	near("median", r.Typical, 250)
	near("average", r.Latency.Average, 250.25)
	near("deviation", r.StdDev, 144.34)
	near("99 %", r.P99, 495)
	near("99.9 %", r.P999, 499.5)
	near("rate", r.TPS, 1e6/500.5)
	if r.Iterations != 1000 || r.Size != 2 {
		t.Errorf("%d samples of %d bytes, want 1000 of 2", r.Iterations, r.Size)
	}
}

// TestSchedule: a quarter, a half, a quarter.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s schedule
		s.set(0)
		s.begin(0)
		if s.phase() != sampling {
			t.Errorf("without a duration: phase %d, want %d", s.phase(), sampling)
		}
		s.set(4 * time.Second)
		time.Sleep(time.Hour)
		if s.phase() != warming {
			t.Errorf("before it begins: phase %d, want %d", s.phase(), warming)
		}
		s.begin(4 * time.Second)
		time.Sleep(500 * time.Millisecond)
		for i, want := range []phase{warming, sampling, sampling, cooling, ended} {
			s.begin(4 * time.Second) // once is enough
			if s.phase() != want {
				t.Errorf("after %d.5 s: phase %d, want %d", i, s.phase(), want)
			}
			time.Sleep(time.Second)
		}
		s.cancel()
	})
}

// TestLateTimers: phases only go forward, whatever the order in which timers fire.
func TestLateTimers(t *testing.T) {
	var s schedule
	s.set(time.Hour)
	for _, p := range []phase{sampling, ended, cooling, sampling} {
		s.enter(p)
	}
	if s.phase() != ended {
		t.Errorf("phase %d, want %d", s.phase(), ended)
	}
}

func TestJSON(t *testing.T) {
	o := Defaults(Send, BW)
	want := Report{Info: o.info("soft", 1), Results: []Row{
		{Size: 8, Iterations: 7, Lost: 1, Seconds: 0.5, Bandwidth: &Bandwidth{1, 2, 3}},
		{Size: 8, Iterations: 7, Latency: &Latency{1, 2, 3, 4, 5, 6, 7, 8}},
	}}
	var b bytes.Buffer
	if err := want.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, key := range []string{`"test": "Send BW Test"`, `"MsgSize": 8`, `"n_iterations": 7`, `"BW_average": 2`,
		`"percentile_99.9": 7`} {
		if !strings.Contains(b.String(), key) {
			t.Errorf("there is no %s:\n%s", key, b.String())
		}
	}
}

// TestText is perftest 6.06's own output, to the space.
func TestText(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		op     Op
		test   Test
		row    Row
		want   string
	}{
		{func(*Options) {}, Write, BW,
			Row{Size: 65536, Iterations: 5000,
				Bandwidth: &Bandwidth{Peak: 9411.31, Average: 9410.2, MsgRate: 0.150563}},
			" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n" +
				" 65536      5000             9411.31            9410.20\t\t   0.150563\n"},
		{func(o *Options) { o.Gbits = true }, Write, BW,
			Row{Size: 2, Iterations: 5000, Bandwidth: &Bandwidth{Peak: 0.1, Average: 0.05, MsgRate: 3.125}},
			" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n" +
				" 2          5000           0.100000            0.050000            3.125000\n"},
		{func(*Options) {}, Send, Lat,
			Row{Size: 2, Iterations: 1000, Latency: &Latency{Min: 0.85, Max: 5.5, Typical: 0.9, Average: 0.91,
				StdDev: 0.1, P99: 1, P999: 5}},
			" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   " +
				"99% percentile[usec]   99.9% percentile[usec] \n" +
				" 2       1000          0.85           5.50         0.90     \t       0.91        \t0.10   \t\t1.00  " +
				"  \t\t5.00   \n"},
		{func(o *Options) { o.Duration = time.Second }, Send, Lat,
			Row{Size: 2, Iterations: 1000, Latency: &Latency{Average: 0.91, TPS: 549450.55}},
			" #bytes        #iterations       t_avg[usec]    tps average\n" +
				" 2             1000            0.91           549450.55\n"},
	} {
		o := Defaults(c.op, c.test)
		c.change(&o)
		var b strings.Builder
		b.WriteString(o.header())
		c.row.print(&b, &o)
		if diff := cmp.Diff(resultLine+c.want, b.String()); diff != "" {
			t.Error(diff)
		}
	}
}

// TestProgress: a long run says how it goes; one of a number of messages, of which
// nobody knows how long it takes, after a while.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		run    time.Duration
		want   string
	}{
		{func(o *Options) { o.Duration = 10 * time.Second }, 1500 * time.Millisecond,
			"after 1 of 10 s: 1600 messages/s, 100.00 MB/sec\n"},
		{func(o *Options) { o.Duration = 5 * time.Second }, 4500 * time.Millisecond, ""},
		{func(*Options) {}, 4500 * time.Millisecond, ""},
		{func(*Options) {}, 5500 * time.Millisecond, "after 5 s: 0 messages/s, 0.00 MB/sec\n"},
		{func(o *Options) { o.All = true }, 5500 * time.Millisecond, "after 5 s: 0 messages/s\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			out := toolstest.NewOutput()
			o := Defaults(Write, BW)
			o.Log = out
			c.change(&o)
			s := &session{o: &o, e: &endpoint{}}
			stop := s.showProgress()
			s.e.done.Store(1600)
			time.Sleep(c.run)
			stop()
			synctest.Wait()
			if out.String() != c.want {
				t.Errorf("after %v of %v: %q, want %q", c.run, o.Duration, out.String(), c.want)
			}
		})
	}
}
