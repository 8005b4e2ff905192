package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
)

// checkPeer asks the peer. It says nothing where other checks have said why it cannot.
func checkPeer(e *env) []Finding {
	if !e.Peer.IsValid() || e.netif == nil || !e.netif.up || !e.netif.carrier {
		return nil
	}
	route, err := neigh.RouteTo(e.Peer)
	if err != nil {
		return nil
	}
	local := e.localFor(route.Src)
	if !local.IsValid() {
		return nil
	}
	a, err := e.askPeer(local)
	switch {
	case errors.Is(err, errNoDevice):
		return nil
	case err != nil:
		return []Finding{{Status: Fail, Text: fmt.Sprintf("%v cannot be asked: %v", e.Peer, err),
			Remedy: "see what else is found here; without a remedy there, report it"}}
	case a.errno != 0:
		return []Finding{e.silence(local, a.errno)}
	}
	return []Finding{e.speaks(local, route, &a), e.tells(local, &a)}
}

// localFor returns the address to ask the peer from: that of the route, or else the first of the peer's IP version.
func (e *env) localFor(src netip.Addr) netip.Addr {
	var first netip.Addr
	for _, a := range e.usable {
		if a.WithZone("") == src {
			return a
		}
		if a.Is4() == e.Peer.Is4() && !first.IsValid() {
			first = a
		}
	}
	return first
}

// speaks describes a peer that answers.
func (e *env) speaks(local netip.Addr, route neigh.Route, a *answers) Finding {
	w := e.measureWay(local, min(ib.MTUFor(e.netif.mtu), ib.MTUFor(route.MTU)))
	sent, lost := a.sent+w.sent, a.lost+w.lost
	f := Finding{Text: fmt.Sprintf("%v answers in %s, %s, %d of %d lost", e.Peer, short(a.rtt), w.text(), lost, sent)}
	switch {
	case w.best < w.want && w.best > 0 && !w.told:
		f.Status = Fail
		f.Text = fmt.Sprintf("%v answers in %s, but packets of path MTU %d do not come back, and nothing says so; "+
			"those of path MTU %d do%s", e.Peer, short(a.rtt), w.want, w.best, e.direction(local, w.size(w.want)))
		f.Remedy = "raise the MTU on the way and at the peer, or lower it here:"
		f.Command = fmt.Sprintf("ip link set %s mtu %d", e.netif.name, max(w.size(w.best), 1500))
		if w.best < ib.MTU1024 {
			f.Command = fmt.Sprintf("ip link set %s mtu %d", e.netif.name, w.size(w.best))
		}
	case lost > 0:
		f.Status = Warn
		f.Remedy = "find the interface that drops them, here and at the peer:"
		f.Command = "ip -s link show " + e.netif.name
	}
	return f
}

// short is a time to read.
func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%d us", d.Microseconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// way is what long packets have shown of the way to the peer and back.
type way struct {
	want, best ib.MTU // the path MTU of the interface and the route, and the largest that comes back
	told       bool   // the network has said that longer packets do not pass, so connections use smaller ones
	sent, lost int    // of packets of the best length
	err        error  // why that is not known
}

// size is the length of the IP packets for a path MTU; ib.MTUFor leaves so much room for headers.
func (w *way) size(mtu ib.MTU) int {
	const headers = 80
	return int(mtu) + headers
}

func (w *way) text() string {
	switch {
	case errors.Is(w.err, fs.ErrPermission):
		return "path MTU not known (without root ping is not allowed: net.ipv4.ping_group_range)"
	case w.err != nil:
		return fmt.Sprintf("path MTU not known (%v)", w.err)
	case w.best < w.want:
		return fmt.Sprintf("path MTU %d (a router takes no longer packets)", w.best)
	}
	return fmt.Sprintf("path MTU %d", w.best)
}

const (
	// echoTries is how often a path MTU is tried before it counts as too large.
	echoTries = 3
	// echoes is how many packets of the best length are sent to count those that get lost.
	echoes = 20
)

// measureWay looks for the largest path MTU that the way carries in both directions, and then for loss at that. RoCEv2
// has no message of that length to which a peer must answer without a connection, so that ICMP echo stands in for it.
func (e *env) measureWay(local netip.Addr, want ib.MTU) way {
	w := way{want: want}
	p, err := newPinger(local, e.Peer)
	if err != nil {
		w.err = err
		return w
	}
	defer p.close()
	for mtu := want; mtu >= ib.MTU256 && w.best == 0; mtu /= 2 {
		for range echoTries {
			_, w.err = p.ping(w.size(mtu))
			if errors.Is(w.err, unix.EMSGSIZE) {
				w.told = true
				break
			}
			if w.err == nil {
				w.best = mtu
				break
			}
		}
	}
	if w.best == 0 {
		return w
	}
	for ; w.sent < echoes; w.sent++ {
		if _, err := p.ping(w.size(w.best)); err != nil {
			w.lost++
		}
	}
	return w
}

