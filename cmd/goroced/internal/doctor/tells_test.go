package doctor

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/wire"
)

// bleacher clears the ECN bits of what arrives.
type bleacher struct{ link.Link }

func (b bleacher) Recv(now ib.Instant, runs []link.Run) (int, error) {
	n, err := b.Link.Recv(now, runs)
	for i := range runs[:n] {
		runs[i].TrafficClass &^= 3
	}
	return n, err
}

// TestTold: between two devices of goroce losses have a direction, and marks that are kept, cleared or set are seen.
func TestTold(t *testing.T) {
	for name, c := range map[string]struct {
		bleach      bool
		there, back wrap.FaultConfig
		check       func(a *answers) bool
	}{
		"a good network": {check: func(a *answers) bool {
			return a.lost == 0 && a.told.answers == requests+1 && a.told.marks[wire.ECT0] == requests
		}},
		"marks are cleared": {bleach: true, check: func(a *answers) bool {
			return a.told.marks[wire.NotECT] == requests && a.told.bleached()
		}},
		"marks are set": {there: wrap.FaultConfig{MarkCE: 1}, check: func(a *answers) bool {
			return a.told.marks[wire.CE] == requests && !a.told.bleached()
		}},
		"losses on the way there": {there: wrap.FaultConfig{Drop: 0.3}, check: func(a *answers) bool {
			return a.lost > 0 && a.told.received == a.told.answers && a.told.asked > a.told.received
		}},
		"losses on the way back": {back: wrap.FaultConfig{Drop: 0.3}, check: func(a *answers) bool {
			return a.lost > 0 && a.told.asked == a.told.received && a.told.received > a.told.answers
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := simtest.Config{Wrap: func(host int, l link.Link) link.Link {
				if c.bleach && host == 1 {
					return bleacher{l}
				}
				return l
			}}
			simtest.Run(t, config, func(t *testing.T, n *simtest.Net) {
				here, there := n.Hosts[0], n.Hosts[1]
				here.SetFault(c.there)
				there.SetFault(c.back)
				a, err := askFrom(t.Context(), here.Device(), here.Addr(), there.Addr())
				if err != nil || a.errno != 0 {
					t.Fatalf("%v, %v; want none", err, a.errno)
				}
				if !c.check(&a) {
					t.Errorf("got %+v", a)
				}
				if o := a.told.offset.Abs(); o > a.told.margin {
					t.Errorf("clocks differ by %v, want at most %v, as they are one", o, a.told.margin)
				}
			})
		})
	}
}

// TestToldText: what was told, in words.
func TestToldText(t *testing.T) {
	peer := netip.MustParseAddr("192.0.2.2")
	kept, cleared := [4]int{wire.ECT0: 20}, [4]int{wire.NotECT: 20}
	for _, c := range []struct {
		told        told
		back, known bool
		status      Status
		want        string
	}{
		{told{21, 21, 21, kept, 40 * time.Microsecond, 50 * time.Microsecond}, true, true, OK, "of 21 requests 0 " +
			"were lost on the way there, and 0 of 21 answers on the way back; ECN marks survive both ways; its " +
			"clock is that of this machine, within 50 us"},
		{told{21, 17, 18, kept, -time.Hour, time.Millisecond}, false, false, OK, "of 21 requests 3 were lost on the " +
			"way there, and 1 of 18 answers on the way back; ECN marks survive on the way there; its clock is " +
			"1h0m0s behind, within 1000 us"},
		{told{1, 1, 1, kept, 20 * time.Millisecond, 0}, false, true, Warn, "ECN marks are cleared on the way back; " +
			"its clock is 20 ms ahead"},
		{told{1, 1, 1, cleared, 0, 0}, false, true, Warn, "ECN marks are cleared, at least on the way there"},
		{told{1, 1, 1, cleared, 0, 0}, false, false, Warn, "ECN marks are cleared on the way there"},
		{told{1, 1, 1, [4]int{wire.ECT0: 1, wire.CE: 2}, 0, 0}, true, true, OK, "survive both ways (2 packets met " +
			"congestion)"},
		{told{1, 1, 1, [4]int{}, 0, 0}, false, false, OK, "ECN marks: not known"},
		{told{1, 1, 1, [4]int{}, 0, 0}, false, true, OK, "ECN marks: not known"},
	} {
		f := c.told.finding(peer, c.back, c.known)
		if f.Status != c.status || !strings.Contains(f.Text, c.want) || (f.Remedy == "") != (c.status == OK) {
			t.Errorf("got %v %q, want %v %q", f.Status, f.Text, c.status, c.want)
		}
	}
}
