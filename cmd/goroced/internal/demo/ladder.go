package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace"
)

// row is a packet or a local event.
type row struct {
	at     ib.Instant
	packet *Packet
	local  *local
}

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
	case p.nak:
		return "psn " + fmt.Sprint(p.PSN) + " is missing"
	case p.Again:
		return "sent again"
	}
	return ""
}

// rows merges packets and local events by time. A capture has the times of the daemon's turns, which may have begun
// before the program's first event, so that event comes first in any case.
func (e *Exchange) rows() []row {
	var rows []row
	for i := range e.locals {
		rows = append(rows, row{at: e.locals[i].at, local: &e.locals[i]})
	}
	if len(rows) == 0 {
		return nil
	}
	first := rows[0].at
	for i := range e.Packets {
		rows = append(rows, row{at: max(e.Packets[i].At, first), packet: &e.Packets[i]})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.at, b.at) })
	return rows
}