// silence says why a peer does not answer. errno is what the network has said of it, ETIMEDOUT if nothing.
func (e *env) silence(local netip.Addr, errno syscall.Errno) Finding {
	hop, netif, silent := neigh.Silent(e.Peer)
	how := "neighbour discovery"
	if hop.Is4() {
		how = "ARP"
	}
	ask := fmt.Sprintf("ip neigh flush to %v dev %s; ping -c 3 %v", hop, netif, hop)
	switch {
	case errno == unix.ECONNREFUSED:
		return Finding{Status: Fail,
			Text:    fmt.Sprintf("nobody has UDP port 4791 of %v: its host answers that the port is closed", e.Peer),
			Remedy:  "start RoCEv2 there, at this address:",
			Command: fmt.Sprintf("goroced serve --addr %v", e.Peer)}
	case silent && hop == e.Peer.WithZone(""):
		return Finding{Status: Fail, Text: fmt.Sprintf("%v does not answer %s on %s: no host that is up has this "+
			"address", e.Peer, how, netif), Remedy: "check the address, the cable and the VLAN, and ask again:",
			Command: ask}
	case silent:
		return Finding{Status: Fail, Text: fmt.Sprintf("%v, the router to %v, does not answer %s on %s", hop, e.Peer,
			how, netif), Remedy: "check the route and the router, and ask again:", Command: ask}
	case errno != unix.ETIMEDOUT:
		return Finding{Status: Fail, Text: fmt.Sprintf("the network says of %v: %v", e.Peer, errno),
			Remedy:  "a router or a firewall on the way says so; see which:",
			Command: fmt.Sprintf("tracepath -n %v", e.Peer)}
	case !canLeave(local, e.Peer):
		return e.blocked(fmt.Sprintf("a firewall of this machine drops what is sent to UDP port 4791 of %v", e.Peer))
	}
	if arrives, asked := e.peerArrives(); asked && !arrives {
		return e.blocked(fmt.Sprintf("this machine drops packets from %v to UDP port 4791", e.Peer))
	}
	return e.dropped(local)
}

// dropped describes a peer whose port says nothing, though nothing is wrong here.
func (e *env) dropped(local netip.Addr) Finding {
	f := Finding{Status: Fail, Command: "nft insert rule inet filter input udp dport 4791 accept",
		Remedy: fmt.Sprintf("let it pass at the peer, whose own findings `goroced doctor %v` has, and on the way:",
			local.WithZone(""))}
	p, err := newPinger(local, e.Peer)
	if err == nil {
		defer p.close()
		for range echoTries {
			var d time.Duration
			if d, err = p.ping(minEcho); err == nil {
				f.Text = fmt.Sprintf("%v answers ping in %s, and UDP port 4791 says nothing: a firewall there, or on "+
					"the way, drops it", e.Peer, short(d))
				return f
			}
		}
	}
	ping := "nor does it answer ping"
	if !errors.Is(err, errNoEcho) {
		ping = fmt.Sprintf("and ping says: %v", err)
	}
	f.Text = fmt.Sprintf("UDP port 4791 of %v says nothing, %s: its host is down, or a firewall there, or on the way, "+
		"drops it", e.Peer, ping)
	return f
}

// minEcho is the length of a short echo request's IP packet.
const minEcho = 128

// blocked is the finding for packets that do not pass this machine, with the rules that may be the cause.
func (e *env) blocked(text string) Finding {
	f := Finding{Status: Fail, Text: text}
	rules := e.suspects()
	if len(rules) == 0 {
		f.Remedy = "no rule of nft or iptables mentions the port; look for filters of the interface and of eBPF:"
		f.Command = "nft list ruleset; bpftool net; tc filter show ingress dev " + e.netif.name
		return f
	}
	var texts, commands []string
	for _, r := range rules {
		texts, commands = append(texts, r.text), append(commands, r.command)
	}
	f.Text += "; rules that may do it: " + strings.Join(texts, "; ")
	f.Remedy, f.Command = "let it pass:", strings.Join(slices.Compact(commands), "\n")
	return f
}

// canLeave reports whether the kernel lets a packet to the peer's port leave. The packet is all zeros, which is a BTH
// to QP 0: every RoCEv2 device drops it.
func canLeave(local, peer netip.Addr) bool {
	return !errors.Is(sendZeros(local, peer), unix.EPERM)
}

// sendZeros sends a packet that every RoCEv2 device drops to the port of an address.
func sendZeros(local, to netip.Addr) error {
	family := unix.AF_INET6
	if to.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(local, 0)); err != nil {
		return err
	}
	return unix.Sendto(fd, make([]byte, 32), 0, sockaddr(to, link.Port))
}
