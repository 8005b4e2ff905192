package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// The firewalls of the bridge, one for each address family: the sysctl that makes
// frames pass it, and the match for RoCEv2 packets with destination QP 1. The QPN is
// in the word at offset 12 of the UDP datagram.
var firewalls = map[string]struct{ sysctl, toQP1 string }{
	"iptables":  {"net/bridge/bridge-nf-call-iptables", "0 >> 22 & 0x3C @ 12 & 0xFFFFFF = 1"},
	"ip6tables": {"net/bridge/bridge-nf-call-ip6tables", "52 & 0xFFFFFF = 1"},
}

// SetLoss makes the bridge drop a share of all RoCEv2 packets (UDP port 4791),
// in percent from 0 to 100, of both families and in all directions, each packet
// by itself at random. 0 ends the loss. Call SetOffload(false) too where runs
// of packets must not be dropped as one. The kernel's random numbers have no
// seed: which packets are lost cannot be repeated.
func (l *Lab) SetLoss(percent float64) error { return l.setLoss(percent, false) }

// SetCMLoss is SetLoss for packets to QP 1 only: the messages of connection
// managers. It replaces the loss of an earlier SetLoss.
func (l *Lab) SetCMLoss(percent float64) error { return l.setLoss(percent, true) }

func (l *Lab) setLoss(percent float64, toQP1 bool) error {
	if !(percent >= 0 && percent <= 100) {
		return fmt.Errorf("lab: loss of %v percent: from 0 to 100 is possible", percent)
	}
	l.lossy = percent > 0
	enabled := "0"
	if l.lossy {
		enabled = "1"
	}
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	for program, firewall := range firewalls {
		if err := runTool(l.WireCommand(ctx, program, "-w", "-F", "FORWARD")); err != nil {
			return err
		}
		if l.lossy {
			rule := []string{"-w", "-A", "FORWARD", "-p", "udp", "--dport", "4791"}
			if toQP1 {
				rule = append(rule, "-m", "u32", "--u32", firewall.toQP1)
			}
			rule = append(rule, "-m", "statistic", "--mode", "random",
				"--probability", strconv.FormatFloat(percent/100, 'f', 9, 64), "-j", "DROP")
			if err := runTool(l.WireCommand(ctx, program, rule...)); err != nil {
				return err
			}
		}
		if err := inside(l.WireNS, func() error { return writeSysctls(enabled, firewall.sysctl) }); err != nil {
			return err
		}
	}
	return nil
}

// Dropped returns how many packets, or runs of packets, were dropped since the
// last SetLoss.
func (l *Lab) Dropped() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	var total uint64
	for program := range firewalls {
		cmd := l.WireCommand(ctx, program, "-w", "-nvxL", "FORWARD")
		output, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("lab: %s: %w", strings.Join(cmd.Args, " "), err)
		}
		for line := range strings.Lines(string(output)) {
			// A rule's line starts: packets, bytes, target.
			if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "DROP" {
				packets, err := strconv.ParseUint(fields[0], 10, 64)
				if err != nil {
					return 0, fmt.Errorf("lab: %s printed %q", program, line)
				}
				total += packets
			}
		}
	}
	return total, nil
}
