// Package devinfo describes a device in the format of rdma-core's ibv_devinfo, for people and scripts that know that
// tool. [Write] prints a device, [List] the devices that could be opened.
package devinfo

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
)

// linked is a software device, which can describe its link.
type linked interface {
	Link() link.Caps
	Offload() roce.Offload
}

// Write describes dev. If verbose is set it adds the limits, the GID table and, for a software device, a block about
// the link, which ibv_devinfo does not have.
func Write(w io.Writer, dev ib.Device, verbose bool) error {
	port, err := dev.QueryPort(1)
	if err != nil {
		return err
	}
	gids, err := dev.GIDs(1)
	if err != nil {
		return err
	}
	p := &printer{}
	attr := dev.Attr()
	p.device(&attr)
	if verbose {
		p.limits(&attr)
	}
	p.port(&port)
	if verbose {
		p.portLimits(&port)
		p.gids(gids)
		if d, ok := dev.(linked); ok {
			p.link(d.Link(), d.Offload())
		}
	}
	p.WriteString("\n")
	_, err = io.WriteString(w, p.String())
	return err
}

// printer writes "name: value" lines with the values in a column, aligned by tabs of 8 like the C tool's.
type printer struct{ strings.Builder }

// line writes a line with that number of leading tabs. Values begin in column 40, or 48 in the port's block.
func (p *printer) line(indent int, name, format string, args ...any) {
	column := 5
	if indent == 3 {
		column = 6
	}
	tabs := max(column-indent-(len(name)+1)/8, 1)
	p.WriteString(strings.Repeat("\t", indent) + name + ":" + strings.Repeat("\t", tabs))
	fmt.Fprintf(p, format+"\n", args...)
}

func (p *printer) device(a *ib.DeviceAttr) {
	fmt.Fprintf(p, "hca_id:\t%s\n", a.Name)
	p.line(1, "transport", "InfiniBand (0)")
	p.line(1, "fw_ver", "%s", a.FirmwareVersion)
	p.line(1, "node_guid", "%s", guid(a.NodeGUID))
	p.line(1, "sys_image_guid", "%s", guid(a.SysImageGUID))
	p.line(1, "vendor_id", "0x%04x", a.VendorID)
	p.line(1, "vendor_part_id", "%d", a.VendorPartID)
	p.line(1, "hw_ver", "0x%X", a.HWVersion)
	p.line(1, "phys_port_cnt", "%d", a.Ports)
}

// number is a line with a number.
type number struct {
	name  string
	value int
}

// limits writes the limits that ibv_devinfo prints and the device has, in the same order, and max_inline_data, which
// ibv_devinfo does not print.
func (p *printer) limits(a *ib.DeviceAttr) {
	p.line(1, "max_mr_size", "0x%x", a.MaxMRSize)
	p.numbers(number{"max_qp", a.MaxQP}, number{"max_qp_wr", a.MaxQPWR})
	p.caps(a.Caps)
	p.numbers(number{"max_sge", a.MaxSGE}, number{"max_cq", a.MaxCQ}, number{"max_cqe", a.MaxCQE},
		number{"max_mr", a.MaxMR}, number{"max_pd", a.MaxPD}, number{"max_qp_rd_atom", a.MaxQPRdAtomic},
		number{"max_qp_init_rd_atom", a.MaxQPInitRdAtom})
	p.line(1, "atomic_cap", "%v (%d)", a.Atomic, uint8(a.Atomic))
	p.numbers(number{"max_mw", a.MaxMW}, number{"max_inline_data", a.MaxInline},
		number{"max_mcast_grp", a.MaxMcastGroup}, number{"max_mcast_qp_attach", a.MaxMcastQP},
		number{"max_ah", a.MaxAH},
		number{"max_srq", a.MaxSRQ}, number{"max_srq_wr", a.MaxSRQWR}, number{"max_srq_sge", a.MaxSRQSGE},
		number{"max_pkeys", 1}, number{"local_ca_ack_delay", a.LocalCAAckDelay})
}

func (p *printer) numbers(list ...number) {
	for _, n := range list {
		p.line(1, n.name, "%d", n.value)
	}
}

// caps writes the capabilities, with the names that ibv_devinfo has for them.
func (p *printer) caps(have ib.DeviceCaps) {
	p.line(1, "device_cap_flags", "0x%08x", uint32(have))
	for _, c := range []struct {
		bit  ib.DeviceCaps
		name string
	}{
		{ib.CapMemWindow, "MEM_WINDOW"}, {ib.CapXRC, "XRC"}, {ib.CapLocalInv, "MEM_MGT_EXTENSIONS"},
		{ib.CapMemWindow2B, "MEM_WINDOW_TYPE_2B"},
	} {
		if have&c.bit != 0 {
			p.WriteString("\t\t\t\t\t" + c.name + "\n")
		}
	}
}

func (p *printer) port(a *ib.PortAttr) {
	p.WriteString("\t\tport:\t1\n")
	p.line(3, "state", "%v (%d)", a.State, a.State)
	p.line(3, "max_mtu", "%d (%d)", a.MaxMTU, a.MaxMTU.Code())
	p.line(3, "active_mtu", "%d (%d)", a.ActiveMTU, a.ActiveMTU.Code())
	p.line(3, "sm_lid", "0")
	p.line(3, "port_lid", "0")
	p.line(3, "port_lmc", "0x00")
	p.line(3, "link_layer", "Ethernet")
}

func (p *printer) portLimits(a *ib.PortAttr) {
	p.line(3, "max_msg_sz", "0x%x", a.MaxMsgSize)
	p.line(3, "pkey_tbl_len", "1")
	p.line(3, "gid_tbl_len", "%d", a.GIDTableLen)
}

func (p *printer) gids(table []ib.GIDEntry) {
	for _, e := range table {
		p.line(3, fmt.Sprintf("GID[%3d]", e.Index), "%v, RoCE v2", netip.AddrFrom16(e.GID))
	}
}

// link writes how a software device sends its packets, and why it chose that link.
func (p *printer) link(c link.Caps, offload roce.Offload) {
	p.line(3, "link", "%s", c.Name)
	if c.Note != "" {
		p.line(3, "link_note", "%s", c.Note)
	}
	p.line(3, "netdev", "%s", c.NetIf)
	p.line(3, "netdev_mtu", "%d", c.MTU)
	p.line(3, "run", "%d packets, %d bytes", c.RunFrames, c.RunBytes)
	p.line(3, "segmentation", "%v", offload)
	src := "one per connection"
	if c.FixedSrcPort != 0 {
		src = fmt.Sprint(c.FixedSrcPort)
	}
	p.line(3, "udp_src_port", "%s", src)
}

// guid formats a GUID in four groups, as the C tool does.
func guid(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xFFFF, g>>16&0xFFFF, g&0xFFFF)
}
