package doctor

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/wire"
)

// told is what a peer of goroce has said of the requests that it has received. The zero value is that of other peers.
type told struct {
	asked    int // requests that were sent until the latest answer
	answers  int
	received int    // of the requests, by what the latest answer says
	marks    [4]int // of the ECN-capable requests that were answered, by the bits with which they have arrived
	offset   time.Duration
	margin   time.Duration // the offset of the clocks may be wrong by so much
}

// add adds an answer to a request that was sent at start.
func (t *told) add(a *wire.EchoAnswer, start time.Time, took time.Duration, marked bool) {
	if marked {
		t.marks[a.ECN]++
	}
	if margin := took / 2; t.answers == 0 || margin < t.margin {
		t.margin, t.offset = margin, time.Unix(0, a.Wall).Sub(start.Add(margin).Round(0))
	}
	t.answers++
	t.received = max(t.received, int(a.Received))
}

// tells is the finding of what the peer has said.
func (e *env) tells(local netip.Addr, a *answers) Finding {
	t := &a.told
	if t.answers == 0 {
		return Finding{Text: fmt.Sprintf("%v is no goroce, or an older one: in which direction packets get lost, "+
			"whether ECN marks arrive there, and its clock are not known", e.Peer)}
	}
	back, known := e.marksReturn(local)
	f := t.finding(e.Peer, back, known)
	if f.Status != OK {
		f.Command = fmt.Sprintf("goroced doctor %v # on %v", local.WithZone(""), e.Peer)
	}
	return f
}

// finding describes what was told. back says that ECN-capable packets come back as such, if that is known.
func (t *told) finding(peer fmt.Stringer, back, known bool) Finding {
	there := t.asked - t.received
	f := Finding{Text: fmt.Sprintf("%v is goroce: of %d requests %d were lost on the way there, and %d of %d answers "+
		"on the way back; %s; its clock is %s", peer, t.asked, there, t.received-t.answers, t.received,
		t.marksText(back, known), t.clockText())}
	if t.marks != [4]int{} && (t.bleached() || known && !back) {
		f.Status = Warn
		f.Remedy = "switches that mark packets cannot slow down senders there: find what clears the lowest two bits " +
			"of the IP traffic class, and ask from the other end, too:"
	}
	return f
}

// bleached reports whether ECN-capable packets arrive there without that mark.
func (t *told) bleached() bool { return t.marks[wire.NotECT] > 0 }

func (t *told) marksText(back, known bool) string {
	if t.marks == [4]int{} {
		return "ECN marks: not known"
	}
	text := "ECN marks survive"
	switch {
	case t.bleached() && known && !back:
		return "ECN marks are cleared, at least on the way there"
	case t.bleached():
		return "ECN marks are cleared on the way there"
	case known && !back:
		return "ECN marks are cleared on the way back"
	case known:
		text += " both ways"
	default:
		text += " on the way there"
	}
	if n := t.marks[wire.CE]; n > 0 {
		text += fmt.Sprintf(" (%d packets met congestion)", n)
	}
	return text
}

// clockText says how the peer's clock differs. Less than the margin is no difference that is known.
func (t *told) clockText() string {
	size, how := t.offset, "ahead"
	if size < 0 {
		size, how = -size, "behind"
	}
	margin := span(t.margin)
	if size <= t.margin {
		return "that of this machine, within " + margin
	}
	return fmt.Sprintf("%s %s, within %s", span(size), how, margin)
}

// span is a time to read, of any length.
func span(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return short(d)
}
