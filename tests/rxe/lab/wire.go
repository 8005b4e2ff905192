package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// DefaultMTU gives rxe a path MTU of 1024.
	DefaultMTU = 1500
	// MinMTU is what IPv6 needs.
	MinMTU = 1280
	// MaxMTU gives rxe a path MTU of 4096.
	MaxMTU = 9000

	// toolTimeout bounds the programs that set up the wire.
	toolTimeout = 30 * time.Second
)

// The devices in WireNS. Guest n is at the tap tapDev(n).
const (
	bridgeDev   = "br0"
	hostPortDev = "host"
)

func tapDev(guest int) string { return fmt.Sprintf("tap%d", guest) }

// Stations on the wire are numbered: the host is 1, guest n is n+1.
const hostStation = 1

func stationIPv4(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}) }

func stationIPv6(n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(n)})
}

func stationMAC(n int) net.HardwareAddr {
	return net.HardwareAddr{0x52, 0x54, 0x00, 0x77, 0x00, byte(n)}
}

const (
	prefixIPv4 = 24
	prefixIPv6 = 64
)

// inside runs f on a thread that is in the named namespace. Processes that f
// starts are in it too; goroutines are not.
func inside(namespace string, f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	there, err := netns.GetFromName(namespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", namespace, err)
	}
	err = f()
	if backErr := netns.Set(home); backErr != nil {
		return fmt.Errorf("leave namespace %s: %w", namespace, backErr) // the thread stays locked, so it is not reused
	}
	runtime.UnlockOSThread()
	return err
}

// buildWire makes both namespaces and everything in them but the guests.
func (l *Lab) buildWire(guests int) error {
	for _, namespace := range []string{l.WireNS, l.HostNS} {
		if err := runTool(exec.Command("ip", "netns", "add", namespace)); err != nil {
			return err
		}
	}
	if err := inside(l.WireNS, func() error { return buildBridge(l.HostNS, l.HostDev, guests) }); err != nil {
		return fmt.Errorf("build wire: %w", err)
	}
	if err := inside(l.HostNS, l.configureHost); err != nil {
		return fmt.Errorf("configure host: %w", err)
	}
	return nil
}

// buildBridge makes the bridge and its ports, and hands the far end of the
// host's port to its namespace.
func buildBridge(hostNS, hostDev string, guests int) error {
	// The devices of the bridge have no addresses and send nothing; frames between
	// stations pass no firewall until SetLoss enables one.
	if err := writeSysctls("0", "net/ipv6/conf/default/autoconf", "net/bridge/bridge-nf-call-iptables",
		"net/bridge/bridge-nf-call-ip6tables"); err != nil {
		return err
	}
	if err := writeSysctls("1", "net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/default/disable_ipv6"); err != nil {
		return err
	}
	snooping := false // it would hold multicast back
	bridge := &netlink.Bridge{LinkAttrs: attrs(bridgeDev), MulticastSnooping: &snooping}
	if err := addUp(bridge); err != nil {
		return err
	}
	host, err := netns.GetFromName(hostNS)
	if err != nil {
		return err
	}
	defer host.Close()
	ports := []netlink.Link{&netlink.Veth{
		LinkAttrs:        attrs(hostPortDev),
		PeerName:         hostDev,
		PeerHardwareAddr: stationMAC(hostStation),
		PeerNamespace:    netlink.NsFd(host),
	}}
	for guest := 1; guest <= guests; guest++ {
		ports = append(ports, &netlink.Tuntap{
			LinkAttrs: attrs(tapDev(guest)),
			Mode:      netlink.TUNTAP_MODE_TAP,
			Flags:     netlink.TUNTAP_ONE_QUEUE | netlink.TUNTAP_VNET_HDR | unix.IFF_NO_PI,
		})
	}
	for _, port := range ports {
		if err := addUp(port); err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, bridge); err != nil {
			return fmt.Errorf("attach %s to %s: %w", port.Attrs().Name, bridgeDev, err)
		}
	}
	return nil
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, DefaultMTU
	return a
}

func addUp(link netlink.Link) error {
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add %s %s: %w", link.Type(), link.Attrs().Name, err)
	}
	if err := netlink.LinkSetMTU(link, DefaultMTU); err != nil {
		return fmt.Errorf("MTU of %s: %w", link.Attrs().Name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
	}
	return nil
}

// configureHost assigns the host's addresses.
func (l *Lab) configureHost() error {
	// Without duplicate detection the addresses are usable at once.
	if err := writeSysctls("0", "net/ipv6/conf/all/accept_dad", "net/ipv6/conf/default/accept_dad",
		"net/ipv6/conf/"+l.HostDev+"/accept_dad", "net/ipv6/conf/"+l.HostDev+"/router_solicitations"); err != nil {
		return err
	}
	for _, name := range []string{"lo", l.HostDev} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		if name == "lo" {
			continue
		}
		for _, prefix := range []netip.Prefix{netip.PrefixFrom(l.HostIPv4, prefixIPv4),
			netip.PrefixFrom(l.HostIPv6, prefixIPv6)} {
			address, err := netlink.ParseAddr(prefix.String())
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, address); err != nil {
				return fmt.Errorf("address %s: %w", prefix, err)
			}
		}
	}
	return nil
}

// SetMTU sets the MTU of every part of the wire, the guests' eth0 included, in
// bytes from MinMTU to MaxMTU. The active MTU of rxe follows: 1024 at 1500,
// 4096 at 9000. QPs that are connected keep the path MTU they have.
func (l *Lab) SetMTU(mtu int) error {
	if mtu < MinMTU || mtu > MaxMTU {
		return fmt.Errorf("lab: MTU %d: from %d to %d is possible", mtu, MinMTU, MaxMTU)
	}
	wire := []string{bridgeDev, hostPortDev}
	for i := range l.VMs {
		wire = append(wire, tapDev(i+1))
	}
	l.mtu = mtu
	if err := inside(l.WireNS, func() error { return setMTU(mtu, wire...) }); err != nil {
		return err
	}
	if err := inside(l.HostNS, func() error { return setMTU(mtu, l.HostDev) }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	for _, vm := range l.VMs {
		if _, err := vm.Output(ctx, "ip", "link", "set", "eth0", "mtu", fmt.Sprint(mtu)); err != nil {
			return err
		}
	}
	return nil
}

func setMTU(mtu int, names ...string) error {
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("MTU %d of %s: %w", mtu, name, err)
		}
	}
	return nil
}

// SetOffload switches segmentation offload (TSO, GSO, UDP segmentation) of the
// host's device on or off. A firewall, and so SetLoss, sees and drops the run
// of packets that one send with UDP_SEGMENT makes as one; with offload off it
// sees each packet.
func (l *Lab) SetOffload(on bool) error {
	state := "off"
	if on {
		state = "on"
	}
	l.noOffload = !on
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	return runTool(l.HostCommand(ctx, "ethtool", "-K", l.HostDev, "tso", state, "gso", state, "tx-udp-segmentation",
		state))
}

// writeSysctls writes one value to sysctls of the thread's namespace; those of
// a kernel feature that is absent are left out.
func writeSysctls(value string, names ...string) error {
	for _, name := range names {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// runTool runs a program that prints nothing when it succeeds.
func runTool(cmd *exec.Cmd) error {
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, output)
	}
	return nil
}
