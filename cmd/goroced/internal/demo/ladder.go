package demo

import (
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace"
)

// ladder draws an exchange. timeout is the local ACK timeout, which explains pauses.
func (e *Exchange) ladder(timeout time.Duration, t term.Terminal) string {
	l := trace.Ladder{Left: "client", Right: "server"}
	var asked ib.Instant // when the client has sent its last request
	rows := e.rows()
	for i := range rows {
		r := &rows[i]
		if r.local != nil {
			l.Local(r.at, r.local.host == "client", r.local.text)
			continue
		}
		p := r.packet
		// The QP counts from its turns, which begin a little before they send, hence 90 % of the timeout.
		if nearly := ib.Instant(timeout) * 9 / 10; p.Again && p.From == "client" && r.at-asked > nearly {
			l.Note(fmt.Sprintf("no answer within the local ACK timeout of %s: send again",
				trace.Elapsed(int64(timeout))))
		}
		arrow := l.Packet(r.at, p.From == "client", p.Label)
		arrow.Lost, arrow.Note = p.Lost, p.note()
		if p.From == "client" {
			asked = r.at
		}
	}
	return l.Text(trace.TextOptions{Width: t.Columns(), ASCII: t.ASCII, Color: t.Color})
}

// note returns a remark if something is special about the packet.
func (p *Packet) note() string {
	switch {
	case p.Lost && p.Again:
		return "sent again, and lost on purpose"
	case p.Lost:
		return "lost on purpose"
	case p.gap && !p.sack:
		return "psn " + fmt.Sprint(p.PSN) + " is missing"
	case p.Again:
		return "sent again"
	}
	return ""
}
