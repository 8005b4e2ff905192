package admin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/cells"
	srv "github.com/goroce/goroce/roce/daemon/server"
)

// The formats are those of ibv_devices and of iproute2's rdma, for people and scripts that know these tools. A terminal
// that is too narrow for a line of rdma's gets it in several; in files and pipes it is one.

// onScreen writes the lines of text that rdma would print.
func onScreen(w io.Writer, t term.Terminal, text string) error {
	if t.Real {
		var b strings.Builder
		for line := range strings.Lines(text) {
			if cells.Count(line) > t.Columns() {
				// The later lines are indented.
				line = strings.TrimLeft(t.Hang("    ", line), " ") + "\n"
			}
			b.WriteString(line)
		}
		text = b.String()
	}
	_, err := io.WriteString(w, text)
	return err
}

// PrintDevices prints as ibv_devices does.
func PrintDevices(w io.Writer, t term.Terminal, list []Device) error {
	var b strings.Builder
	fmt.Fprintf(&b, "    %-16s\t   node GUID\n    %-16s\t----------------\n", "device", "------")
	for _, d := range list {
		fmt.Fprintf(&b, "    %-16s\t%016x\n", d.Name, d.GUID)
	}
	return onScreen(w, t, b.String())
}

// PrintLinks prints as `rdma link` does.
func PrintLinks(w io.Writer, t term.Terminal, list []Device) error {
	var b strings.Builder
	for _, d := range list {
		state, physical := "DOWN", "DISABLED"
		if d.State == "PORT_ACTIVE" {
			state, physical = "ACTIVE", "LINK_UP"
		}
		fmt.Fprintf(&b, "link %s/1 state %s physical_state %s netdev %s \n", d.Name, state, physical, d.NetIf)
		if d.Faults > 0 {
			fmt.Fprintf(&b, "    faults are injected into its packets: %d; `goroced fault list` shows them\n", d.Faults)
		}
	}
	return onScreen(w, t, b.String())
}

// PrintQPs prints as `rdma resource show qp` does. The fields of each type of QP are those that the kernel reports
// (drivers/infiniband/core/nldev.c, fill_res_qp_entry). QPs of other users are printed without their numbers.
func PrintQPs(w io.Writer, t term.Terminal, list []srv.QPInfo) error {
	var b strings.Builder
	for i := range list {
		writeQP(&b, &list[i])
	}
	return onScreen(w, t, b.String())
}

// PrintQPStats prints as PrintQPs does, and below each queue pair what it has sent and received, and the way to its
// peer. The names are those of the JSON.
func PrintQPStats(w io.Writer, t term.Terminal, list []srv.QPInfo) error {
	var b strings.Builder
	for i := range list {
		writeQP(&b, &list[i])
		if list[i].Traffic != nil {
			writeTraffic(&b, &list[i])
		}
	}
	return onScreen(w, t, b.String())
}

// writeTraffic prints a line of what a queue pair has sent and received, and one of the way to its peer, if it has one.
func writeTraffic(b *strings.Builder, q *srv.QPInfo) {
	is := q.Traffic
	fmt.Fprintf(b, "    sent_bytes %d rcvd_bytes %d sent_messages %d rcvd_messages %d resent_pkts %d resent_bytes %d "+
		"spurious_pkts %d send_rnr_err %d rcvd_rnr_err %d\n", is.SentBytes, is.RcvdBytes, is.SentMessages,
		is.RcvdMessages, is.ResentPkts, is.ResentBytes, is.SpuriousPkts, is.SentRNR, is.RcvdRNR)
	if is.PathQPs == 0 {
		return
	}
	pace, sack := "none", "no"
	if is.PaceBits > 0 {
		pace = fmt.Sprintf("%.3fGb/s", float64(is.PaceBits)/1e9)
	}
	if is.SACK {
		sack = "yes"
	}
	fmt.Fprintf(b, "    peer %v congestion %s window %d in_flight %d pace %s rtt %dus min_rtt %dus marked_pkts %d "+
		"rcvd_cnps %d sack %s path_qps %d\n", q.Peer, is.Control, is.Window, is.InFlight, pace,
		is.RTT.Microseconds(), is.MinRTT.Microseconds(), is.MarkedPkts, is.RcvdCNPs, sack, is.PathQPs)
}

func writeQP(b *strings.Builder, q *srv.QPInfo) {
	connected, xrc := q.Type == ib.RC.String() || q.Type == ib.UC.String(), strings.HasPrefix(q.Type, "XRC")
	fmt.Fprintf(b, "link %s/1 ", q.Device)
	if q.QPN == 0 {
		fmt.Fprintf(b, "type %s state %s pid %d comm %s \n", q.Type, q.State, q.PID, q.Comm)
		return
	}
	fmt.Fprintf(b, "lqpn %d ", q.QPN)
	if connected {
		fmt.Fprintf(b, "rqpn %d ", q.PeerQPN)
	}
	fmt.Fprintf(b, "type %s state %s ", q.Type, q.State)
	if connected {
		fmt.Fprintf(b, "rq-psn %d ", q.RQPSN)
	}
	fmt.Fprintf(b, "sq-psn %d ", q.SQPSN)
	if connected || xrc {
		b.WriteString("path-mig-state MIGRATED ")
	}
	fmt.Fprintf(b, "pid %d comm %s \n", q.PID, q.Comm)
}

