package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/trace"
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
	r := &Report{MTU: int(o.MTU), Drop: o.Drop, Seed: o.Seed, daemon: o.Daemon != nil}
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
func (r *Report) WriteText(w io.Writer, opts trace.Options) error {
	var b strings.Builder
	r.writeIntroduction(&b)
	for i, e := range r.Tour {
		fmt.Fprintf(&b, "\n%d. %s\n%s\n\n", i+1, e.Title, wrapText(e.About))
		if e.Tries > 1 {
			fmt.Fprintf(&b, "%s\n\n",
				wrapText(fmt.Sprintf("It took %d exchanges until one suffered a loss; this is that one.", e.Tries)))
		}
		if r.Blind == "" {
			if _, err := e.ladder(r.timeout, opts).WriteTo(&b); err != nil {
				return err
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "   Result: %s.\n", e.Result)
	}
	r.writeFigures(&b)
	r.writeCounters(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// The first sentences of the text.
const (
	aboutOwn = "Two RDMA hosts in one process, each a queue pair of the reliable connection (RC) service, talking " +
		"RoCEv2 in ordinary UDP packets to port 4791. No RDMA hardware, no kernel module, no privilege."
	aboutDaemon = "Two clients of the daemon, each with a queue pair of the reliable connection (RC) service. Both " +
		"are on one device, so their RoCEv2 packets turn round inside the daemon. No RDMA hardware, no kernel " +
		"module, no privilege."
	aboutLadder = "The diagrams show every packet that was sent; time runs down. PSN is the packet sequence number; " +
		"MSN counts the messages that the responder has completed; credits are the receive buffers that it has left."
)

func (r *Report) writeIntroduction(b *strings.Builder) {
	about := aboutOwn
	if r.daemon {
		about = aboutDaemon
	}
	b.WriteString(wrapText(about) + "\n\n")
	for _, e := range []struct {
		name string
		h    *Host
	}{{"client", &r.Client}, {"server", &r.Server}} {
		fmt.Fprintf(b, "   %s  %-12s link %s: %s\n", e.name, e.h.Addr, e.h.Link, e.h.Note)
	}
	fmt.Fprintf(b, "   path MTU %d bytes, local ACK timeout %s\n", r.MTU, trace.Elapsed(int64(r.timeout)))
	if r.Drop > 0 {
		fmt.Fprintf(b, "   each host loses %.4g %% of the packets that it sends, on purpose (seed %d)\n", r.Drop*100,
			r.Seed)
	}
	about = aboutLadder
	if r.Blind != "" {
		about = "There are no diagrams of the packets, for want of a capture: " + r.Blind + "."
	}
	b.WriteString("\n" + wrapText(about) + "\n")
}

func (r *Report) writeFigures(b *strings.Builder) {
	fmt.Fprintf(b, "\n%d. Figures\nWithout recording. They are those of this machine, for two hosts that share it.\n\n",
		len(r.Tour)+1)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw,
		"   RDMA WRITE of %d KiB\t%s/s (%.2f Gbit/s)\t%d messages in %.2f s, %d in flight, every byte compared\n",
		r.Write.Size>>10, bytesText(r.Write.BytesPerSecond), r.Write.BytesPerSecond*8/1e9, r.Write.Messages,
		r.Write.Seconds, r.Write.InFlight)
	us := func(us float64) string { return trace.Elapsed(int64(us * 1e3)) }
	fmt.Fprintf(tw, "   SEND ping-pong of %d B\t%s there and back\tmedian of %d messages; 99 %% within %s\n",
		r.PingPong.Size, us(r.PingPong.MedianUS), r.PingPong.Messages, us(r.PingPong.P99US))
	if r.Losses != nil {
		r.writeLosses(tw)
	}
	_ = tw.Flush()
}

func (r *Report) writeLosses(w io.Writer) {
	fmt.Fprintf(w,
		"   losses\t%d on purpose\tmade good by %d retransmissions: %d after a NAK, %d after an ACK timeout\n",
		r.Losses.Dropped, r.Losses.Recoveries, r.Losses.ByNAK, r.Losses.ByTimeout)
}

func (r *Report) writeCounters(b *strings.Builder) {
	if r.daemon {
		b.WriteString("\nWhat the daemon's devices counted, for all clients, `goroced stat` shows.\n")
		return
	}
	fmt.Fprintf(b,
		"\n%d. Counters\nWhat the devices counted, under the names of Linux's hw_counters; the rest are zero.\n\n",
		len(r.Tour)+2)
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

// wrapText wraps a sentence into indented lines.
func wrapText(s string) string {
	const width, indent = 96, "   "
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(s) {
		if len(line)+1+len(word) > width && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return b.String() + line
}
