package top

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/goroce/goroce/roce/daemon/server"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// pair is a queue pair of a process that has sent and received so much.
func pair(qpn uint32, pid int32, sent, rcvd uint64) server.QPInfo {
	return server.QPInfo{Device: "blue", QPN: qpn, Type: "RC", State: "RTS", Peer: netip.MustParseAddr("192.0.2.2"),
		Traffic: &server.Traffic{SentBytes: sent, RcvdBytes: rcvd, SentMessages: sent / 1000,
			RTT: 40 * time.Microsecond, Window: 128},
		Owner: server.Owner{PID: pid, Comm: fmt.Sprintf("app%d", pid)}}
}

// TestRates: rates are those between two samples. A queue pair that is new has done everything since, and so has one
// that has the number of an older one.
func TestRates(t *testing.T) {
	before := Sample{begin, []server.QPInfo{pair(1, 7, 1000, 0), pair(2, 7, 9000, 9000)}}
	after := Sample{begin.Add(2 * time.Second), []server.QPInfo{pair(1, 7, 251_000, 500_000), pair(2, 7, 2000, 0),
		pair(3, 8, 4000, 0), {Device: "blue", Type: "RC", State: "RTS", Owner: server.Owner{PID: 9}}}}
	rows := Rows(before, after)
	for i, want := range []struct{ sent, rcvd, messages float64 }{{1e6, 2e6, 125}, {8000, 0, 1}, {16000, 0, 2}, {}} {
		if r := rows[i]; r.SentBits != want.sent || r.RcvdBits != want.rcvd || r.SentMessages != want.messages {
			t.Errorf("row %d: got %v, %v bit/s and %v messages/s, want %+v", i, r.SentBits, r.RcvdBits, r.SentMessages,
				want)
		}
	}
	sums := Processes(rows)
	if len(sums) != 3 || sums[0].QPs != 2 || sums[0].SentBits != 1_008_000 || sums[0].RTT != 40*time.Microsecond {
		t.Errorf("got %+v, want three processes, the first with both of its queue pairs", sums)
	}
}

// TestPath: of a process are shown the smallest window and pace, the longest round trips, and the most marks, as its
// queue pairs may share all this. Marks of a queue pair that has another destination are not a rate.
func TestPath(t *testing.T) {
	with := func(qpn uint32, pace int64, rtt time.Duration, marks, cnps uint64) server.QPInfo {
		q := pair(qpn, 7, 1000, 0)
		q.Traffic.PaceBits, q.Traffic.MinRTT, q.Traffic.MarkedPkts, q.Traffic.RcvdCNPs = pace, rtt, marks, cnps
		q.Traffic.Control, q.Traffic.ResentBytes, q.Traffic.SpuriousPkts = "cubic", marks, cnps
		return q
	}
	rows := Rows(Sample{begin, []server.QPInfo{with(1, 0, 0, 0, 0), with(2, 5, 0, 100, 0), with(3, 0, 0, 0, 0)}},
		Sample{begin.Add(2 * time.Second), []server.QPInfo{with(1, 2e9, 30, 60, 40), with(2, 4e9, 50, 90, 0),
			with(3, 0, 0, 60, 40)}})
	for i, want := range []float64{50, 0, 50} {
		if rows[i].Marks != want {
			t.Errorf("queue pair %d: got %v marks/s, want %v", i+1, rows[i].Marks, want)
		}
	}
	sum := Processes(rows)[0]
	if sum.PaceBits != 2e9 || sum.MinRTT != 50 || sum.Marks != 50 || sum.Control != "cubic" || sum.SpuriousPkts != 40 {
		t.Errorf("got %+v, want a pace of 2 Gb/s, 50 ns, 50 marks/s, cubic, and 40 packets/s in vain", sum)
	}
}

// TestView: rows are selected and sorted by any column.
func TestView(t *testing.T) {
	rows := Rows(Sample{At: begin}, Sample{begin.Add(time.Second), []server.QPInfo{pair(0x11, 7, 1000, 0),
		pair(0x12, 8, 3000, 0), pair(0x13, 7, 2000, 5000)}})
	for _, c := range []struct {
		view View
		want []uint32
	}{
		{View{}, []uint32{0x12, 0x13, 0x11}},
		{View{Reverse: true}, []uint32{0x11, 0x13, 0x12}},
		{View{Sort: "rx"}, []uint32{0x13, 0x11, 0x12}},
		{View{Sort: "comm"}, []uint32{0x11, 0x13, 0x12}},
		{View{Filter: "app7"}, []uint32{0x13, 0x11}},
		{View{Filter: "0x12"}, []uint32{0x12}},
		{View{Sort: "qps"}, []uint32{0x12, 0x13, 0x11}}, // not a column of this table
	} {
		var got []uint32
		for _, r := range c.view.Select(rows) {
			got = append(got, r.QPN)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %#x, want %#x", c.view, got, c.want)
		}
	}
	for _, name := range Columns() {
		for _, processes := range []bool{false, true} {
			v := View{Sort: name, Processes: processes}
			v.Select(rows)
		}
	}
}

