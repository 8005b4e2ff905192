package admin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	srv "github.com/goroce/goroce/roce/server"
)

// Layouts are those of ibv_devices and of iproute2's rdma, so that who reads, or
// parses, theirs reads these.

// PrintDevices prints as ibv_devices does.
func PrintDevices(w io.Writer, list []Device) error {
	var b strings.Builder
	fmt.Fprintf(&b, "    %-16s\t   node GUID\n    %-16s\t----------------\n", "device", "------")
	for _, d := range list {
		fmt.Fprintf(&b, "    %-16s\t%016x\n", d.Name, d.GUID)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintLinks prints as `rdma link` does.
func PrintLinks(w io.Writer, list []Device) error {
	var b strings.Builder
	for _, d := range list {
		state, physical := "DOWN", "DISABLED"
		if d.State == "PORT_ACTIVE" {
			state, physical = "ACTIVE", "LINK_UP"
		}
		fmt.Fprintf(&b, "link %s/1 state %s physical_state %s netdev %s \n", d.Name, state, physical, d.NetIf)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintQPs prints as `rdma resource show qp` does.
func PrintQPs(w io.Writer, list []srv.QPInfo) error {
	var b strings.Builder
	for _, q := range list {
		fmt.Fprintf(&b, "link %s/1 lqpn %d ", q.Device, q.QPN)
		if q.Peer.IsValid() {
			fmt.Fprintf(&b, "rqpn %d ", q.PeerQPN)
		}
		fmt.Fprintf(&b, "type %s state %s ", q.Type, q.State)
		if q.Peer.IsValid() {
			fmt.Fprintf(&b, "rq-psn %d ", q.RQPSN)
		}
		fmt.Fprintf(&b, "sq-psn %d ", q.SQPSN)
		if q.Peer.IsValid() {
			fmt.Fprintf(&b, "path-mig-state MIGRATED ")
		}
		fmt.Fprintf(&b, "pid %d comm %s \n", q.PID, q.Comm)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintMRs prints as `rdma resource show mr` does: keys only for whom they are shown to.
func PrintMRs(w io.Writer, list []srv.MRInfo) error {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "dev %s mrn %d ", m.Device, m.Number)
		if m.Key != 0 {
			fmt.Fprintf(&b, "rkey 0x%x lkey 0x%x iova 0x%x ", m.Key, m.Key, m.IOVA)
		}
		fmt.Fprintf(&b, "mrlen %d pid %d comm %s \n", m.Length, m.PID, m.Comm)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintCounters prints as `rdma statistic show` does. With before, it prints what was
// added since.
func PrintCounters(w io.Writer, all, before map[string][]Counter) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "link %s/1", name)
		old := map[string]uint64{}
		for _, c := range before[name] {
			old[c.Name] = c.Value
		}
		for _, c := range all[name] {
			fmt.Fprintf(&b, " %s %d", c.Name, c.Value-old[c.Name])
		}
		b.WriteString(" \n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