// PrintFailures prints why queue pairs have failed, a paragraph each.
func PrintFailures(w io.Writer, t term.Terminal, list []srv.FailureInfo) error {
	var b strings.Builder
	for i := range list {
		writeFailure(&b, &list[i])
	}
	if len(list) == 0 {
		b.WriteString("no queue pair has failed\n")
	}
	return onScreen(w, t, b.String())
}

func writeFailure(b *strings.Builder, f *srv.FailureInfo) {
	fmt.Fprintf(b, "%s %s: %s QP 0x%x of process %d",
		f.At.Local().Format(time.DateTime), f.Device, f.Type, f.QPN, f.PID)
	if f.Comm != "" {
		fmt.Fprintf(b, " (%s)", f.Comm)
	}
	if f.Peer.IsValid() {
		fmt.Fprintf(b, ", peer %v QP 0x%x", f.Peer, f.PeerQPN)
	}
	if f.Failed == "" {
		b.WriteString("\n    has not failed\n")
	} else {
		fmt.Fprintf(b, "\n    has failed: %s\n", f.Failed)
	}
	if f.Refused != "" {
		fmt.Fprintf(b, "    before: %s\n", f.Refused)
	}
}

// PrintMRs prints as `rdma resource show mr` does, and what kind of memory it is. Keys are only printed if the daemon
// has returned them.
func PrintMRs(w io.Writer, t term.Terminal, list []srv.MRInfo) error {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "dev %s ", m.Device)
		if m.Key != 0 {
			fmt.Fprintf(&b, "mrn %d rkey 0x%x lkey 0x%x iova 0x%x ", m.Number, m.Key, m.Key, m.IOVA)
		}
		fmt.Fprintf(&b, "mrlen %d pid %d comm %s memory %s", m.Length, m.PID, m.Comm, m.Kind)
		if m.Why != "" {
			fmt.Fprintf(&b, " (%s)", m.Why)
		}
		b.WriteString("\n")
	}
	return onScreen(w, t, b.String())
}

// PrintCMIDs prints as `rdma resource show cm_id` does. Addresses are only printed if the daemon has returned them.
func PrintCMIDs(w io.Writer, t term.Terminal, list []srv.CMInfo) error {
	var b strings.Builder
	for _, id := range list {
		fmt.Fprintf(&b, "link %s/1 ", id.Device)
		if id.State != listens {
			fmt.Fprintf(&b, "qp-type %s ", id.Type)
		}
		fmt.Fprintf(&b, "state %s ps %s pid %d comm %s ", id.State, id.Space, id.PID, id.Comm)
		if id.Local.IsValid() {
			fmt.Fprintf(&b, "src-addr %v ", id.Local)
		}
		if id.Remote.IsValid() {
			fmt.Fprintf(&b, "dst-addr %v ", id.Remote)
		}
		b.WriteString("\n")
	}
	return onScreen(w, t, b.String())
}

// PrintCounters prints as `rdma statistic show` does.
func PrintCounters(w io.Writer, t term.Terminal, all map[string]Counters) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "link %s/1", name)
		for _, c := range all[name] {
			fmt.Fprintf(&b, " %s %d", c.Name, c.Value)
		}
		b.WriteString(" \n")
	}
	return onScreen(w, t, b.String())
}

// clearScreen clears a terminal and moves the cursor to its top (ECMA-48: CUP, ED).
const clearScreen = "\x1b[H\x1b[2J"

// NextScreen begins a new screen on a terminal, and a new paragraph elsewhere.
func NextScreen(w io.Writer, t term.Terminal) error {
	begin := "\n"
	if t.Real {
		begin = clearScreen
	}
	_, err := io.WriteString(w, begin)
	return err
}

// PrintStats prints what is not zero, bytes first. If added is not nil, it has what the last interval has added.
func PrintStats(w io.Writer, t term.Terminal, all, added map[string]Counters, interval time.Duration) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		tw := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
		c, more := all[name], added[name]
		fmt.Fprintf(tw, "%s\ttotal\t", name)
		if added != nil {
			fmt.Fprintf(tw, "in %v\t", interval)
		}
		tw.Write([]byte("\n"))
		for _, bytes := range []string{SentBytes, RcvdBytes} {
			fmt.Fprintf(tw, "%s\t%s\t", bytes, Bytes(float64(c.get(bytes))))
			if added != nil {
				fmt.Fprintf(tw, "%.3f Gb/s\t", 8*float64(more.get(bytes))/interval.Seconds()/1e9)
			}
			tw.Write([]byte("\n"))
		}
		for _, counter := range c {
			if counter.Value == 0 || counter.Name == SentBytes || counter.Name == RcvdBytes {
				continue
			}
			fmt.Fprintf(tw, "%s\t%d\t", counter.Name, counter.Value)
			if added != nil {
				fmt.Fprintf(tw, "%d\t", more.get(counter.Name))
			}
			tw.Write([]byte("\n"))
		}
		_ = tw.Flush()
	}
	return onScreen(w, t, b.String())
}
