package decode

import (
	"bufio"
	"fmt"
	"sort"

	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/roce/trace/track"
)

const (
	maxRows = 100_000
	// foldRows is the longest run of similar packets that is not shortened.
	foldRows = 4
)

// ladderPrinter draws each connection. It keeps all rows until the end, because only then it is known which flows
// belong together and which packets were lost.
type ladderPrinter struct {
	w       *bufio.Writer
	opts    *Options
	tracker *track.Tracker
	rows    []row
	dropped int
}

// row is a packet in a ladder.
type row struct {
	num    int
	flow   *track.Flow
	by     *track.Handshake // that it belongs to, of connection managers
	active bool             // it is of the handshake's active side
	event  trace.Event      // Left is not set yet
}

// conn returns the connection in whose ladder the row is: that of a handshake is the one that it makes.
func (r *row) conn(t *track.Tracker) *track.Conn {
	if r.by != nil {
		if c := t.Conn(r.by); c != nil {
			return c
		}
	}
	return r.flow.Conn
}

func (l *ladderPrinter) packet(p *packet) error {
	if p.err != nil || p.effect.Flow == nil {
		return nil
	}
	if len(l.rows) >= maxRows {
		l.dropped++
		return nil
	}
	if lost := l.row(p.effect.Lost); lost != nil && p.effect.Cause.Why != track.WhyProbe {
		lost.event.Lost = true
	}
	e := &p.effect
	l.rows = append(l.rows, row{num: p.num, flow: e.Flow, by: e.Handshake, active: e.Active, event: trace.Event{
		At: p.since, Text: fmt.Sprintf("%s #%d", trace.ShortLabel(&p.pkt), p.num), Note: ladderNote(p)}})
	return nil
}

// row returns the row of a packet, nil if it has none.
func (l *ladderPrinter) row(num int) *row {
	i := sort.Search(len(l.rows), func(i int) bool { return l.rows[i].num >= num })
	if i < len(l.rows) && l.rows[i].num == num {
		return &l.rows[i]
	}
	return nil
}

// ladderNote returns what the arrow does not show. It is short, and equal for packets that can be folded into one row.
func ladderNote(p *packet) string {
	note := p.effect.Note()
	switch {
	case p.icrc == icrcWrong || p.icrc == icrcOtherID:
		return meaning(p)
	case p.effect.Kind == track.Datagram && p.cut:
		return ""
	case p.effect.Kind == track.Datagram:
		_, says := madText(&p.pkt) // the label has the name
		return says
	case note == p.effect.String():
		return meaning(p) // which has more than the effect
	}
	return note
}

// summary draws the ladders, then writes the summary.
func (l *ladderPrinter) summary(s *Summary) error {
	var conns []*track.Conn
	byConn := map[*track.Conn][]row{}
	for _, r := range l.rows {
		c := r.conn(l.tracker)
		if byConn[c] == nil {
			conns = append(conns, c)
		}
		byConn[c] = append(byConn[c], r)
	}
	for _, c := range conns {
		fmt.Fprintln(l.w, l.draw(c, byConn[c]))
	}
	if l.dropped > 0 {
		fmt.Fprintf(l.w, "%d more packets: a ladder holds %d\n\n", l.dropped, maxRows)
	}
	s.print(l.w, l.opts.Terminal)
	return nil
}

// draw draws one connection.
func (l *ladderPrinter) draw(c *track.Conn, rows []row) string {
	left := c.Flows[0]
	ladder := trace.Ladder{Left: left.Src.Addr().String(), Right: endpoint(left.Dst)}
	if src, ok := left.Source(); ok {
		ladder.Left = endpoint(src)
	}
	for _, r := range rows {
		if r.event.Left = r.flow == left; r.flow.Conn != c { // of a handshake
			r.event.Left = r.active == (left.Dst == r.by.Passive)
		}
		ladder.Events = append(ladder.Events, r.event)
	}
	t := l.opts.Terminal
	return ladder.Text(trace.TextOptions{Width: t.Columns(), ASCII: t.ASCII, Color: t.Color, Fold: foldRows})
}
