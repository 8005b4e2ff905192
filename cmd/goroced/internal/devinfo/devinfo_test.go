package devinfo_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/cmd/goroced/internal/devinfo"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
)

const brief = `hca_id:	goroce_lo
	transport:			InfiniBand (0)
	fw_ver:				goroce
	node_guid:			GUID
	sys_image_guid:			GUID
	vendor_id:			0xffffff
	vendor_part_id:			0
	hw_ver:				0x0
	phys_port_cnt:			1
		port:	1
			state:			PORT_ACTIVE (4)
			max_mtu:		4096 (5)
			active_mtu:		1024 (3)
			sm_lid:			0
			port_lid:		0
			port_lmc:		0x00
			link_layer:		Ethernet

`

// TestLayout: scripts that read ibv_devinfo read this.
func TestLayout(t *testing.T) {
	addr := linktest.Loopback()
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{addr}, Device: roce.Options{ActiveMTU: ib.MTU1024}})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var b strings.Builder
	if err := devinfo.Write(&b, dev, false); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`[0-9a-f]{4}(:[0-9a-f]{4}){3}`).ReplaceAllString(b.String(), "GUID")
	if diff := cmp.Diff(brief, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	b.Reset()
	if err := devinfo.Write(&b, dev, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n\tmax_mr_size:\t\t\t0x", "\n\tmax_qp:\t\t\t\t131040\n", "\n\tmax_qp_init_rd_atom:\t\t128\n",
		"\n\t\t\tmax_msg_sz:\t\t0x80000000\n", "\n\t\t\tGID[  0]:\t\t::ffff:" + addr.String() + ", RoCE v2\n",
		"\n\t\t\tlink:\t\t\tudp\n", "\n\t\t\tlink_note:\t\tudp, the automatic choice: ", "\n\t\t\tnetdev:\t\t\tlo\n",
		"\n\t\t\tnetdev_mtu:\t\t",
		" packets, 65000 bytes\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// rnic is a device that knows nothing of a link.
type rnic struct{ ib.Device }

func (rnic) Attr() ib.DeviceAttr {
	return ib.DeviceAttr{Name: "rxe0", MaxSRQ: 1024, MaxSRQWR: 512, MaxAH: 100, Caps: ib.CapXRC | ib.CapMemWindow2B}
}

func (rnic) QueryPort(int) (ib.PortAttr, error) { return ib.PortAttr{State: ib.PortActive}, nil }
func (rnic) GIDs(int) ([]ib.GIDEntry, error)    { return []ib.GIDEntry{{Index: 5}}, nil }

// TestAnyDevice: a device that is not ours is described as far as ib.Device knows it.
func TestAnyDevice(t *testing.T) {
	var b strings.Builder
	if err := devinfo.Write(&b, rnic{}, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"hca_id:\trxe0\n", "\n\tmax_srq:\t\t\t1024\n\tmax_srq_wr:\t\t\t512\n", "\n\tmax_ah:\t\t\t\t100\n",
		"\n\t\t\tGID[  5]:\t\t::, RoCE v2\n",
		"\n\tdevice_cap_flags:\t\t0x01100000\n\t\t\t\t\tXRC\n\t\t\t\t\tMEM_WINDOW_TYPE_2B\n\tmax_sge:",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\tlink:") {
		t.Errorf("a link that nobody knows, want none:\n%s", b.String())
	}
}

func TestList(t *testing.T) {
	list := []host.Interface{
		{Name: "lo", Up: true, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{Name: "eth0", Up: true, Default: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		{Name: "eth1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
	}
	for _, c := range []struct {
		list  []host.Interface
		rnics []string
		want  string
	}{
		{list[:1], nil, "1 HCA found:\n\tgoroce_lo\t[127.0.0.1]\n\n"},
		{list, nil, "2 HCAs found:\n\tgoroce_lo\t[127.0.0.1]\n\tgoroce_eth0\t[192.0.2.1] default\n\n"},
		{list[:1], []string{"rnic:rxe0"}, "2 HCAs found:\n\tgoroce_lo\t[127.0.0.1]\n\trnic:rxe0\n\n"},
		{nil, nil, "0 HCAs found:\n\n"},
	} {
		var b strings.Builder
		if err := devinfo.List(&b, append(devinfo.Software(c.list), devinfo.Named(c.rnics)...)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestDescribe: what is for JSON is what is for people.
func TestDescribe(t *testing.T) {
	addr := linktest.Loopback()
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var text strings.Builder
	if err := devinfo.Write(&text, dev, true); err != nil {
		t.Fatal(err)
	}
	info, err := devinfo.Describe(dev)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(strings.NewReplacer(" (", "_", ")", "_").Replace(text.String()))
	for _, want := range []string{info.Name, info.NodeGUID, strconv.Itoa(info.MaxQP), strconv.Itoa(info.MaxCQE),
		strconv.Itoa(info.MaxInline),
		info.Ports[0].State + "_4_", info.Ports[0].LinkLayer, strconv.Itoa(info.Ports[0].ActiveMTU) + "_5_",
		info.Ports[0].GIDs[0].GID.String() + ","} {
		if !slices.Contains(words, want) {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
	if got := info.Ports[0].GIDs[0].GID.Unmap(); got != addr || len(info.Ports) != 1 {
		t.Errorf("%+v, want address %v", info.Ports, addr)
	}
}