// TestPrint: the table as it is in a file.
func TestPrint(t *testing.T) {
	failed := pair(0x21, 9, 0, 0)
	failed.State, failed.Failed = "ERR", "the peer had no receive posted, 8 times"
	sends := pair(0x11, 7, 1_250_000, 0)
	sends.Traffic.PaceBits = 2_500_000_000
	rows := Rows(Sample{At: begin}, Sample{begin.Add(time.Second), []server.QPInfo{sends, failed}})
	var b strings.Builder
	if err := Print(&b, &View{}, rows); err != nil {
		t.Fatal(err)
	}
	const want = `2 queue pairs of 2 processes, 0.010 Gb/s sent, - Gb/s received, - packets/s sent again, 1 failed
DEVICE   QPN  TYPE  STATE  PEER       TX Gb/s  RX Gb/s  TX msg/s  RX msg/s   RTT  WINDOW  PACE  FLIGHT  RESENT/s  MARKS/s  RNR/s  PID  COMM  ERROR
blue    0x11  RC    RTS    192.0.2.2    0.010        -      1.2k         -  40us     128  2.50       -         -        -      -    7  app7
blue    0x21  RC    ERR    192.0.2.2        -        -         -         -  40us     128     -       -         -        -      -    9  app9  the peer had no receive posted, 8 times
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "-", 0.04: "-", 0.5: "0.5", 2: "2", 9.96: "10", 999.4: "999",
		999.6: "1.0k", 9949: "9.9k", 9950: "10k", 999_400: "999k", 999_500: "1.0M", 12.34e6: "12.3M"} {
		if got := count(v); got != want {
			t.Errorf("count(%v): got %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "-", 1: "<.001", 5e6: "0.005", 25.678e9: "25.68"} {
		if got := gigabits(v); got != want {
			t.Errorf("gigabits(%v): got %q, want %q", v, got, want)
		}
	}
}

// contents returns the lines of a screen.
func contents(s tcell.SimulationScreen) []string {
	cells, width, height := s.GetContents()
	lines := make([]string, height)
	for y := range lines {
		var b strings.Builder
		for x := range width {
			for _, r := range cells[y*width+x].Runes {
				b.WriteRune(r)
			}
		}
		lines[y] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

// underlined returns what is underlined in the head.
func underlined(s tcell.SimulationScreen) string {
	var b strings.Builder
	cells, width, _ := s.GetContents()
	for _, c := range cells[width : 2*width] {
		if _, _, attrs := c.Style.Decompose(); attrs&tcell.AttrUnderline != 0 || c.Style.GetUnderlineStyle() != 0 {
			b.WriteString(string(c.Runes))
		}
	}
	return b.String()
}

// TestScreen: keys sort, filter, sum up, pause and quit.
func TestScreen(t *testing.T) {
	screen := tcell.NewSimulationScreen("UTF-8")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	defer screen.Fini()
	screen.SetSize(160, 10)
	rows := func(n uint64) []Row {
		return Rows(Sample{At: begin}, Sample{begin.Add(time.Second),
			[]server.QPInfo{pair(0x11, 7, n*1000, 0), pair(0x12, 8, n*2000, n*10)}})
	}
	d := display{screen: screen, rows: rows(1)}
	press := func(key tcell.Key, r rune) (quit bool) {
		quit = d.handle(tcell.NewEventKey(key, r, tcell.ModNone))
		d.draw()
		return quit
	}
	shows := func(after string, line int, want string) {
		t.Helper()
		if got := contents(screen)[line]; !strings.Contains(got, want) {
			t.Errorf("after %s: got line %d %q, want %q in it", after, line, got, want)
		}
	}
	letters := func(keys string) {
		for _, r := range keys {
			press(tcell.KeyRune, r)
		}
	}
	d.draw()
	shows("the start", 2, "0x12")
	letters("r")
	shows("r", 2, "0x11")
	letters("p")
	shows("p", 1, "QPS")
	shows("p", 2, "app7")
	letters("p/0x12")
	shows("/", 9, "only rows with: 0x12_")
	press(tcell.KeyEnter, 0)
	shows("enter", 2, "0x12")
	shows("enter", 9, "only rows with 0x12")
	if lines := contents(screen); lines[3] != "" {
		t.Errorf("got another row, %q, want none", lines[3])
	}
	letters("/")
	press(tcell.KeyEscape, 0)
	shows("escape", 3, "0x12")
	screen.SetSize(60, 4)
	d.draw()
	shows("a resize", 2, "0x11")
	press(tcell.KeyDown, 0)
	shows("down", 2, "0x12")
	press(tcell.KeyDown, 0)
	shows("the end", 2, "0x12")
	letters(" ")
	d.took(rows(70))
	d.draw()
	shows("a pause", 3, "paused")
	if d.rows[0].SentMessages != 1 {
		t.Errorf("got %+v after a pause, want the rows before it", d.rows[0])
	}
	letters(" ")
	press(tcell.KeyRight, 0)
	if got := underlined(screen); d.view.Sort != "rx" || got != "RX Gb/s" {
		t.Errorf("after right: got order by %q, and %q underlined, want RX Gb/s", d.view.Sort, got)
	}
	if !press(tcell.KeyRune, 'q') || !press(tcell.KeyCtrlC, 0) {
		t.Error("q and Ctrl-C do not quit")
	}
}

// TestShow: samples are drawn as they come, until the user quits.
func TestShow(t *testing.T) {
	screen := tcell.NewSimulationScreen("UTF-8")
	taken := make(chan struct{}, 100)
	get := func(context.Context) ([]server.QPInfo, error) {
		taken <- struct{}{}
		return nil, nil
	}
	done := make(chan error)
	go func() { done <- Show(t.Context(), screen, get, View{}, time.Millisecond) }()
	for range 5 {
		<-taken
	}
	screen.InjectKey(tcell.KeyRune, 'q', tcell.ModNone)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDaemonGone: the table ends with the reason when the daemon does not answer.
func TestDaemonGone(t *testing.T) {
	gone := errors.New("gone")
	var n int
	get := func(context.Context) ([]server.QPInfo, error) {
		if n++; n > 2 {
			return nil, gone
		}
		return nil, nil
	}
	if err := Show(t.Context(), tcell.NewSimulationScreen(""), get, View{}, time.Millisecond); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
}
