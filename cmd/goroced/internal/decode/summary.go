package decode

import (
	"fmt"
	"io"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/internal/cells"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/roce/trace/track"
	"github.com/goroce/goroce/wire"
)

// Summary is the summary of a capture. Of the options only QP and Conn have an influence, on Connections.
type Summary struct {
	Name    string `json:"name"`
	Packets int    `json:"packets"`
	// among Packets, those captured in one piece: before segmentation offload cut them, or after receive offload
	// merged them
	Runs      int                 `json:"runs"`
	RoCE      int                 `json:"roce"`      // each packet of a run counts
	Malformed int                 `json:"malformed"` // packets to UDP port 4791 that are not RoCEv2
	Copies    int                 `json:"copies"`    // second copies of packets that were both sent and received here
	Other     int                 `json:"other"`
	Problems  int                 `json:"problems"`  // packets that Options.Errors selects
	Untracked int                 `json:"untracked"` // packets of flows beyond the number that can be followed
	FirstNS   int64               `json:"first_ns"`  // since 1970
	LastNS    int64               `json:"last_ns"`
	ICRC      ICRCCounts          `json:"icrc"`
	Opcodes   map[wire.Opcode]int `json:"opcodes"` // packets by opcode

	Connections []Connection `json:"connections"`
}

// ICRCCounts counts packets by the result of checking their ICRC.
type ICRCCounts struct {
	Right   int `json:"right"`
	Wrong   int `json:"wrong"`
	OtherID int `json:"other_id"` // correct with another IPv4 identification
	Unknown int `json:"unknown"`  // the capture does not have the whole packet
}

// Connection is a connection in the capture, or the datagrams between two queue pairs.
type Connection struct {
	Num        int         `json:"num"`
	Service    string      `json:"service"`
	MTU        int         `json:"mtu"`        // path MTU in bytes; 0 if no packet shows it
	Directions []Direction `json:"directions"` // one or two, in the order of their first packets
}

// Direction is one direction of a connection.
type Direction struct {
	From       string         `json:"from"` // "192.168.0.1 qp 0x12"; without the queue pair if it is not known
	To         string         `json:"to"`
	Unanswered int            `json:"unanswered"`   // requests without an answer at the end of the capture
	BitsPerSec float64        `json:"bits_per_sec"` // of Stats.Payload; 0 if no time passed
	Messages   map[string]int `json:"messages"`     // Stats.Messages by verb
	Again      map[string]int `json:"again"`        // Stats.Again by reason
	Stats      track.Stats    `json:"stats"`
}

// count adds a packet.
func (s *Summary) count(p *packet) {
	if p.part <= 1 {
		s.Packets++
	}
	if p.part == 1 {
		s.Runs++
	}
	if s.Packets == 1 {
		s.FirstNS = int64(p.at)
	}
	s.LastNS = int64(p.at)
	if p.problem() {
		s.Problems++
	}
	switch {
	case p.other:
		s.Other++
		return
	case p.copyOf > 0:
		s.Copies++
		return
	case p.err != nil:
		s.Malformed++
		return
	}
	s.RoCE++
	if s.Opcodes == nil {
		s.Opcodes = map[wire.Opcode]int{}
	}
	s.Opcodes[p.pkt.Opcode]++
	*[numVerdicts]*int{&s.ICRC.Unknown, &s.ICRC.Right, &s.ICRC.Wrong, &s.ICRC.OtherID}[p.icrc]++
}

// newConnection returns the summary of a connection.
func newConnection(c *track.Conn) Connection {
	out := Connection{Num: c.Num, Service: c.Service.String(), MTU: c.MTU()}
	first, last := c.Flows[0].Stats.First, c.Flows[0].Stats.Last
	for _, f := range c.Flows {
		first, last = min(first, f.Stats.First), max(last, f.Stats.Last)
	}
	for _, f := range c.Flows {
		d := Direction{From: f.Src.Addr().String(), To: endpoint(f.Dst), Unanswered: f.Outstanding(), Stats: f.Stats,
			Messages: map[string]int{}, Again: map[string]int{}}
		for v, n := range f.Stats.Messages {
			if n > 0 {
				d.Messages[track.Verb(v).String()] = n
			}
		}
		for w, n := range f.Stats.Again {
			if n > 0 {
				d.Again[track.Why(w).String()] = n
			}
		}
		if src, ok := f.Source(); ok {
			d.From = endpoint(src)
		}
		if last > first {
			d.BitsPerSec = float64(f.Stats.Payload) * 8e9 / float64(last-first)
		}
		out.Directions = append(out.Directions, d)
	}
	return out
}

// endpoint formats a queue pair.
func endpoint(e track.Endpoint) string { return fmt.Sprintf("%v qp %#x", e.Addr.Addr(), uint32(e.QPN)) }

