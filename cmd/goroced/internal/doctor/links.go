package doctor

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link/udp"
)

// privileges are the capabilities that links need. Link udp needs none.
var privileges = []struct {
	link string
	caps []capability
}{
	{"rawsock", []capability{netRaw}},
	{"afxdp", []capability{netRaw, netAdmin, bpf}},
}

// capability is one of capabilities(7).
type capability struct {
	name string
	bit  int
	// host is set if the capability has no effect in a user namespace, such as that of a container without root.
	// Network capabilities have an effect on the network of their namespace.
	host bool
}

var (
	netRaw    = capability{"cap_net_raw", unix.CAP_NET_RAW, false}
	netAdmin  = capability{"cap_net_admin", unix.CAP_NET_ADMIN, false}
	bpf       = capability{"cap_bpf", unix.CAP_BPF, true}
	setUID    = capability{"cap_setuid", unix.CAP_SETUID, true}
	ipcLock   = capability{"cap_ipc_lock", unix.CAP_IPC_LOCK, true}
	sysPtrace = capability{"cap_sys_ptrace", unix.CAP_SYS_PTRACE, false}
)

// setcap returns the command that grants capabilities to this program.
func (e *env) setcap(caps ...capability) string {
	var names []string
	for _, c := range caps {
		names = append(names, c.name)
	}
	return fmt.Sprintf("setcap %s+ep %s", strings.Join(names, ","), e.program)
}

func checkLinks(e *env) []Finding {
	found := ok("udp needs no privilege")
	for _, l := range privileges {
		var lacks []string
		for _, c := range l.caps {
			if !e.has(c) {
				lacks = append(lacks, strings.ToUpper(c.name))
			}
		}
		f := Finding{Text: l.link + " has the privileges that it needs"}
		if len(lacks) > 0 {
			f = Finding{Status: Warn, Text: fmt.Sprintf("%s lacks %s", l.link, strings.Join(lacks, ", ")),
				Remedy: fmt.Sprintf("only for --link %s: run as root, or", l.link), Command: e.setcap(l.caps...)}
		}
		found = append(found, f)
	}
	return found
}

// checkOffload checks segmentation offload by the kernel, which plain sockets need to be fast.
func checkOffload(e *env) []Finding {
	var lacks []string
	for _, o := range []struct {
		name   string
		option int
		value  int
	}{{"UDP_SEGMENT", unix.UDP_SEGMENT, 1024}, {"UDP_GRO", unix.UDP_GRO, 1}} {
		if _, err := e.sockopt(unix.IPPROTO_UDP, o.option, o.value); err != nil {
			lacks = append(lacks, fmt.Sprintf("%s (%v)", o.name, err))
		}
	}
	if len(lacks) > 0 {
		return []Finding{{Status: Warn,
			Text:   "the kernel lacks " + strings.Join(lacks, ", ") + ": packets pass one by one",
			Remedy: "use Linux 5.0 or later, or --link rawsock or afxdp"}}
	}
	if e.netif == nil {
		return nil
	}
	found, err := e.ethtool()
	if err != nil {
		return ok(fmt.Sprintf("the kernel has UDP_SEGMENT and UDP_GRO; %s could not be asked: %v", e.netif.name, err))
	}
	return found
}

// ethtool queries the interface's features that segmentation depends on.
func (e *env) ethtool() ([]Finding, error) {
	out, err := e.command("ethtool", "-k", e.netif.name)
	if err != nil {
		return nil, err
	}
	feature := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		feature[name] = value
	}
	if v := feature["tx-checksumming"]; strings.HasPrefix(v, "off") {
		f := Finding{Status: Warn,
			Text:   e.netif.name + " does not complete checksums, so link udp sends packets one by one",
			Remedy: "turn it on:", Command: "ethtool -K " + e.netif.name + " tx on"}
		if strings.Contains(v, "fixed") {
			f.Remedy, f.Command = "it cannot; use --link rawsock", ""
		}
		return []Finding{f}, nil
	}
	who := "the kernel"
	if strings.HasPrefix(feature["tx-udp-segmentation"], "on") {
		who = e.netif.name
	}
	return ok("the kernel has UDP_SEGMENT and UDP_GRO; " + who + " cuts the packets"), nil
}

// checkBuffers checks the limit of receive buffer sizes.
func checkBuffers(e *env) []Finding {
	const want = udp.DefaultRecvBuffer
	// The kernel doubles the requested size and returns the double (socket(7)); the texts have the requested size.
	got, err := e.sockopt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, want)
	if err != nil {
		got, err = e.sockopt(unix.SOL_SOCKET, unix.SO_RCVBUF, want)
	}
	if err != nil {
		return []Finding{{Status: Fail, Text: err.Error(), Remedy: "allow this program UDP sockets"}}
	}
	if got < 2*want {
		return []Finding{{Status: Warn,
			Text: fmt.Sprintf("receive buffers hold %d KiB, not %d KiB: bursts are lost and sent again", got>>11,
				want>>10), Remedy: "raise the limit for ordinary users:",
			Command: fmt.Sprintf("sysctl -w net.core.rmem_max=%d", want)}}
	}
	return ok(fmt.Sprintf("receive buffers hold %d KiB", got>>11))
}

// memlockWant is the most memory that link afxdp locks.
const memlockWant = 12 << 20

func checkMemlock(e *env) []Finding {
	limit, err := e.memlock()
	if err != nil {
		return []Finding{{Status: Warn, Text: err.Error(), Remedy: "allow this program getrlimit(2)"}}
	}
	switch {
	case e.has(ipcLock):
		return ok("any memory may be locked (CAP_IPC_LOCK)")
	case limit == unix.RLIM_INFINITY:
		return ok("any memory may be locked")
	case limit < memlockWant:
		return []Finding{{Status: Warn,
			Text: fmt.Sprintf("%d KiB of memory may be locked; link afxdp wants up to %d",
				limit>>10, memlockWant>>10),
			Remedy:  "raise the limit of this shell (a systemd unit: LimitMEMLOCK=infinity):",
			Command: "ulimit -l unlimited"}}
	}
	return ok(fmt.Sprintf("%d KiB of memory may be locked", limit>>10))
}
