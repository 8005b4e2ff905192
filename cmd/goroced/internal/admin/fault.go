package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
)

// Fault is a wrap.Rule of a device in JSON, with its counters. Durations are like "5ms"; PSN is a number, or a range
// like "70-90".
type Fault struct {
	Device string `json:"device,omitempty"`
	ID     uint64 `json:"id,omitempty"` // set by the daemon

	Action      string  `json:"action"`
	Direction   string  `json:"direction,omitempty"`
	Opcode      string  `json:"opcode,omitempty"` // a wrap.Class
	QP          uint32  `json:"qp,omitempty"`
	PeerQP      uint32  `json:"peer_qp,omitempty"`
	Peer        string  `json:"peer,omitempty"` // IP address
	PSN         string  `json:"psn,omitempty"`
	Larger      int     `json:"larger,omitempty"`      // only IP packets of more bytes
	BurstBegin  float64 `json:"burst_begin,omitempty"` // probability that a burst begins with a packet
	BurstEnd    float64 `json:"burst_end,omitempty"`   // probability that a burst ends before its next packet
	Delay       string  `json:"delay,omitempty"`
	Jitter      string  `json:"jitter,omitempty"`
	Rate        int64   `json:"rate,omitempty"` // of limit, in bit/s
	Buffer      string  `json:"buffer,omitempty"`
	Count       uint64  `json:"count,omitempty"`
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`
	TTL         string  `json:"ttl,omitempty"`
	Left        string  `json:"left,omitempty"` // of TTL; set by the daemon

	Matched uint64 `json:"matched"` // set by the daemon
	Hits    uint64 `json:"hits"`    // set by the daemon
}

type faultList struct {
	Faults []Fault `json:"faults"`
}

// FaultOf converts a rule.
func FaultOf(r *host.DeviceRule) Fault {
	f := Fault{
		Device: r.Device, ID: r.ID,
		Action: string(r.Action), Direction: string(r.Direction), Opcode: string(r.Class),
		QP: uint32(r.QPN), PeerQP: uint32(r.PeerQPN),
		Larger: r.Larger, BurstBegin: r.Burst.Begin, BurstEnd: r.Burst.End, Rate: r.Rate,
		Count: r.Count, Probability: r.Probability, Seed: r.Seed,
		Matched: r.Matched, Hits: r.Hits,
	}
	if r.Peer != (ib.GID{}) {
		f.Peer = r.Peer.Addr().String()
	}
	if p := r.PSN; p != nil {
		f.PSN = fmt.Sprint(p.First)
		if p.Last != p.First {
			f.PSN += fmt.Sprintf("-%d", p.Last)
		}
	}
	for _, d := range []struct {
		to *string
		d  time.Duration
	}{{&f.Delay, r.Delay}, {&f.Jitter, r.Jitter}, {&f.Buffer, r.Buffer}, {&f.TTL, r.TTL}} {
		if d.d != 0 {
			*d.to = d.d.String()
		}
	}
	if r.Left > 0 {
		f.Left = r.Left.Round(time.Second).String()
	}
	return f
}

// rule converts f to a rule; wrap.Rules checks it.
func (f *Fault) rule() (r wrap.Rule, err error) {
	const op = "add fault rule"
	r = wrap.Rule{
		Match:     wrap.Match{QPN: ib.QPN(f.QP), PeerQPN: ib.QPN(f.PeerQP)},
		Direction: wrap.Direction(f.Direction), Class: wrap.Class(f.Opcode), Action: wrap.Action(f.Action),
		Larger: f.Larger, Burst: wrap.Burst{Begin: f.BurstBegin, End: f.BurstEnd}, Rate: f.Rate,
		Count: f.Count, Probability: f.Probability, Seed: f.Seed,
	}
	if r.Peer, err = parsePeer(op, f.Peer); err != nil {
		return r, err
	}
	if r.PSN, err = parsePSN(op, f.PSN); err != nil {
		return r, err
	}
	for _, d := range []struct {
		to         *time.Duration
		name, text string
	}{{&r.Delay, "delay", f.Delay}, {&r.Jitter, "jitter", f.Jitter}, {&r.Buffer, "buffer", f.Buffer},
		{&r.TTL, "ttl", f.TTL}} {
		if *d.to, err = parseDuration(op, d.name, d.text); err != nil {
			return r, err
		}
	}
	return r, nil
}

// parsePSN parses "7" or "7-9"; it returns nil for "".
func parsePSN(op, s string) (*wrap.PSNRange, error) {
	if s == "" {
		return nil, nil
	}
	first, last, several := strings.Cut(s, "-")
	if !several {
		last = first
	}
	a, err := strconv.ParseUint(first, 0, 24)
	if err == nil {
		var b uint64
		b, err = strconv.ParseUint(last, 0, 24)
		if err == nil {
			return &wrap.PSNRange{First: ib.PSN(a), Last: ib.PSN(b)}, nil
		}
	}
	return nil, driver.Refuse(op, "psn", strconv.Quote(s), "a PSN of 24 bits, or a range like 70-90", ib.ErrInvalid)
}

func parseDuration(op, attr, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, driver.Refuse(op, attr, strconv.Quote(s), "a duration like 5ms or 1m30s", ib.ErrInvalid)
	}
	return d, nil
}

// String describes f in one line.
func (f *Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s fault %d: %s", f.Device, f.ID, f.Action)
	for _, c := range []struct {
		given bool
		name  string
		value any
	}{
		{f.Delay != "", "by", f.Delay},
		{f.Jitter != "", "jitter", f.Jitter},
		{f.Rate != 0, "to", fmt.Sprintf("%d bit/s", f.Rate)},
		{f.Buffer != "", "buffer", f.Buffer},
		{f.BurstBegin != 0, "in bursts that begin with", f.BurstBegin},
		{f.BurstEnd != 0, "and end with", f.BurstEnd},
		{f.Larger != 0, "larger than", f.Larger},
		{f.Direction != "", "direction", f.Direction},
		{f.Opcode != "", "opcode", f.Opcode},
		{f.QP != 0, "qp", fmt.Sprintf("%#x", f.QP)},
		{f.PeerQP != 0, "peer qp", fmt.Sprintf("%#x", f.PeerQP)},
		{f.Peer != "", "peer", f.Peer},
		{f.PSN != "", "psn", f.PSN},
		{f.Count != 0, "count", f.Count},
		{f.Probability != 1, "probability", f.Probability},
		{true, "seed", f.Seed},
		{f.TTL != "", "ttl", f.TTL},
		{f.Left != "", "left", f.Left},
	} {
		if c.given {
			fmt.Fprintf(&b, " %s %v", c.name, c.value)
		}
	}
	fmt.Fprintf(&b, "; matched %d, hit %d", f.Matched, f.Hits)
	return b.String()
}
