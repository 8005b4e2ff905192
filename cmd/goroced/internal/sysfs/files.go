package sysfs

import (
	"fmt"
	"path"
	"strings"

	"github.com/goroce/goroce/ib"
)

// Device is what the tree says of a device.
type Device struct {
	Index    int // the N of uverbsN
	Attr     ib.DeviceAttr
	Port     ib.PortAttr
	GIDs     []ib.GIDEntry
	Counters []Counter
}

// Counter is a counter of the port.
type Counter struct {
	Name  string
	Value uint64
	HW    bool // of rdma_rxe's own, in hw_counters
}

// Where the kernel has what is in the tree.
const (
	class = "sys/class/infiniband"
	real  = "sys/devices/virtual/infiniband" // of devices that are behind no bus, to which those in class are links
	verbs = "sys/class/infiniband_verbs"
	dev   = "dev/infiniband"
	cm    = "sys/class/misc/rdma_cm"
)

// classFiles are there without a device, too. 6 is IB_USER_VERBS_ABI_VERSION, 4 RDMA_USER_CM_ABI_VERSION. Who opens
// rdma_cm with libgoroce-sys.so preloaded gets an event channel of the daemon's connection manager.
var classFiles = map[string]string{verbs + "/abi_version": "6\n", cm + "/abi_version": "4\n", cm + "/dev": "1:3\n",
	dev + "/rdma_cm": linkTo + "/dev/null"}

// files adds the files of a device to all.
func (d *Device) files(all map[string]string) {
	name, uverbs := d.Attr.Name, fmt.Sprintf("uverbs%d", d.Index)
	all[path.Join(class, name)] = linkTo + "../../devices/virtual/infiniband/" + name
	put(all, path.Join(real, name), map[string]string{
		"fw_ver":         d.Attr.FirmwareVersion + "\n",
		"node_desc":      name + "\n",
		"node_guid":      guid(d.Attr.NodeGUID),
		"node_type":      "1: CA\n",
		"parent":         d.Port.NetIf + "\n",
		"sys_image_guid": guid(d.Attr.SysImageGUID),
		"uevent":         "NAME=" + name + "\n",
	})
	if d.Port.NetIf != "" {
		all[path.Join(real, name, "device/net", d.Port.NetIf)] = linkTo + "/sys/class/net/" + d.Port.NetIf
	}
	port := path.Join(real, name, "ports/1")
	d.portFiles(all, port)
	d.gidFiles(all, port)
	all[path.Join(port, "hw_counters", "lifespan")] = "0\n" // ms for which counters are kept: they are always fresh
	for _, c := range d.Counters {
		dir := "counters"
		if c.HW {
			dir = "hw_counters"
		}
		all[path.Join(port, dir, c.Name)] = fmt.Sprintf("%d\n", c.Value)
	}
	put(all, path.Join(verbs, uverbs), map[string]string{
		"abi_version": "2\n", // RXE_UVERBS_ABI_VERSION
		"dev":         "1:3\n",
		"device":      linkTo + "../../infiniband/" + name + "/device",
		"ibdev":       name + "\n",
		"uevent":      "MAJOR=1\nMINOR=3\nDEVNAME=infiniband/" + uverbs + "\n",
	})
	// A character device that anybody may look at and open: 1:3, as above.
	all[path.Join(dev, uverbs)] = linkTo + "/dev/null"
}

// portFiles adds those of the port. RoCE has no LIDs and no subnet manager.
func (d *Device) portFiles(all map[string]string, dir string) {
	p := &d.Port
	put(all, dir, map[string]string{
		"cap_mask":       fmt.Sprintf("0x%08x\n", uint32(p.Caps&^ib.PortIPBasedGIDs)), // which only verbs show
		"lid":            "0x0\n",
		"lid_mask_count": "0\n",
		"link_layer":     "Ethernet\n",
		"phys_state":     fmt.Sprintf("%d: %s\n", p.PhysState, physStates[p.PhysState]),
		"pkeys/0":        fmt.Sprintf("0x%04x\n", ib.DefaultPKey),
		"rate":           rate(p.Speed),
		"sm_lid":         "0x0\n",
		"sm_sl":          "0\n",
		"state":          fmt.Sprintf("%d: %s\n", p.State, states[p.State]),
	})
}

// gidFiles adds the rows of the GID table. As in the kernel an empty row is a GID of zeros, of which type and interface
// are there, but cannot be read: the files are empty, and libgoroce-sys.so lets read fail with EINVAL.
func (d *Device) gidFiles(all map[string]string, dir string) {
	for i := range d.Port.GIDTableLen {
		all[fmt.Sprintf("%s/gids/%d", dir, i)] = gid(ib.GID{})
		all[fmt.Sprintf("%s/gid_attrs/types/%d", dir, i)] = ""
		all[fmt.Sprintf("%s/gid_attrs/ndevs/%d", dir, i)] = ""
	}
	for _, e := range d.GIDs {
		all[fmt.Sprintf("%s/gids/%d", dir, e.Index)] = gid(e.GID)
		all[fmt.Sprintf("%s/gid_attrs/types/%d", dir, e.Index)] = "RoCE v2\n"
		all[fmt.Sprintf("%s/gid_attrs/ndevs/%d", dir, e.Index)] = e.NetIf + "\n"
	}
}

// states and physStates are the kernel's words.
var (
	states     = map[ib.PortState]string{ib.PortDown: "DOWN", ib.PortActive: "ACTIVE"}
	physStates = map[ib.PhysState]string{ib.PhysPolling: "Polling", ib.PhysDisabled: "Disabled",
		ib.PhysLinkUp: "LinkUp"}
)

// rates are what the kernel makes of the speed of an Ethernet interface (ib_get_eth_speed): the first row whose Mb/s
// the interface does not exceed. An unknown speed is the lowest.
var rates = []struct {
	speed int
	text  string
}{
	{1000, "2.5 Gb/sec (1X SDR)"}, {10000, "10 Gb/sec (1X FDR10)"}, {20000, "20 Gb/sec (4X DDR)"},
	{25000, "25 Gb/sec (1X EDR)"}, {40000, "40 Gb/sec (4X FDR10)"},
}

func rate(speed int) string {
	for _, r := range rates {
		if speed <= r.speed {
			return r.text + "\n"
		}
	}
	return "100 Gb/sec (4X EDR)\n"
}

// guid formats a GUID in four groups.
func guid(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x\n", g>>48, g>>32&0xFFFF, g>>16&0xFFFF, g&0xFFFF)
}

// gid formats a GID in eight groups.
func gid(g ib.GID) string {
	var b strings.Builder
	for i := 0; i < len(g); i += 2 {
		fmt.Fprintf(&b, "%02x%02x:", g[i], g[i+1])
	}
	return strings.TrimSuffix(b.String(), ":") + "\n"
}

// put adds the files of a directory to all.
func put(all map[string]string, dir string, files map[string]string) {
	for name, text := range files {
		all[path.Join(dir, name)] = text
	}
}
