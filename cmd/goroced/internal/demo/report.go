package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/roce/trace"
)

// Report is the result of a demonstration.
type Report struct {
	Client   Host        `json:"client"`
	Server   Host        `json:"server"`
	MTU      int         `json:"path_mtu"`
	Drop     float64     `json:"drop"`
	Seed     uint64      `json:"seed"`
	Tour     []*Exchange `json:"tour"`
	Write    Bandwidth   `json:"rdma_write"`
	PingPong Latency     `json:"ping_pong"`
	Losses   *Losses     `json:"losses,omitempty"` // nil if the device is shared with other programs
	// Blind is why the tour has no packets; "" if it has.
	Blind string `json:"no_packets,omitempty"`

	daemon  bool
	memory  bool
	timeout time.Duration
	names   []string // names of the counters, in order
}

// Host is one of the two hosts.
type Host struct {
	Addr     string            `json:"address"`
	Link     string            `json:"link"`
	Note     string            `json:"link_note"`
	Counters map[string]uint64 `json:"counters,omitempty"` // those that are not zero; nil if the device is shared
}

// Losses are counters of lost packets and of recovery from loss, of both hosts together.
type Losses struct {
	Dropped    uint64 `json:"dropped_on_purpose"`
	Recoveries uint64 `json:"recoveries"`     // times that a requester went back and retransmitted
	ByNAK      uint64 `json:"by_nak"`         // recoveries because the responder had seen a gap
	ByTimeout  uint64 `json:"by_ack_timeout"` // recoveries because no answer came in time
}

func newReport(o *Options) *Report {
	r := &Report{MTU: int(o.MTU), Drop: o.Drop, Seed: o.Seed, daemon: o.Daemon != nil, memory: o.Memory}
	if !r.daemon {
		r.Losses = &Losses{}
	}
	return r
}

// describe sets the description of the hosts.
func (r *Report) describe(p *pair) {
	r.timeout = p.timeout
	if p.blind != nil {
		r.Blind = p.blind.Error()
	}
	for h, s := range r.hosts(p) {
		h.Addr, h.Link, h.Note = s.addr.String(), s.link, s.note
	}
}

// hosts iterates over the hosts of the report and of p.
func (r *Report) hosts(p *pair) iter.Seq2[*Host, *side] {
	return func(yield func(*Host, *side) bool) {
		_ = yield(&r.Client, p.client) && yield(&r.Server, p.server)
	}
}

// addCounters adds the counters of the hosts of p.
func (r *Report) addCounters(p *pair) {
	r.names = r.names[:0]
	for h, s := range r.hosts(p) {
		if s.stats == nil {
			continue
		}
		if h.Counters == nil {
			h.Counters = map[string]uint64{}
		}
		st := s.stats()
		for _, c := range st.Counters() {
			if s == p.client {
				r.names = append(r.names, c.Name)
			}
			if c.Value > 0 {
				h.Counters[c.Name] += c.Value
			}
		}
		r.Losses.Dropped += s.dropped.Load()
		r.Losses.Recoveries += st.CompleterRetry
		r.Losses.ByNAK += st.RcvdSeqErr
		r.Losses.ByTimeout += st.LocalAckTimeout
	}
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer, t term.Terminal) error {
	var b strings.Builder
	r.writeIntroduction(&b, t)
	for i, e := range r.Tour {
		heading(&b, t, i+1, e.Title)
		fmt.Fprintf(&b, "%s\n\n", t.Hang(indent, e.About))
		if e.Tries > 1 {
			text := fmt.Sprintf("It took %d exchanges until one suffered a loss; this is that one.", e.Tries)
			fmt.Fprintf(&b, "%s\n\n", t.Hang(indent, text))
		}
		if r.Blind == "" {
			b.WriteString(e.ladder(r.timeout, t) + "\n")
		}
		fmt.Fprintln(&b, t.Hang("   Result: ", e.Result+"."))
	}
	r.writeFigures(&b, t)
	r.writeCounters(&b, t)
	_, err := io.WriteString(w, b.String())
	return err
}

// The first sentences of the text.
const (
	aboutOwn = "Two RDMA hosts in one process, each a queue pair of the reliable connection (RC) service, talking " +
		"RoCEv2 in ordinary UDP packets to port 4791. No RDMA hardware, no kernel module, no privilege."
	aboutMemory = "Two RDMA hosts in one process, each a queue pair of the reliable connection (RC) service, talking " +
		"RoCEv2 over a network in memory. No RDMA hardware, no kernel module, no privilege, no sockets."
	aboutDaemon = "Two clients of the daemon, each with a queue pair of the reliable connection (RC) service. Both " +
		"are on one device, so their RoCEv2 packets turn round inside the daemon. No RDMA hardware, no kernel " +
		"module, no privilege."
	aboutLadder = "The diagrams show every packet that was sent; time runs down. PSN is the packet sequence number; " +
		"MSN counts the messages that the responder has completed; credits are the receive buffers that it has left."
)

