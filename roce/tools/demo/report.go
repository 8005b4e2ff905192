package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goroce/goroce/roce/trace"
)

// Report is what a demonstration showed.
type Report struct {
	Client   Host        `json:"client"`
	Server   Host        `json:"server"`
	MTU      int         `json:"path_mtu"`
	Drop     float64     `json:"drop"`
	Seed     uint64      `json:"seed"`
	Tour     []*Exchange `json:"tour"`
	Write    Bandwidth   `json:"rdma_write"`
	PingPong Latency     `json:"ping_pong"`
	Losses   Losses      `json:"losses"`

	timeout time.Duration
	names   []string // of counters, in order
}

// Host is one of the two.
type Host struct {
	Addr     string            `json:"address"`
	Link     string            `json:"link"`
	Note     string            `json:"link_note"`
	Counters map[string]uint64 `json:"counters"` // those that are not zero
}

// Losses says what was lost and how it was made good, both hosts together.
type Losses struct {
	Dropped    uint64 `json:"dropped_on_purpose"`
	Recoveries uint64 `json:"recoveries"`     // times that a requester went back and sent again
	ByNAK      uint64 `json:"by_nak"`         // because the responder saw a gap
	ByTimeout  uint64 `json:"by_ack_timeout"` // because no answer came
}

func newReport(o *Options) *Report {
	return &Report{MTU: int(o.MTU), Drop: o.Drop, Seed: o.Seed,
		Client: Host{Addr: o.Client.String(), Counters: map[string]uint64{}},
		Server: Host{Addr: o.Server.String(), Counters: map[string]uint64{}}}
}

// describe notes what the hosts run on.
func (r *Report) describe(p *pair) {
	r.timeout = p.timeout
	for _, e := range []struct {
		h *Host
		s *side
	}{{&r.Client, p.client}, {&r.Server, p.server}} {
		e.h.Link, e.h.Note = e.s.dev.Link().Name, e.s.dev.Link().Note
	}
}

// addCounters adds what the hosts of p counted.
func (r *Report) addCounters(p *pair) {
	r.names = r.names[:0]
	for _, e := range []struct {
		h *Host
		s *side
	}{{&r.Client, p.client}, {&r.Server, p.server}} {
		st := e.s.dev.Stats()
		for _, c := range st.Counters() {
			if e.s == p.client {
				r.names = append(r.names, c.Name)
			}
			if c.Value > 0 {
				e.h.Counters[c.Name] += c.Value
			}
		}
		r.Losses.Dropped += e.s.dropped.Load()
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

// WriteText tells the story to people.
func (r *Report) WriteText(w io.Writer, opts trace.Options) error {
	var b strings.Builder
	r.writeIntroduction(&b)
	for i, e := range r.Tour {
		fmt.Fprintf(&b, "\n%d. %s\n%s\n\n", i+1, e.Title, wrapText(e.About))
		if e.Tries > 1 {
			fmt.Fprintf(&b, "%s\n\n", wrapText(fmt.Sprintf("It took %d exchanges until one suffered a loss; this is that one.", e.Tries)))
		}
		if _, err := e.ladder(r.timeout, opts).WriteTo(&b); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n   Result: %s.\n", e.Result)
	}
	r.writeFigures(&b)
	r.writeCounters(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeIntroduction(b *strings.Builder) {
	b.WriteString(wrapText("Two RDMA hosts in one process, each a queue pair of the reliable connection (RC) service, "+
		"talking RoCEv2 in ordinary UDP packets to port 4791. No RDMA hardware, no kernel module, no privilege.") + "\n\n")
	for _, e := range []struct {
		name string
		h    *Host
	}{{"client", &r.Client}, {"server", &r.Server}} {
		fmt.Fprintf(b, "   %s  %-12s link %s: %s\n", e.name, e.h.Addr, e.h.Link, e.h.Note)
	}
	fmt.Fprintf(b, "   path MTU %d bytes, local ACK timeout %s\n", r.MTU, trace.Elapsed(int64(r.timeout)))
	if r.Drop > 0 {
		fmt.Fprintf(b, "   each host loses %.4g %% of the packets that it sends, on purpose (seed %d)\n", r.Drop*100, r.Seed)
	}
	b.WriteString("\n" + wrapText("The diagrams show every packet that was sent; time runs down. PSN is the packet sequence number; MSN counts "+
		"the messages that the responder has completed; credits are the receive buffers that it has left.") + "\n")
}

func (r *Report) writeFigures(b *strings.Builder) {
	fmt.Fprintf(b, "\n%d. Figures\nWithout recording. They are those of this machine, for two hosts that share it.\n\n", len(r.Tour)+1)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "   RDMA WRITE of %d KiB\t%s/s (%.2f Gbit/s)\t%d messages in %.2f s, %d in flight, every byte compared\n", r.Write.Size>>10,
		bytesText(r.Write.BytesPerSecond), r.Write.BytesPerSecond*8/1e9, r.Write.Messages, r.Write.Seconds, r.Write.InFlight)
	us := func(us float64) string { return trace.Elapsed(int64(us * 1e3)) }
	fmt.Fprintf(tw, "   SEND ping-pong of %d B\t%s there and back\tmedian of %d messages; 99 %% within %s\n",
		r.PingPong.Size, us(r.PingPong.MedianUS), r.PingPong.Messages, us(r.PingPong.P99US))
	fmt.Fprintf(tw, "   losses\t%d on purpose\tmade good by %d retransmissions: %d after a NAK, %d after an ACK timeout\n",
		r.Losses.Dropped, r.Losses.Recoveries, r.Losses.ByNAK, r.Losses.ByTimeout)
	_ = tw.Flush()
}

func (r *Report) writeCounters(b *strings.Builder) {
	fmt.Fprintf(b, "\n%d. Counters\nWhat the devices counted, under the names of Linux's hw_counters; the rest are zero.\n\n", len(r.Tour)+2)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\tclient\tserver\t\n")
	for _, name := range r.names {
		if c, s := r.Client.Counters[name], r.Server.Counters[name]; c > 0 || s > 0 {
			fmt.Fprintf(tw, "%s\t%d\t%d\t\n", name, c, s)
		}
	}
	_ = tw.Flush()
}

// bytesText writes a number of bytes with a decimal unit.
func bytesText(n float64) string {
	unit := 0
	for ; n >= 1000 && unit < 3; unit++ {
		n /= 1000
	}
	return fmt.Sprintf("%.3g %s", n, [...]string{"B", "kB", "MB", "GB"}[unit])
}

// wrapText breaks a sentence into indented lines.
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
