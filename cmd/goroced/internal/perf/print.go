package perf

import (
	"fmt"
	"io"
	"strings"
)

// The text equals perftest's, including spaces, so that scripts can parse it. A terminal on which perftest's lines
// would wrap gets shorter ones.

const resultLine = "---------------------------------------------------------------------------------------\n"

// Columns that perftest's tables need.
const (
	wideBW  = len(resultLine)
	wideLat = 152
)

// narrow reports whether a table of perftest's that has so many columns would wrap.
func (o *Options) narrow(wide int) bool { return o.Columns > 0 && o.Columns < wide }

// rule returns the line between parts of the text.
func (o *Options) rule() string {
	if o.narrow(len(resultLine)) {
		return strings.Repeat("-", o.Columns) + "\n"
	}
	return resultLine
}

const waitingLine = "\n************************************\n" +
	"* Waiting for client to connect... *\n" +
	"************************************\n"

// waitingCM is printed by a server after the description of a test with rdma_cm, although the client is connected by
// then.
const waitingCM = " Waiting for client rdma_cm QP to connect\n" +
	" Please run the same command with the IB/RoCE interface IP\n"

// title returns the name of the test: "RDMA_Write Bidirectional BW Test".
func (o *Options) title() string {
	t := o.traits()
	words := []string{t.title}
	if o.Op == Atomic {
		words = append(words, o.AtomicOp.String())
	}
	if o.Bidirectional {
		words = append(words, "Bidirectional")
	}
	if o.Test == Lat {
		words = append(words, "Latency")
	} else {
		words = append(words, "BW")
		if o.PostList > 1 {
			words = append(words, "Post List")
		}
	}
	return strings.Join(append(words, "Test"), " ")
}

// info returns the description of the test.
func (o *Options) info(device string, gidIndex int) Info {
	i := Info{Test: o.title(), DualPort: "OFF", Device: device, NumQP: o.NumQP, Transport: "IB",
		Connection: o.Service.String(), SRQ: "OFF", MTU: int(o.MTU), LinkType: "Ethernet", GIDIndex: gidIndex,
		Inline: o.Inline, CM: "OFF", Exchange: "Ethernet"}
	if o.CM {
		i.CM, i.Exchange = "ON", "rdma_cm"
	}
	if o.sends() {
		i.TxDepth = o.TxDepth
	}
	if o.receives() {
		i.RxDepth = o.RxDepth
	}
	if o.PostList > 1 {
		i.PostList = o.PostList
	}
	if o.fetches() {
		i.Outstanding = o.Outstanding
	}
	if o.Test == BW {
		i.CQMod = o.CQMod
		i.Unit, _ = o.unit()
	}
	return i
}

func (i *Info) print(w io.Writer, rule string) {
	fmt.Fprintf(w, "%s                    %s\n", rule, i.Test)
	fmt.Fprintf(w, " Dual-port       : %s\t\tDevice         : %s\n", i.DualPort, i.Device)
	fmt.Fprintf(w, " Number of qps   : %d\t\tTransport type : %s\n", i.NumQP, i.Transport)
	fmt.Fprintf(w, " Connection type : %s\t\tUsing SRQ      : %s\n", i.Connection, i.SRQ)
	for _, line := range []struct {
		format string
		value  int
	}{
		{" TX depth        : %d\n", i.TxDepth},
		{" Post List       : %d\n", i.PostList},
		{" RX depth        : %d\n", i.RxDepth},
		{" CQ Moderation   : %d\n", i.CQMod},
	} {
		if line.value != 0 {
			fmt.Fprintf(w, line.format, line.value)
		}
	}
	fmt.Fprintf(w, " Mtu             : %d[B]\n", i.MTU)
	fmt.Fprintf(w, " Link type       : %s\n", i.LinkType)
	fmt.Fprintf(w, " GID index       : %d\n", i.GIDIndex)
	if i.Outstanding != 0 {
		fmt.Fprintf(w, " Outstand reads  : %d\n", i.Outstanding)
	}
	fmt.Fprintf(w, " Max inline data : %d[B]\n", i.Inline)
	fmt.Fprintf(w, " rdma_cm QPs\t : %s\n", i.CM)
	fmt.Fprintf(w, " Data ex. method : %s\n%s", i.Exchange, rule)
}