// print writes the summary for people.
func (s *Summary) print(w io.Writer, t term.Terminal) {
	line := fmt.Sprintf("%s: %d packets in %s: %d RoCEv2", s.Name, s.Packets, trace.Elapsed(s.LastNS-s.FirstNS), s.RoCE)
	for _, c := range []struct {
		n    int
		text string
	}{{s.Copies, "the same, received"},
		{s.Other, "other"}, {s.Malformed, "malformed"}, {s.Untracked, "of too many connections to follow"}} {
		if c.n > 0 {
			line += fmt.Sprintf(", %d %s", c.n, c.text)
		}
	}
	if s.Runs > 0 {
		line += fmt.Sprintf(", from %d runs of segmentation or receive offload", s.Runs)
	}
	fmt.Fprintln(w, t.Hang("", fmt.Sprintf("%s; %d with problems", line, s.Problems)))
	if s.RoCE == 0 {
		return
	}
	line = fmt.Sprintf("ICRC: %d right, %d wrong", s.ICRC.Right, s.ICRC.Wrong)
	if s.ICRC.OtherID > 0 {
		line += fmt.Sprintf(", %d right with another IP ID than captured", s.ICRC.OtherID)
	}
	if s.ICRC.Unknown > 0 {
		line += fmt.Sprintf(", %d not captured whole", s.ICRC.Unknown)
	}
	fmt.Fprintln(w, t.Hang("", line))
	for i := range s.Connections {
		s.Connections[i].print(w, t)
	}
	if len(s.Connections) == 0 {
		fmt.Fprintln(w, "\nno connection is the one that was asked for")
	}
}

func (c *Connection) print(w io.Writer, t term.Terminal) {
	d := &c.Directions[0]
	arrow := "->"
	if len(c.Directions) > 1 {
		arrow = "<->"
	}
	line := fmt.Sprintf("%d. %s %s %s %s", c.Num, c.Service, d.From, arrow, d.To)
	if c.MTU > 0 {
		line += fmt.Sprintf(", path MTU %d", c.MTU)
	}
	fmt.Fprintln(w)
	for _, line := range cells.Wrap(line, t.Columns()) {
		fmt.Fprintln(w, t.Paint(line, term.Heading))
	}
	for i := range c.Directions {
		c.Directions[i].print(w, t)
	}
}

func (d *Direction) print(w io.Writer, t term.Terminal) {
	st := &d.Stats
	text := fmt.Sprintf("%d packets", st.Packets)
	if st.Requests > 0 {
		text += "; " + messagesText(st)
	}
	if st.Payload > 0 {
		text += fmt.Sprintf("; %d B", st.Payload)
	}
	if d.BitsPerSec > 0 {
		text += ", " + rateText(d.BitsPerSec)
	}
	fmt.Fprintln(w, "  "+strings.TrimLeft(t.Hang("    ", fmt.Sprintf("%s -> %s: %s", d.From, d.To, text)), " "))
	line := func(n int, what, more string) {
		if n > 0 {
			fmt.Fprintln(w, t.Hang("    ", fmt.Sprintf("%s: %d%s", what, n, more)))
		}
	}
	line(st.Retransmissions(), "requests sent again", againText(st))
	line(st.Missing, "requests that the capture lacks", gapsText(st.Gaps))
	line(st.Late, "requests out of order", "")
	line(st.DuplicateResponses, "responses sent again", "")
	line(st.MissingResponses, "responses that the capture lacks", gapsText(st.ResponseGaps))
	line(st.DuplicateAcks, "ACKs of nothing new", "")
	line(st.SequenceNAKs, "NAKs for a PSN sequence error", "")
	line(st.RNRs, "RNR NAKs", "")
	line(st.FatalNAKs, "NAKs that end the connection", "")
	line(st.Lost, "packets that were late, or lost after their capture, at least", "")
	line(st.Congestion, "congestion notifications", "")
	line(d.Unanswered, "requests unanswered at the end", "")
}

func gapsText(n int) string { return fmt.Sprintf(", in gaps: %d", n) }

// messagesText formats the numbers of messages by verb.
func messagesText(st *track.Stats) string {
	var parts []string
	for v, n := range st.Messages {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, track.Verb(v)))
		}
	}
	if parts == nil {
		return "no message whole"
	}
	return strings.Join(parts, ", ")
}

// againText formats the numbers of retransmissions by cause.
func againText(st *track.Stats) string {
	var parts []string
	for w, text := range [...]string{track.WhyTimeout: "after a timeout", track.WhyNAK: "after a NAK",
		track.WhyRNR:      "after an RNR NAK",
		track.WhyResponse: "after an implied NAK", track.WhyGoBack: "following those", track.WhyProbe: "as probes"} {
		if n := st.Again[w]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text))
		}
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// rateText formats bits per second with three significant digits.
func rateText(bps float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "Gb/s"}, {1e6, "Mb/s"}, {1e3, "kb/s"}} {
		if bps >= u.size {
			return fmt.Sprintf("%.3g %s", bps/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.3g b/s", bps)
}
