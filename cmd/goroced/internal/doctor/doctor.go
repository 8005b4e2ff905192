// Package doctor finds what keeps RDMA from working on this machine, and says of
// each problem what would help.
//
//	findings, err := doctor.Examine(doctor.Options{NetIf: "eth0"})
//	err = doctor.Write(os.Stdout, findings)
//
// It changes nothing, but for a device that it opens for a moment, a socket that it
// connects to, and a packet that it makes the kernel receive. It sees the network
// namespace of the calling thread.
//
// The firewall is asked by that packet (probe.go): one that looks as if the peer had
// sent it either reaches UDP port 4791 or does not, whatever sets, eBPF programs or
// conditions unknown here decide. The rules are read as well, for the packet cannot
// tell which of them drops it and what would help; nothing can be sent for a peer that
// is not named, nor without CAP_BPF; and of what leaves no packet is made, as it would
// reach the peer.
//
// Files: doctor.go has the table of checks, env.go what they see of the machine,
// report.go prints; the checks are in subject.go and netif.go (interface, addresses,
// MTU), port.go (port 4791), links.go (privileges, offload, memory), machine.go
// (ptrace, clock, processor), daemon.go, and firewall.go and senders.go, which judge the
// rules that iptables.go and nft.go read; the former knows what probe.go found out.
package doctor

import "net/netip"

// Status says how bad a finding is.
type Status uint8

// Statuses.
const (
	OK   Status = iota
	Warn        // it works, but slowly, or not everything does
	Fail        // it does not work
)

var statusNames = [...]string{OK: "ok", Warn: "warn", Fail: "fail"}

func (s Status) String() string { return statusNames[s] }

// MarshalText makes it a word in JSON.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is what a check found.
type Finding struct {
	Check  string `json:"check"` // its name in the table
	Status Status `json:"status"`
	Text   string `json:"text"`
	// Remedy says what helps; "" if all is well.
	Remedy string `json:"remedy,omitempty"`
	// Command is the remedy as a line for the shell, where it is one. Most need root.
	Command string `json:"command,omitempty"`
}

// Options say what to look at. The zero value is the interface of the default route.
type Options struct {
	// NetIf and Addrs are as in host.Options. At most one of the two may be set.
	NetIf string
	Addrs []netip.Addr
	// Peer is the host to be spoken with, if the way to it is to be looked at, too.
	// Without NetIf and Addrs, the interface is the one that leads there.
	Peer netip.Addr
}

// checks stand in the order in which problems are best solved. A check about an
// interface finds nothing if there is none.
var checks = []struct {
	name string
	run  func(*env) []Finding
}{
	{"interface", checkInterface},
	{"gids", checkGIDs},
	{"mtu", checkMTU},
	{"route", checkRoute},
	{"rp_filter", checkReversePath},
	{"port", checkPort},
	{"firewall", checkFirewall},
	{"senders", checkSenders},
	{"device", checkDevice},
	{"links", checkLinks},
	{"offload", checkOffload},
	{"buffers", checkBuffers},
	{"memlock", checkMemlock},
	{"ptrace", checkPtrace},
	{"clock", checkClock},
	{"cpu", checkCPU},
	{"daemon", checkDaemon},
}

// Examine runs all checks. An error says that o is wrong, or that the machine could
// not be looked at; problems are findings.
func Examine(o Options) ([]Finding, error) {
	e, err := newEnv(o)
	if err != nil {
		return nil, err
	}
	return e.examine(), nil
}

func (e *env) examine() []Finding {
	var all []Finding
	for _, c := range checks {
		for _, f := range c.run(e) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	return all
}

// Count returns how many findings have the status.
func Count(findings []Finding, s Status) int {
	n := 0
	for i := range findings {
		if findings[i].Status == s {
			n++
		}
	}
	return n
}

// ok is a finding that all is well.
func ok(text string) []Finding { return []Finding{{Text: text}} }