// print prints an address as perftest does: a LID of 0 has no 0x, and with rdma_cm the memory is left out.
func (a *address) print(w io.Writer, side string, o *Options) {
	lid := "0000"
	if a.lid != 0 {
		lid = hexText(uint64(a.lid), 4)
	}
	fmt.Fprintf(w, " %s address: LID %s QPN %s PSN %s", side, lid, hexText(uint64(a.qpn), 6), hexText(uint64(a.psn), 6))
	if o.Op == Read && !o.CM {
		fmt.Fprintf(w, " OUT %s", hexText(uint64(a.outstanding), 4))
	}
	if (o.Op == Read || o.Op == Write) && !o.CM {
		if o.narrow(len(resultLine)) {
			fmt.Fprint(w, "\n")
		}
		fmt.Fprintf(w, " RKey %s VAddr %s", hexText(uint64(a.rkey), 8), hexText(a.vaddr, 16))
	}
	fmt.Fprintf(w, "\n GID: %s\n", gidText(a.gid))
}

// hexText is C's %#0*x, whose width includes the 0x.
func hexText(v uint64, width int) string { return fmt.Sprintf("0x%0*x", width-2, v) }

// header returns the header of the table of results.
func (o *Options) header() string {
	unit, _ := o.unit()
	switch {
	case o.Test == BW && o.narrow(wideBW):
		return o.rule() + fmt.Sprintf(" #bytes  #iterations  BW peak[%s]  BW average[%s]  MsgRate[Mpps]\n", unit, unit)
	case o.Test == BW:
		return fmt.Sprintf("%s #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n", resultLine,
			unit, unit)
	case o.Duration > 0:
		return o.rule() + " #bytes        #iterations       t_avg[usec]    tps average\n"
	case o.narrow(wideLat):
		return o.rule() + " times in usec; t_typ is the median, 99% and 99.9% are percentiles\n" +
			fmt.Sprintf(" %-7s %-7s%s\n", "#bytes", "#iter", cellsOf("t_min", "t_max", "t_typ", "t_avg", "t_stdev",
				"99%", "99.9%"))
	}
	return resultLine +
		" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% " +
		"percentile[usec]   99.9% percentile[usec] \n"
}

func (r *Row) print(w io.Writer, o *Options) {
	switch b, l := r.Bandwidth, r.Latency; {
	case b != nil && o.narrow(wideBW):
		fmt.Fprintf(w, " %-7d %-12d %-16.2f %-19.2f %-.6f\n", r.Size, r.Iterations, b.Peak, b.Average, b.MsgRate)
	case b != nil && o.Gbits:
		fmt.Fprintf(w, " %-7d    %d           %-7.6f            %-7.6f            %-7.6f\n", r.Size, r.Iterations,
			b.Peak, b.Average, b.MsgRate)
	case b != nil:
		fmt.Fprintf(w, " %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f\n", r.Size, r.Iterations, b.Peak,
			b.Average, b.MsgRate)
	case o.Duration > 0:
		fmt.Fprintf(w, " %-7d       %d            %-7.2f        %-7.2f\n", r.Size, r.Iterations, l.Average, l.TPS)
	case o.narrow(wideLat):
		fmt.Fprintf(w, " %-7d %-7d%s\n", r.Size, r.Iterations, cellsOf(usec(l.Min), usec(l.Max), usec(l.Typical),
			usec(l.Average), usec(l.StdDev), usec(l.P99), usec(l.P999)))
	default:
		fmt.Fprintf(w,
			" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f\n",
			r.Size, r.Iterations, l.Min, l.Max, l.Typical, l.Average, l.StdDev, l.P99, l.P999)
	}
}

// cellsOf returns a row of a table for narrow terminals.
func cellsOf(texts ...string) string {
	row := ""
	for _, text := range texts {
		row += fmt.Sprintf(" %8s", text)
	}
	return row
}

// usec formats microseconds with as many decimals as a narrow cell has room for.
func usec(v float64) string {
	switch {
	case v < 1e4:
		return fmt.Sprintf("%.2f", v)
	case v < 1e6:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
