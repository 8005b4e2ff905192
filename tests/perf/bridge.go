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

// newBridge makes a wire of two namespaces and a third with a bridge between them,
// which drops packets at random: the share id.Loss of those of RoCEv2 and of
// those of iperf3, each by itself, in both directions. The ends segment what they
// send before it leaves, so that the bridge sees single packets. That the kernel
// lacks what this takes is no failure.
func newBridge(ctx context.Context, id WireID) (*wire, error) {
	a, errA := newNamespace()
	b, errB := newNamespace()
	middle, errC := newNamespace()
	if err := errors.Join(errA, errB, errC); err != nil {
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
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "br0", mtu
	br0 := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(br0); err != nil {
		return err
	}
	for name, end := range map[string]netns.NsHandle{"near": a, "far": b} {
		if err := addVeth(name, ethDev, end); err != nil {
			return err
		}
		port, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, br0); err != nil {
			return err
		}
		if err := setUp(name, mtu); err != nil {
			return err
		}
	}
	return setUp("br0", mtu)
}

// segment makes the interface take single packets only; the kernel cuts runs up
// just before.
func (n *namespace) segment(ctx context.Context) error {
	_, err := n.command(ctx, "ethtool", "-K", ethDev, "tso", "off", "tx-udp-segmentation", "off")
	return err
}

// drop sets the loss of the bridge in the namespace, with a firewall that frames
// between its ports pass. The kernel's random numbers have no seed.
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