func (r *Report) writeIntroduction(b *strings.Builder, t term.Terminal) {
	about := aboutOwn
	switch {
	case r.daemon:
		about = aboutDaemon
	case r.memory:
		about = aboutMemory
	}
	b.WriteString(t.Hang(indent, about) + "\n\n")
	for _, e := range []struct {
		name string
		h    *Host
	}{{"client", &r.Client}, {"server", &r.Server}} {
		fmt.Fprintln(b, t.Hang(fmt.Sprintf("   %s  %-12s ", e.name, e.h.Addr), "link "+e.h.Link+": "+e.h.Note))
	}
	fmt.Fprintf(b, "   path MTU %d bytes, local ACK timeout %s\n", r.MTU, trace.Elapsed(int64(r.timeout)))
	if r.Drop > 0 {
		fmt.Fprintln(b, t.Hang(indent, fmt.Sprintf(
			"each host loses %.4g %% of the packets that it sends, on purpose (seed %d)", r.Drop*100, r.Seed)))
	}
	about = aboutLadder
	if r.Blind != "" {
		about = "There are no diagrams of the packets, for want of a capture: " + r.Blind + "."
	}
	b.WriteString("\n" + t.Hang(indent, about) + "\n")
}

// indent is before all text but headings.
const indent = "   "

// heading begins a part of the text.
func heading(b *strings.Builder, t term.Terminal, n int, title string) {
	fmt.Fprintf(b, "\n%s\n", t.Paint(fmt.Sprintf("%d. %s", n, title), term.Heading))
}

func (r *Report) writeFigures(b *strings.Builder, t term.Terminal) {
	heading(b, t, len(r.Tour)+1, "Figures")
	about := "Without recording. They are those of this machine, for two hosts that share it."
	b.WriteString(t.Hang("", about) + "\n\n")
	us := func(us float64) string { return trace.Elapsed(int64(us * 1e3)) }
	figures := [][3]string{
		{fmt.Sprintf("RDMA WRITE of %d KiB", r.Write.Size>>10),
			fmt.Sprintf("%s/s (%.2f Gbit/s)", bytesText(r.Write.BytesPerSecond), r.Write.BytesPerSecond*8/1e9),
			fmt.Sprintf("%d messages in %.2f s, %d in flight, every byte compared", r.Write.Messages, r.Write.Seconds,
				r.Write.InFlight)},
		{fmt.Sprintf("SEND ping-pong of %d B", r.PingPong.Size), us(r.PingPong.MedianUS) + " there and back",
			fmt.Sprintf("median of %d messages; 99 %% within %s", r.PingPong.Messages, us(r.PingPong.P99US))},
	}
	if l := r.Losses; l != nil {
		figures = append(figures, [3]string{"losses", fmt.Sprintf("%d on purpose", l.Dropped),
			fmt.Sprintf("made good by %d retransmissions: %d after a NAK, %d after an ACK timeout", l.Recoveries,
				l.ByNAK, l.ByTimeout)})
	}
	for _, f := range figures {
		fmt.Fprintln(b, t.Hang(fmt.Sprintf("   %-22s  ", f[0]), f[1]+"; "+f[2]))
	}
}

func (r *Report) writeCounters(b *strings.Builder, t term.Terminal) {
	if r.daemon {
		b.WriteString("\nWhat the daemon's devices counted, for all clients, `goroced stat` shows.\n")
		return
	}
	heading(b, t, len(r.Tour)+2, "Counters")
	b.WriteString(t.Hang("", "What the devices counted, under the names of Linux's hw_counters; the rest are zero.") +
		"\n\n")
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\tclient\tserver\t\n")
	for _, name := range r.names {
		if c, s := r.Client.Counters[name], r.Server.Counters[name]; c > 0 || s > 0 {
			fmt.Fprintf(tw, "%s\t%d\t%d\t\n", name, c, s)
		}
	}
	_ = tw.Flush()
}

// bytesText formats a number of bytes with a decimal unit.
func bytesText(n float64) string {
	unit := 0
	for ; n >= 1000 && unit < 3; unit++ {
		n /= 1000
	}
	return fmt.Sprintf("%.3g %s", n, [...]string{"B", "kB", "MB", "GB"}[unit])
}
