package perf

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTable: names are unique on a wire, and bars name rows that are there.
func TestTable(t *testing.T) {
	o := Options{MTUs: []int{1500, 9000}, VM: true}
	for _, p := range o.plans() {
		names := map[string]bool{}
		for _, r := range p.rows {
			if names[r.Name] {
				t.Errorf("%v: two rows are called %q", p.id, r.Name)
			}
			names[r.Name] = true
		}
		for _, r := range p.rows {
			for _, b := range r.Bars {
				if b.Of != "" && !names[b.Of] || b.Bound <= 0 {
					t.Errorf("%v, %s: bar %v cannot be judged, want it of a row, with a bound", p.id, r.Name, b)
				}
			}
		}
	}
}

// TestBars holds the table against the demands on the datapath, by the number of
// rows for which each bar stands.
func TestBars(t *testing.T) {
	o := Options{MTUs: []int{1500, 9000}, VM: true}
	got := map[string]int{}
	for _, p := range o.plans() {
		for _, r := range p.rows {
			for _, b := range r.Bars {
				got[fmt.Sprintf("%s: %v", r.Name, b)]++
			}
		}
	}
	want := map[string]int{
		"RC WRITE 64 KiB: at least 0.85 x shaped loop, 64 KiB":                        2,
		"RC WRITE 64 KiB: at least 0.6 x TCP cubic, one stream":                       2,
		"RC WRITE 64 KiB: at least 1.3 x TCP bbr, one stream":                         2,
		"RC WRITE 1 MiB: at least 0.85 x shaped loop, 1 MiB":                          2,
		"RC WRITE 1 MiB: at least 0.7 x TCP cubic, one stream":                        2,
		"RC WRITE 1 MiB: at least 1.5 x TCP bbr, one stream":                          2,
		"RC WRITE 4 KiB: at least 0.5 x RC WRITE 64 KiB":                              2,
		"RC READ 64 KiB: at least 0.7 x RC WRITE 64 KiB":                              2,
		"RC SEND 64 KiB: at least 1 x RC WRITE 64 KiB":                                2,
		"RC WRITE 8 B: at least 0.3 x bare loop, 40-byte segments":                    2,
		"RC WRITE 8 B: at least 2":                                                    2,
		"RC WRITE 8 B, ping-pong: at most 1.3 x bare UDP ping-pong, 40 bytes":         1,
		"RC SEND 8 B, ping-pong: at most 1.3 x bare UDP ping-pong, 40 bytes":          1,
		"RC WRITE 4 KiB, 1,000 QPs: at least 0.7 x RC WRITE 4 KiB":                    2,
		"RC WRITE 64 KiB, ordinary user: at least 0.9 x RC WRITE 64 KiB":              2,
		"10,000 idle QPs, memory: at most 4096":                                       1,
		"10,000 idle QPs, CPU of both ends: at most 0.1":                              1,
		"RC WRITE 64 KiB, afxdp: at least 0.8 x bare ring loop (AF_XDP), 1,100 bytes": 1,
		"RC WRITE 64 KiB: at least 1.5 x rdma_rxe RC WRITE 64 KiB (ib_write_bw)":      1,
		"RC WRITE 64 KiB, daemons, memfd: at least 0.8 x RC WRITE 64 KiB":             2,
		"RC WRITE 64 KiB, daemons, process memory: at least 0.5 x RC WRITE 64 KiB":    2,
		"RC WRITE 8 B, ping-pong within a device, of a daemon: at most 2 more than RC WRITE 8 B, ping-pong within a " +
			"device": 1,
		"RC WRITE 8 B, ping-pong, daemons: at most 8 more than RC WRITE 8 B, ping-pong":                           1,
		"ib_write_bw 64 KiB, dropin: at least 0.95 x RC WRITE 64 KiB, daemons, memfd, polling":                    2,
		"ib_write_bw 64 KiB, dropin, memfd: at least 0.95 x RC WRITE 64 KiB, daemons, memfd, polling":             2,
		"CPU of ib_write_bw 64 KiB, dropin: at most 1.15 x CPU of ib_write_bw 64 KiB, dropin, memfd":              1,
		"CPU of ib_write_bw 64 KiB, dropin: at most 1.4 x CPU of RC WRITE 64 KiB, daemons, memfd, polling":        1,
		"ib_write_bw 8 B, dropin: at least 0.9 x RC WRITE 8 B, daemons, memfd":                                    1,
		"ib_write_bw 8 B, dropin, memfd: at least 0.9 x RC WRITE 8 B, daemons, memfd":                             1,
		"RC WRITE 8 B, daemons, process memory: at least 0.9 x ib_write_bw 8 B, dropin, process memory":           1,
		"ib_send_lat 8 B, dropin: at most 1.15 x RC SEND 8 B, ping-pong, daemons, memfd":                          1,
		"ib_send_lat 8 B, dropin, process memory: at most 1.15 x RC SEND 8 B, ping-pong, daemons, process memory": 1,
		"ib_send_lat 8 B, dropin, memfd: at most 1.15 x RC SEND 8 B, ping-pong, daemons, memfd":                   1,
		"system calls of ib_write_bw 64 KiB, dropin: at most 0.001":                                               1,
		"system calls of ib_send_lat 8 B, dropin: at most 0.001":                                                  1,
		"RC WRITE 64 KiB, 64 into one, daemons: at least 0.8":                                                     1,
		"CPU of RC WRITE 64 KiB, 64 into one, daemons: at most 1.5 x CPU of RC WRITE 64 KiB, 1 into one, daemons": 1,
		"100 idle QPs of a daemon, its memory: at most 64":                                                        1,
		"100 idle QPs of daemons, CPU of both ends: at most 1":                                                    1,
	}
	for bar, n := range want {
		if got[bar] != n {
			t.Errorf("%d rows have %q, want %d", got[bar], bar, n)
		}
	}
}

