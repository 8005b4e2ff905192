// Package doctor finds out what prevents RDMA from working on this machine, and what to do about each problem.
//
//	report, err := doctor.Examine(doctor.Options{NetIf: "eth0"})
//	err = report.Write(os.Stdout, term.Of(os.Stdout, os.Getenv))
//
// It changes nothing, but it opens a device for a moment, connects to a socket, asks the peer, and may make the kernel
// receive a packet. It examines the network namespace of the calling thread.
//
// The peer is asked by what every RoCEv2 device answers (ask.go): a request for a connection to a service that nobody
// has, which the peer's connection manager rejects. Such requests have a fixed length; packets of each path MTU are
// ICMP echo requests (echo.go), which any host answers at any length, both ways. No message of RoCEv2 could do that: a
// peer drops what is longer than a management datagram unless there is a connection, and a queue pair to take it.
//
// A peer of goroce says in that rejection how it has received the request (tells.go): so losses have a direction, and
// ECN marks and its clock are known. ICMP tells the directions of long packets (direction.go): a closed UDP port is
// answered by a short message, however long the packet to it was.
//
// Nothing is concluded from rules of a firewall. If the peer does not answer, packets find out whether this machine
// lets them leave and arrive; one that arrives looks as if the peer had sent it (probe.go). Only then are rules listed
// that name the port (rules.go).
//
// Files: doctor.go has the table of checks, env.go what they see of the machine, peer.go the address of a peer, next.go
// what to try when all is well; report.go prints. The checks are in subject.go and netif.go (interface, addresses,
// MTU), port.go (port 4791), reach.go (the peer, by ask.go, tells.go, echo.go, direction.go, probe.go and rules.go),
// senders.go, links.go (privileges, offload, memory), machine.go (ptrace, clock, processor), daemon.go and dropin.go
// (programs in C).
package doctor

import "net/netip"

// Status is the severity of a finding.
type Status uint8

// Statuses.
const (
	OK   Status = iota
	Warn        // it works, but slowly or not completely
	Fail        // it does not work
)

var statusNames = [...]string{OK: "ok", Warn: "warn", Fail: "fail"}

func (s Status) String() string { return statusNames[s] }

// MarshalText encodes the status as a word.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"` // name of the check
	Status Status `json:"status"`
	Text   string `json:"text"`
	// Remedy says what to do; "" if there is no problem.
	Remedy string `json:"remedy,omitempty"`
	// Command is the remedy as a shell command, if it is one; several have a line each. Most need root.
	Command string `json:"command,omitempty"`
}

// Report is what an examination found.
type Report struct {
	Findings []Finding `json:"findings"`
	Next     []Step    `json:"next,omitempty"` // what to try now; none if a finding is a Fail
}

// OK reports whether nothing keeps RDMA from working.
func (r *Report) OK() bool { return r.Count(Fail) == 0 }

// Count returns the number of findings with the status.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Status == s {
			n++
		}
	}
	return n
}

// Options say what to examine. The zero value stands for the interface of the default route.
type Options struct {
	// NetIf and Addrs are as in host.Options. At most one of the two may be set.
	NetIf string
	Addrs []netip.Addr
	// Peer is a host to communicate with; it is asked then, and the route to it examined. Without NetIf and Addrs, the
	// interface is that of the route.
	Peer netip.Addr
}

// checks are in the order in which problems are best solved. Checks of an interface return nothing if there is none.
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
	{"senders", checkSenders},
	{"device", checkDevice},
	{"peer", checkPeer},
	{"links", checkLinks},
	{"offload", checkOffload},
	{"buffers", checkBuffers},
	{"memlock", checkMemlock},
	{"ptrace", checkPtrace},
	{"clock", checkClock},
	{"cpu", checkCPU},
	{"daemon", checkDaemon},
	{"libraries", checkLibraries},
	{"memory", checkMemory},
}

// Examine runs all checks. An error means that o is invalid, or that the machine could not be examined; problems are
// findings.
func Examine(o Options) (Report, error) {
	e, err := newEnv(o)
	if err != nil {
		return Report{}, err
	}
	r := Report{Findings: e.examine()}
	if r.OK() {
		r.Next = e.next()
	}
	return r, nil
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

// ok returns the finding that there is no problem.
func ok(text string) []Finding { return []Finding{{Text: text}} }
