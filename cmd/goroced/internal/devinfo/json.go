package devinfo

import (
	"net/netip"

	"github.com/goroce/goroce/ib"
)

// Info describes a device, with the names of ibv_devinfo.
type Info struct {
	Name         string `json:"hca_id"`
	Firmware     string `json:"fw_ver"`
	NodeGUID     string `json:"node_guid"`
	SysImageGUID string `json:"sys_image_guid"`
	VendorID     uint32 `json:"vendor_id"`
	VendorPart   uint32 `json:"vendor_part_id"`
	HW           uint32 `json:"hw_ver"`
	MaxMRSize    uint64 `json:"max_mr_size"`
	MaxQP        int    `json:"max_qp"`
	MaxQPWR      int    `json:"max_qp_wr"`
	Caps         uint32 `json:"device_cap_flags"`
	MaxSGE       int    `json:"max_sge"`
	MaxCQ        int    `json:"max_cq"`
	MaxCQE       int    `json:"max_cqe"`
	MaxMR        int    `json:"max_mr"`
	MaxPD        int    `json:"max_pd"`
	MaxRdAtomic  int    `json:"max_qp_rd_atom"`
	MaxInline    int    `json:"max_inline_data"`
	MaxSRQ       int    `json:"max_srq"`
	MaxSRQWR     int    `json:"max_srq_wr"`
	Ports        []Port `json:"ports"`
}

// Port describes a port.
type Port struct {
	Port      int    `json:"port"`
	State     string `json:"state"`
	MaxMTU    int    `json:"max_mtu"`
	ActiveMTU int    `json:"active_mtu"`
	LinkLayer string `json:"link_layer"`
	NetDev    string `json:"netdev,omitempty"`
	GIDs      []GID  `json:"gids"`
}

// GID is an entry of a port's table.
type GID struct {
	Index int        `json:"index"`
	GID   netip.Addr `json:"gid"`
}

// Describe describes dev.
func Describe(dev ib.Device) (*Info, error) {
	a := dev.Attr()
	i := &Info{Name: a.Name, Firmware: a.FirmwareVersion, NodeGUID: guid(a.NodeGUID),
		SysImageGUID: guid(a.SysImageGUID), VendorID: uint32(a.VendorID), VendorPart: uint32(a.VendorPartID),
		HW: uint32(a.HWVersion), MaxMRSize: uint64(a.MaxMRSize), MaxQP: a.MaxQP, MaxQPWR: a.MaxQPWR,
		Caps: uint32(a.Caps), MaxSGE: a.MaxSGE, MaxCQ: a.MaxCQ, MaxCQE: a.MaxCQE, MaxMR: a.MaxMR, MaxPD: a.MaxPD,
		MaxRdAtomic: a.MaxQPRdAtomic, MaxInline: a.MaxInline, MaxSRQ: a.MaxSRQ, MaxSRQWR: a.MaxSRQWR}
	port, err := dev.QueryPort(1)
	if err != nil {
		return nil, err
	}
	gids, err := dev.GIDs(1)
	if err != nil {
		return nil, err
	}
	p := Port{Port: 1, State: port.State.String(), MaxMTU: int(port.MaxMTU), ActiveMTU: int(port.ActiveMTU),
		LinkLayer: "Ethernet", NetDev: port.NetIf, GIDs: []GID{}}
	for _, entry := range gids {
		p.GIDs = append(p.GIDs, GID{entry.Index, netip.AddrFrom16(entry.GID)})
	}
	i.Ports = []Port{p}
	return i, nil
}
