package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// outputRules is a ruleset as nft prints it, with a chain of hook output that has these rules.
func outputRules(policy string, rules ...string) string {
	s := `{"nftables": [{"table": {"family": "inet", "name": "t", "handle": 1}},
		{"chain": {"family": "inet", "table": "t", "name": "c", "handle": 1, "type": "filter", "hook": "output", "prio": 0, "policy": "` + policy + `"}}`
	for _, r := range rules {
		s += nftRule(r)
	}
	return s + "]}"
}

const (
	toPort = `{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 4791}}`
	drops  = `, {"counter": {"packets": 0, "bytes": 0}}, {"drop": null}`
)

func skuid(op, users string) string {
	return `{"match": {"op": "` + op + `", "left": {"meta": {"key": "skuid"}}, "right": ` + users + `}}`
}

// TestSenders: rules that keep strangers from the port, and rules that do not; they do not count
// as in the way of the daemon.
func TestSenders(t *testing.T) {
	own := os.Geteuid()
	allowed := fmt.Sprintf(`{"set": [0, %d]}`, own)
	for _, c := range []struct {
		name  string
		nft   string
		save  string // of iptables
		kept  bool   // strangers are kept from the port
		block bool   // so is the daemon
	}{
		{name: "no rule", nft: outputRules("accept")},
		{name: "the packaged rule", nft: outputRules("accept", toPort+","+skuid("!=", allowed)+drops), kept: true},
		{name: "one user", nft: outputRules("accept", toPort+","+skuid("!=", fmt.Sprint(own))+drops), kept: true},
		{name: "a user by name", nft: outputRules("accept", toPort+","+skuid("!=",
			`{"set": ["root", `+fmt.Sprint(own)+`]}`)+drops), kept: true},
		{name: "accepted first", nft: outputRules("drop", toPort+","+skuid("==", allowed)+`, {"accept": null}`),
			kept: true},
		{name: "a range of users", nft: outputRules("accept",
			toPort+","+skuid("==", `{"range": [70000, 80000]}`)+drops)},
		{name: "all users but system's", nft: outputRules("accept",
			toPort+","+skuid("!=", `{"range": [0, 1000000]}`)+drops), kept: true},
		{name: "another user", nft: outputRules("accept", toPort+","+skuid("!=", "77777")+drops), kept: true,
			block: true},
		{name: "by one interface", nft: outputRules("accept",
			`{"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "eth0"}},`+toPort+","+skuid("!=",
				allowed)+drops)},
		{name: "another port", nft: outputRules("accept", strings.Replace(toPort, "4791", "4790", 1)+","+skuid("!=",
			allowed)+drops)},
		{name: "iptables", save: fmt.Sprintf("*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -m udp --dport 4791 -m "+
			"owner ! --uid-owner %d -j DROP\nCOMMIT\n", own), kept: true},
		{name: "iptables, other users", save: "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -m udp --dport 4791 " +
			"-m owner --uid-owner 70000-80000 -j DROP\nCOMMIT\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := machine(t, map[string]string{"/run/goroce/goroced.sock": ""})
			e.setCaps(t, netAdmin)
			e.command = func(name string, _ ...string) (string, error) {
				switch {
				case name == "nft" && c.nft != "":
					return c.nft, nil
				case name == "iptables-save" && c.save != "":
					return c.save, nil
				}
				return "", fmt.Errorf("no %s here", name)
			}
			found := e.examine()
			if c.kept {
				wantOK(t, found, "senders")
			} else if f := wantFound(t, found, "senders", Warn, "any user"); f.Command != onlySender(uint32(own)) {
				t.Errorf("command %q", f.Command)
			}
			if c.block {
				wantFound(t, found, "firewall", Fail, "drops UDP port 4791")
			} else {
				wantOK(t, found, "firewall")
			}
			if err := os.Remove(e.path("/run/goroce/goroced.sock")); err != nil {
				t.Fatal(err)
			}
			wantOK(t, e.examine(), "senders") // where nobody shares a daemon
		})
	}
}

