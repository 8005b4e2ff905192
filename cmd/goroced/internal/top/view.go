package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/internal/cells"
)

// View says which rows are shown, and in which order.
type View struct {
	Processes bool   // a row for each process on a device, not for each queue pair
	Sort      string // name of the column to sort by, see Columns; "" is the first of rates
	Reverse   bool   // the smallest first
	Filter    string // only rows that have this text in a cell
}

// column is a column of the table.
type column struct {
	name    string
	title   string
	left    bool // text, to the left; numbers are to the right
	all, of bool // is in the table of queue pairs, of processes
	cell    func(r *Row) string
	compare func(a, b *Row) int // numbers: the largest first
}

// text and number make columns of both kinds.
func text(name string, all, of bool, cell func(r *Row) string) column {
	return column{name, strings.ToUpper(name), true, all, of, cell,
		func(a, b *Row) int { return cmp.Compare(cell(a), cell(b)) }}
}

func number(name, title string, all, of bool, value func(r *Row) float64, format func(v float64) string) column {
	return column{name, title, false, all, of, func(r *Row) string { return format(value(r)) },
		func(a, b *Row) int { return cmp.Compare(value(b), value(a)) }}
}

// columns are those of both tables.
var columns = []column{
	text("device", true, true, func(r *Row) string { return r.Device }),
	number("qpn", "QPN", true, false, func(r *Row) float64 { return float64(r.QPN) }, hex),
	number("qps", "QPS", false, true, func(r *Row) float64 { return float64(r.QPs) }, count),
	text("type", true, false, func(r *Row) string { return r.Type }),
	text("state", true, false, func(r *Row) string { return r.State }),
	text("peer", true, false, peer),
	number("tx", "TX Gb/s", true, true, func(r *Row) float64 { return r.SentBits }, gigabits),
	number("rx", "RX Gb/s", true, true, func(r *Row) float64 { return r.RcvdBits }, gigabits),
	number("txmsg", "TX msg/s", true, true, func(r *Row) float64 { return r.SentMessages }, count),
	number("rxmsg", "RX msg/s", true, true, func(r *Row) float64 { return r.RcvdMessages }, count),
	number("rtt", "RTT", true, true, func(r *Row) float64 { return float64(r.RTT) }, duration),
	number("window", "WINDOW", true, true, func(r *Row) float64 { return float64(r.Window) }, count),
	number("pace", "PACE", true, true, func(r *Row) float64 { return float64(r.PaceBits) }, gigabits),
	number("inflight", "FLIGHT", true, true, func(r *Row) float64 { return float64(r.InFlight) }, count),
	number("resent", "RESENT/s", true, true, func(r *Row) float64 { return r.ResentPkts }, count),
	number("marks", "MARKS/s", true, true, func(r *Row) float64 { return r.Marks }, count),
	number("rnr", "RNR/s", true, true, func(r *Row) float64 { return r.RNR }, count),
	number("pid", "PID", true, true, func(r *Row) float64 { return float64(r.PID) }, whole),
	text("comm", true, true, func(r *Row) string { return r.Comm }),
	text("error", true, true, func(r *Row) string { return r.Failed }),
}

const defaultSort = "tx"

// Columns are the names of the columns, for View.Sort.
func Columns() []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// columns returns those that the view shows.
func (v *View) columns() []column {
	return slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return v.Processes && !c.of || !v.Processes && !c.all
	})
}

// sorted returns the place of the column that is sorted by, among list.
func (v *View) sorted(list []column) int {
	at := func(name string) int { return slices.IndexFunc(list, func(c column) bool { return c.name == name }) }
	if i := at(v.Sort); i >= 0 {
		return i
	}
	return at(defaultSort)
}

// next sorts by the column that is steps to the right of the present one.
func (v *View) next(steps int) {
	list := v.columns()
	v.Sort = list[(v.sorted(list)+steps+len(list))%len(list)].name
}

// Select returns the rows that the view shows, in its order. Equal ones keep the order of rows.
func (v *View) Select(rows []Row) []Row {
	if v.Processes {
		rows = Processes(rows)
	}
	list := v.columns()
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		return v.Filter != "" && !slices.ContainsFunc(list, func(c column) bool {
			return strings.Contains(c.cell(&r), v.Filter)
		})
	})
	by := list[v.sorted(list)]
	slices.SortStableFunc(rows, func(a, b Row) int {
		if v.Reverse {
			return by.compare(&b, &a)
		}
		return by.compare(&a, &b)
	})
	return rows
}

// lines returns the head of the table and a line for each row. Columns are as wide as their widest cell.
func (v *View) lines(rows []Row) (head string, lines []string) {
	list := v.columns()
	width := make([]int, len(list))
	table := make([][]string, len(rows)+1)
	for i, c := range list {
		table[0] = append(table[0], c.title)
		for j := range rows {
			table[j+1] = append(table[j+1], c.cell(&rows[j]))
		}
		for _, row := range table {
			width[i] = max(width[i], cells.Count(row[i]))
		}
	}
	for _, row := range table {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-cells.Count(cell))
			if list[i].left {
				b.WriteString(cell + pad + "  ")
			} else {
				b.WriteString(pad + cell + "  ")
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines[0], lines[1:]
}

// summary is a line about all rows.
func (v *View) summary(rows []Row) string {
	var sum Row
	for i := range rows {
		r := &rows[i]
		sum.QPs += r.QPs
		sum.SentBits, sum.RcvdBits = sum.SentBits+r.SentBits, sum.RcvdBits+r.RcvdBits
		sum.ResentPkts += r.ResentPkts
	}
	failed := 0
	for i := range rows {
		if rows[i].Failed != "" {
			failed++
		}
	}
	return fmt.Sprintf("%d queue pairs of %d processes, %s Gb/s sent, %s Gb/s received, %s packets/s sent again, "+
		"%d failed", sum.QPs, len(Processes(rows)), gigabits(sum.SentBits), gigabits(sum.RcvdBits),
		count(sum.ResentPkts), failed)
}

func peer(r *Row) string {
	if !r.Peer.IsValid() {
		return ""
	}
	return r.Peer.String()
}

// Cells that would say 0 are "-", so that the eye finds the others.
const nothing = "-"

func hex(v float64) string {
	if v == 0 {
		return nothing
	}
	return fmt.Sprintf("%#x", uint32(v))
}

func whole(v float64) string { return strconv.Itoa(int(v)) }

// count prints a number in at most five characters: 999, 1.2k, 34k, 1.2M.
func count(v float64) string {
	switch {
	case v < 0.05:
		return nothing
	case v < 9.95:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	case v < 999.5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v < 9950:
		return strconv.FormatFloat(v/1e3, 'f', 1, 64) + "k"
	case v < 999.5e3:
		return strconv.FormatFloat(v/1e3, 'f', 0, 64) + "k"
	default:
		return strconv.FormatFloat(v/1e6, 'f', 1, 64) + "M"
	}
}

func gigabits(bits float64) string {
	switch g := bits / 1e9; {
	case bits == 0:
		return nothing
	case g < 0.001:
		return "<.001"
	case g < 1:
		return strconv.FormatFloat(g, 'f', 3, 64)
	default:
		return strconv.FormatFloat(g, 'f', 2, 64)
	}
}

func duration(ns float64) string {
	d := time.Duration(ns)
	switch {
	case d == 0:
		return nothing
	case d < 10*time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "us"
	default:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
}
