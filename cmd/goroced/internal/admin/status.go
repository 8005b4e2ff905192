package admin

import (
	"fmt"
	"io"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/internal/cells"
)

// PrintStatus says how a daemon and its devices are. Rates are those since the status before, if it is not nil.
func PrintStatus(w io.Writer, t term.Terminal, s, before *Status) error {
	var b strings.Builder
	line := func(indent, text string) {
		for i, part := range cells.Wrap(text, max(t.Columns()-len(indent), 20)) {
			if i == 1 {
				indent += "  "
			}
			b.WriteString(indent + part + "\n")
		}
	}
	line("", fmt.Sprintf("goroced %s, process %d, for %s: %s of %s", s.VersionText(), s.PID, since(s.Started, s.Now),
		many(s.Clients, "connection"), many(len(s.Users), "user")))
	for i := range s.Devices {
		d := &s.Devices[i]
		line("", fmt.Sprintf("%s: %s for %s, interface %s, link %s, MTU %d, %s", d.Name, stateText(d.State),
			since(d.Since, s.Now), d.NetIf, d.Link, d.MTU, many(d.Shards, "shard")))
		for j, addr := range d.Addresses {
			line("    ", fmt.Sprintf("GID %d: %v", d.index(j), addr))
		}
		line("    ", d.traffic(s.Now, before))
		for _, text := range d.dropped() {
			line("    ", text)
		}
		if d.Faults > 0 {
			line("    ", fmt.Sprintf("faults are injected into its packets: %d; `goroced fault list` shows them",
				d.Faults))
		}
	}
	for _, u := range s.Users {
		line("", fmt.Sprintf("user %s: %s, %s, %s, %s pinned", userName(u.UID), many(int(u.Amount["connections"]),
			"connection"), many(int(u.Amount["qps"]), "queue pair"), many(int(u.Amount["mrs"]), "memory region"),
			Bytes(float64(u.Amount["pinned"]))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// dropped says what the kernel has not kept for the device, or not taken from it, and what helps.
func (d *Device) dropped() (list []string) {
	if d.RxOverflow > 0 {
		list = append(list, fmt.Sprintf("the kernel dropped %s for which the receive buffer had no room: `goroced "+
			"doctor` says how large it is, and the sysctl that raises it (net.core.rmem_max); if it is large, more "+
			"shards empty it sooner", many(int(d.RxOverflow), "packet")))
	}
	if d.SendErr > 0 {
		list = append(list, fmt.Sprintf("the kernel refused to send %s: a firewall (EPERM), a full queue of the "+
			"interface (ENOBUFS; `ip link set %s txqueuelen 10000`), or a smaller path MTU (EMSGSIZE)",
			many(int(d.SendErr), "packet"), d.NetIf))
	}
	return list
}

// traffic says what the device has sent and received, and how fast it does since the status before.
func (d *Device) traffic(now time.Time, before *Status) string {
	text := fmt.Sprintf("sent %s, received %s", Bytes(float64(d.SentBytes)), Bytes(float64(d.RcvdBytes)))
	if before == nil {
		return text
	}
	i := slices.IndexFunc(before.Devices, func(was Device) bool { return was.Name == d.Name })
	if i < 0 || before.Devices[i].SentBytes > d.SentBytes || before.Devices[i].RcvdBytes > d.RcvdBytes {
		return text // another daemon
	}
	was, seconds := &before.Devices[i], now.Sub(before.Now).Seconds()
	if seconds <= 0 {
		return text
	}
	return text + fmt.Sprintf("; at present %.2f and %.2f Gb/s", float64(8*(d.SentBytes-was.SentBytes))/seconds/1e9,
		float64(8*(d.RcvdBytes-was.RcvdBytes))/seconds/1e9)
}

// index returns the GID index of an address. Daemons that are older do not tell it.
func (d *Device) index(i int) int {
	if i < len(d.GIDIndexes) {
		return d.GIDIndexes[i]
	}
	return i
}

// VersionText returns the version of the daemon that has sent the status.
func (s *Status) VersionText() string {
	fields, _ := s.Version.(map[string]any)
	text, _ := fields["version"].(string)
	return text
}

func stateText(state string) string { return strings.ToLower(strings.TrimPrefix(state, "PORT_")) }

func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

// since says how long ago something was, in two units at most.
func since(at, now time.Time) string {
	d := now.Sub(at)
	days := int(d / (24 * time.Hour))
	switch {
	case at.IsZero():
		return "an unknown time"
	case days > 0:
		return fmt.Sprintf("%s %dh", many(days, "day"), int(d%(24*time.Hour)/time.Hour))
	case d >= time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	default:
		return d.Truncate(time.Second).String()
	}
}

// many is a number of things.
func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Bytes prints an amount with a unit of 1000.
func Bytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; n >= 999.5 && i < len(units)-1; i++ {
		n /= 1000
	}
	digits := 1
	if i == 0 || n >= 99.95 {
		digits = 0
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + " " + units[i]
}