// TestSendersRemedy: no line of it is wider than 80 columns, whoever the daemon's user is, and the file that it names
// is there if goroced came from a package.
func TestSendersRemedy(t *testing.T) {
	for _, uid := range []uint32{0, 998, stranger} {
		wantNarrow(t, &Report{Findings: []Finding{{Command: onlySender(uid)}}})
	}
	if c := onlySender(0); !strings.HasSuffix(c, " meta skuid != 0 counter drop") {
		t.Errorf("where root is the only user: %s", c)
	}
	e := machine(t, map[string]string{"/run/goroce/goroced.sock": ""})
	e.setCaps(t, netAdmin)
	e.command = func(string, ...string) (string, error) { return outputRules("accept"), nil }
	for _, file := range []string{"dist/nftables/goroce.nft", packagedRule} {
		if f := wantFound(t, e.examine(), "senders", Warn, "any user"); !strings.Contains(f.Remedy, "("+file+")") {
			t.Errorf("%q does not name %s", f.Remedy, file)
		}
		e.write(t, packagedRule, "")
	}
}

// sends reports whether a socket of a user's can send to the port.
func sends(t *testing.T, ns *linktest.Namespace, uid int) bool {
	t.Helper()
	err := ns.Do(func() error { // on one thread
		own, err := unix.SetfsuidRetUid(uid)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if _, back := unix.SetfsuidRetUid(own); err != nil || back != nil {
			return errors.Join(err, back)
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, make([]byte, 32), 0, &unix.SockaddrInet4{Port: link.Port, Addr: ns.Addr4.As4()})
	})
	if err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	return err == nil
}

// TestPackagedRule: with the packaged rule the kernel lets root and the daemon's user send, and
// nobody else; the doctor sees it. So it does of the commands that it prints itself.
func TestPackagedRule(t *testing.T) {
	require.Root(t)
	nft := require.Command(t, "nft")
	const daemonUser, otherUser = 60001, 60002
	ns, _ := linktest.NewVeth(t, 1500)
	sink, err := holdPort(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	rule, err := os.ReadFile("../../../../dist/nftables/goroce.nft")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "goroce.nft")
	own := strings.Replace(string(rule), "root, goroce }", fmt.Sprintf("root, %d }", daemonUser), 1)
	if err := os.WriteFile(file, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	e := machine(t, map[string]string{"/run/goroce/goroced.sock": ""})
	e.setCaps(t, netAdmin)
	e.netif.name, e.command = ns.IfName, runCommand
	look := func() (found []Finding) {
		_ = ns.Do(func() error { found = append(checkNamed(e, "firewall"), checkNamed(e, "senders")...); return nil })
		return found
	}
	for _, c := range []struct {
		file string // else what the doctor prints
		user int
	}{{file, daemonUser}, {"", daemonUser}, {"", 0}} {
		if err := os.Chown(e.path("/run/goroce/goroced.sock"), c.user, c.user); err != nil {
			t.Fatal(err)
		}
		if !sends(t, ns, otherUser) {
			t.Fatal("a user cannot send without any rule")
		}
		f := wantFound(t, look(), "senders", Warn, "any user")
		way := []string{nft, "-f", c.file}
		if c.file == "" {
			_, printed, _ := strings.Cut(text([]Finding{f}), ":\n")
			printed, _, _ = strings.Cut(printed, "\n\n")
			way = []string{"sh", "-c", printed}
		}
		ns.Command(t, way[0], way[1:]...)
		wantOK(t, look(), "senders")
		wantOK(t, look(), "firewall")
		for uid, want := range map[int]bool{0: true, c.user: true, otherUser: false} {
			if got := sends(t, ns, uid); got != want {
				t.Errorf("with %v: user %d can send: %v, want %v", way, uid, got, want)
			}
		}
		ns.Command(t, nft, "delete", "table", "inet", "goroce")
	}
}

// holdPort takes the port, so that what is sent there meets no error.
func holdPort(ns *linktest.Namespace) (conn *net.UDPConn, err error) {
	err = ns.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ns.Addr4.AsSlice(), Port: 4791})
		return err
	})
	return conn, err
}

// checkNamed runs one check.
func checkNamed(e *env, name string) (found []Finding) {
	for _, c := range checks {
		if c.name == name {
			for _, f := range c.run(e) {
				f.Check = name
				found = append(found, f)
			}
		}
	}
	return found
}