func TestChoose(t *testing.T) {
	o := Options{MTUs: []int{1500}, Rows: regexp.MustCompile("ping-pong$")}
	var names []string
	for _, r := range o.choose(rows(firstMTU)) {
		names = append(names, r.Name)
	}
	if want := []string{barePings, writePing, sendPing}; !slices.Equal(names, want) {
		t.Errorf("chose %q, want %q: the yardstick comes along", names, want)
	}
	if o.Rows = regexp.MustCompile("^nothing"); len(o.plans()) != 0 {
		t.Error("wires are planned for which there is no row")
	}
}

func TestList(t *testing.T) {
	var out strings.Builder
	(&Options{MTUs: []int{1500}}).WriteList(&out)
	for _, want := range []string{"two namespaces, veth, MTU 1500\n", "  RC WRITE 8 B [M msg/s]\n",
		"      at least 0.6 x TCP cubic, one stream\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the list lacks %q:\n%s", want, &out)
		}
	}
}

func TestShape(t *testing.T) {
	for _, c := range []struct {
		size, mtu int
		want      []int // packets of each run
	}{
		{64 << 10, 1024, []int{2, 62}}, // [FIRST MIDDLE] [MIDDLE ... LAST]
		{64 << 10, 4096, []int{2, 14}},
		{4 << 10, 1024, []int{2, 2}},
		{1 << 20, 4096, append(append([]int{2}, slices.Repeat([]int{15}, 16)...), 14)},
		{4 << 10, 4096, []int{15}}, // ONLYs of 15 messages
		{8, 1024, []int{64}},
		{1025, 1024, []int{2}}, // FIRST and a short LAST
	} {
		var got []int
		for _, run := range shape(c.size, c.mtu) {
			got = append(got, len(run))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d bytes in packets of %d leave as runs of %d, want %d", c.size, c.mtu, got, c.want)
		}
	}
}

// TestShapeRuns: whatever the sizes, runs are what segmentation offload takes, and
// carry the message.
func TestShapeRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 2<<20).Draw(t, "size")
		mtu := rapid.SampledFrom([]int{1024, 2048, 4096}).Draw(t, "path MTU")
		total, header := 0, firstHeader
		for _, run := range shape(size, mtu) {
			bytes, first := 0, 0
			for i, payload := range run {
				if size <= mtu {
					header = firstHeader
				}
				frame := header + payload + crcLen
				header = middleHeader
				if i == 0 {
					first = frame
				}
				if frame > first || frame < first && i < len(run)-1 {
					t.Fatalf("frame %d of %d has %d bytes, want the %d of the first, or less in the last", i, len(run),
						frame, first)
				}
				bytes += frame
				total += payload
			}
			if len(run) > runSegments || bytes > runBytes {
				t.Fatalf("a run of %d segments and %d bytes, want at most %d and %d", len(run), bytes, runSegments,
					runBytes)
			}
		}
		if size > mtu && total != size || total%size != 0 || total == 0 {
			t.Fatalf("runs carry %d bytes, want whole messages of %d", total, size)
		}
	})
}

// TestShapedMessages: what the sender fills in the receiver takes out, also after
// a message of which runs were lost; each message begins with the longer header.
func TestShapedMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 200_000).Draw(t, "size")
		mtu := rapid.SampledFrom([]int{1024, 4096}).Draw(t, "path MTU")
		s := &shapedSender{payload: make([]byte, size), buf: make([]byte, 1<<16)}
		for i := range s.payload {
			s.payload[i] = byte(i*i + i>>8)
		}
		r := &shapedReceiver{memory: make([]byte, size)}
		for _, lossy := range []bool{true, false} {
			clear(r.memory)
			r.received, s.inFlight = 0, 0
			at, firsts := 0, 0
			for _, run := range shape(size, mtu) {
				var n, segment int
				n, segment, at = s.fill(run, at)
				for i := 0; i < n; i += segment {
					if s.buf[i] == firstHeader {
						firsts++
					}
				}
				if lossy && rapid.Bool().Draw(t, "lost") {
					continue
				}
				if err := r.take(s.buf[:n], segment); err != nil {
					t.Fatal(err)
				}
			}
			if at != size || s.inFlight != firsts*size {
				t.Fatalf("sent %d bytes in %d messages of %d bytes, up to byte %d; want %d, to the end", s.inFlight,
					firsts, size, at, firsts*size)
			}
			if !lossy && (!slices.Equal(s.payload, r.memory) || r.received != uint64(s.inFlight)) {
				t.Fatalf("%d bytes were sent, %d arrived; right ones: %v; want all", s.inFlight, r.received,
					slices.Equal(s.payload, r.memory))
			}
		}
	})
}
