package sysfs

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
)

// listen makes a socket with permissions, and returns its path.
func listen(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		t.Cleanup(func() { l.Close() })
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// create makes the tree of a socket, and updates it.
func create(t *testing.T, socket string, devices ...Device) *Tree {
	t.Helper()
	tree, err := Create(socket)
	if err == nil {
		err = tree.Update(devices)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// read returns all files of a tree with their contents, and links with "-> " and their targets.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			target, err := os.Readlink(path)
			all[name] = "-> " + target
			return err
		}
		text, err := os.ReadFile(path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// blue is a device with two addresses.
func blue() Device {
	rows := []ib.GIDEntry{{GID: ib.GIDFromAddr(netip.MustParseAddr("fe80::1")), Index: 0, NetIf: "eth0"},
		{GID: ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1")), Index: 2, NetIf: "eth0"}}
	return Device{Index: 3, Attr: ib.DeviceAttr{Name: "blue", FirmwareVersion: "goroce", NodeGUID: 0x1122334455667788,
		SysImageGUID: 0x0102030405060708},
		Port: ib.PortAttr{State: ib.PortActive, PhysState: ib.PhysLinkUp, Caps: ib.PortCM | ib.PortIPBasedGIDs,
			Speed: 25000, GIDTableLen: 3, NetIf: "eth0"},
		GIDs: rows, Counters: []Counter{{"port_xmit_data", 17, false}, {"sent_pkts", 18, true}}}
}

// blueFiles are what rdma_rxe shows of such a device, with counters.
var blueFiles = map[string]string{
	"dev/infiniband/rdma_cm":                                              "-> /dev/null",
	"dev/infiniband/uverbs3":                                              "-> /dev/null",
	"sys/class/infiniband/blue":                                           "-> ../../devices/virtual/infiniband/blue",
	"sys/devices/virtual/infiniband/blue/device/net/eth0":                 "-> /sys/class/net/eth0",
	"sys/devices/virtual/infiniband/blue/fw_ver":                          "goroce\n",
	"sys/devices/virtual/infiniband/blue/node_desc":                       "blue\n",
	"sys/devices/virtual/infiniband/blue/node_guid":                       "1122:3344:5566:7788\n",
	"sys/devices/virtual/infiniband/blue/node_type":                       "1: CA\n",
	"sys/devices/virtual/infiniband/blue/parent":                          "eth0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/cap_mask":                "0x00010000\n",
	"sys/devices/virtual/infiniband/blue/ports/1/counters/port_xmit_data": "17\n",
	"sys/devices/virtual/infiniband/blue/ports/1/gid_attrs/ndevs/0":       "eth0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/gid_attrs/ndevs/1":       "",
	"sys/devices/virtual/infiniband/blue/ports/1/gid_attrs/ndevs/2":       "eth0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/gid_attrs/types/0":       "RoCE v2\n",
	"sys/devices/virtual/infiniband/blue/ports/1/gid_attrs/types/1":       "",
	"sys/devices/virtual/infiniband/blue/ports/1/gid_attrs/types/2":       "RoCE v2\n",
	"sys/devices/virtual/infiniband/blue/ports/1/gids/0":                  "fe80:0000:0000:0000:0000:0000:0000:0001\n",
	"sys/devices/virtual/infiniband/blue/ports/1/gids/1":                  "0000:0000:0000:0000:0000:0000:0000:0000\n",
	"sys/devices/virtual/infiniband/blue/ports/1/gids/2":                  "0000:0000:0000:0000:0000:ffff:c000:0201\n",
	"sys/devices/virtual/infiniband/blue/ports/1/hw_counters/lifespan":    "0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/hw_counters/sent_pkts":   "18\n",
	"sys/devices/virtual/infiniband/blue/ports/1/lid":                     "0x0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/lid_mask_count":          "0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/link_layer":              "Ethernet\n",
	"sys/devices/virtual/infiniband/blue/ports/1/phys_state":              "5: LinkUp\n",
	"sys/devices/virtual/infiniband/blue/ports/1/pkeys/0":                 "0xffff\n",
	"sys/devices/virtual/infiniband/blue/ports/1/rate":                    "25 Gb/sec (1X EDR)\n",
	"sys/devices/virtual/infiniband/blue/ports/1/sm_lid":                  "0x0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/sm_sl":                   "0\n",
	"sys/devices/virtual/infiniband/blue/ports/1/state":                   "4: ACTIVE\n",
	"sys/devices/virtual/infiniband/blue/sys_image_guid":                  "0102:0304:0506:0708\n",
	"sys/devices/virtual/infiniband/blue/uevent":                          "NAME=blue\n",
	"sys/class/infiniband_verbs/abi_version":                              "6\n",
	"sys/class/misc/rdma_cm/abi_version":                                  "4\n",
	"sys/class/misc/rdma_cm/dev":                                          "1:3\n",
	"sys/class/infiniband_verbs/uverbs3/abi_version":                      "2\n",
	"sys/class/infiniband_verbs/uverbs3/dev":                              "1:3\n",
	"sys/class/infiniband_verbs/uverbs3/device":                           "-> ../../infiniband/blue/device",
	"sys/class/infiniband_verbs/uverbs3/ibdev":                            "blue\n",
	"sys/class/infiniband_verbs/uverbs3/uevent": "MAJOR=1\nMINOR=3\n" +
		"DEVNAME=infiniband/uverbs3\n",
}

// TestFiles: the tree has these files, follows what changes, and is gone at the end.
func TestFiles(t *testing.T) {
	socket := listen(t, 0o600)
	dir := socket + Suffix
	device := blue()
	tree := create(t, socket, device)
	if diff := cmp.Diff(blueFiles, read(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	state := filepath.Join(dir, "sys/devices/virtual/infiniband/blue/ports/1/state")
	open, err := os.Open(state) // who has a file open goes on with the old one
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	device.Port.State, device.Port.PhysState, device.Port.Speed = ib.PortDown, ib.PhysPolling, 0
	device.GIDs = device.GIDs[:1]
	if err := tree.Update([]Device{device}); err != nil {
		t.Fatal(err)
	}
	const port = "sys/devices/virtual/infiniband/blue/ports/1/"
	want := map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "2: Polling\n",
		port + "rate": "2.5 Gb/sec (1X SDR)\n", port + "gids/2": "0000:0000:0000:0000:0000:0000:0000:0000\n",
		port + "gid_attrs/types/2": "", port + "gid_attrs/ndevs/2": ""}
	got := read(t, dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is %q, want %q", name, got[name], text)
		}
	}
	if len(got) != len(blueFiles) {
		t.Errorf("%d files after a row became empty, want the same %d", len(got), len(blueFiles))
	}
	old := make([]byte, 64)
	if n, err := open.Read(old); err != nil || string(old[:n]) != "4: ACTIVE\n" {
		t.Errorf("the open file reads %q, %v; want 4: ACTIVE", old[:n], err)
	}

	if err := tree.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v, want %v", dir, err, fs.ErrNotExist)
	}
}

// TestPermissions: who may connect to the socket may read the tree, and nobody may write.
func TestPermissions(t *testing.T) {
	for mode, want := range map[fs.FileMode][2]fs.FileMode{
		0o600: {0o700, 0o400}, 0o660: {0o750, 0o440}, 0o666: {0o755, 0o444}, 0o640: {0o700, 0o400},
	} {
		socket := listen(t, mode)
		create(t, socket, blue())
		for i, name := range []string{"sys/class/infiniband/blue", "sys/devices/virtual/infiniband/blue/node_guid"} {
			info, err := os.Stat(filepath.Join(socket+Suffix, name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want[i] {
				t.Errorf("socket %v: %s is %v, want %v", mode, name, got, want[i])
			}
		}
	}
}

// TestStale: what a dead daemon has left is replaced, and a directory that is there already is taken.
func TestStale(t *testing.T) {
	socket := listen(t, 0o600)
	create(t, socket, blue())
	if err := os.Symlink("/nowhere", filepath.Join(socket+Suffix, ".new")); err != nil {
		t.Fatal(err)
	}
	red := blue()
	red.Attr.Name, red.Index = "red", 0
	create(t, socket, red)
	for name := range read(t, socket+Suffix) {
		if filepath.Base(name) == "uverbs3" || filepath.Base(name) == "blue" {
			t.Errorf("%s is left", name)
		}
	}
}

// TestNoSocket: without a socket there is no tree.
func TestNoSocket(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestRates: the speeds for which the kernel has a row.
func TestRates(t *testing.T) {
	for speed, want := range map[int]string{0: "2.5 Gb/sec (1X SDR)\n", 1000: "2.5 Gb/sec (1X SDR)\n",
		10000: "10 Gb/sec (1X FDR10)\n", 25000: "25 Gb/sec (1X EDR)\n", 100000: "100 Gb/sec (4X EDR)\n"} {
		if got := rate(speed); got != want {
			t.Errorf("%d Mb/s: %q, want %q", speed, got, want)
		}
	}
}
