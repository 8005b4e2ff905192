package perf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// newBridge creates a wire of two namespaces, and a third one with a bridge between them. The bridge drops packets at
// random: the share id.Loss of RoCEv2 packets and of iperf3's, independently, in both directions. The ends segment
// their packets before they send them, so the bridge sees single packets. If the kernel lacks a feature for this, the
// wire is skipped.
func newBridge(ctx context.Context, id WireID) (*wire, error) {
	a, errA := newNamespace()
	b, errB := newNamespace()
	middle, errC := newNamespace()
	if err := errors.Join(errA, errB, errC); err != nil {
		closeAll(a, b, middle)
		return nil, err
	}
	err := middle.do(func() error { return buildBridge(a.handle, b.handle, id.MTU) })
	if err == nil {
		err = errors.Join(a.configure(nearPrefix, id.MTU), b.configure(farPrefix, id.MTU))
	}
	if err == nil {
		err = errors.Join(a.waitUp(), b.waitUp(), a.segment(ctx), b.segment(ctx), middle.drop(ctx, id.Loss))
	}
	if err != nil {
		closeAll(a, b, middle)
		return nil, &SkipError{fmt.Sprintf("make a bridge that loses packets: %v", err)}
	}
	return &wire{WireID: id, near: a, far: b, close: func() { closeAll(a, b, middle) }}, nil
}

func buildBridge(a, b netns.NsHandle, mtu int) error {
	if err := addBridge(mtu); err != nil {
		return err
	}
	return errors.Join(addPort("near", a, mtu), addPort("far", b, mtu))
}

const bridgeDev = "br0"

// addBridge creates a bridge in the thread's namespace.
func addBridge(mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = bridgeDev, mtu
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return err
	}
	return setUp(bridgeDev, mtu)
}

// addPort connects a namespace to the bridge in the thread's namespace.
func addPort(name string, end netns.NsHandle, mtu int) error {
	if err := addVeth(name, ethDev, end); err != nil {
		return err
	}
	port, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	br0, err := netlink.LinkByName(bridgeDev)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(port, br0); err != nil {
		return err
	}
	return setUp(name, mtu)
}

// segment makes the kernel cut runs into single packets before it passes them to the interface.
func (n *namespace) segment(ctx context.Context) error {
	_, err := n.command(ctx, "ethtool", "-K", ethDev, "tso", "off", "tx-udp-segmentation", "off")
	return err
}

// drop sets the loss of the bridge in the namespace, by a firewall rule for frames between its ports. The kernel's
// random numbers cannot be seeded.
func (n *namespace) drop(ctx context.Context, percent float64) error {
	err := n.do(func() error {
		return os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0)
	})
	if err != nil || percent == 0 {
		return err
	}
	probability := strconv.FormatFloat(percent/100, 'f', 9, 64)
	for _, match := range []string{"udp --dport 4791", "tcp --dport " + iperfPort, "tcp --sport " + iperfPort} {
		args := append([]string{"-w", "-A", "FORWARD", "-p"}, strings.Fields(match)...)
		args = append(args, "-m", "statistic", "--mode", "random", "--probability", probability, "-j", "DROP")
		if _, err := n.command(ctx, "iptables", args...); err != nil {
			return err
		}
	}
	return nil
}
