package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestSenders: a packet that leaves, for any of the addresses, is a warning where users share a daemon.
func TestSenders(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse int // how many of the two addresses the packet does not leave for
		daemon bool
		caps   []capability
		want   Status
		words  string
	}{
		{"kept", 2, true, []capability{setUID}, OK, "only some users"},
		{"kept from one address", 1, true, []capability{setUID}, Warn, "any user"},
		{"sent", 0, true, []capability{setUID}, Warn, "any user"},
		{"sent, nobody shares a daemon", 0, false, []capability{setUID}, OK, "that matters where"},
		{"an ordinary user", 0, true, nil, OK, "cannot be seen without CAP_SETUID"},
	} {
		e := machine(t, nil)
		e.setCaps(t, c.caps...)
		if c.daemon {
			e.write(t, "/run/goroce/goroced.sock", "")
		}
		e.usable = append(e.usable, netip.MustParseAddr("fd00::1"))
		asked := 0
		e.sendAs = func(uid int, to netip.Addr) error {
			if uid != stranger || to != e.usable[asked] {
				t.Errorf("%s: user %d sends to %v; want %d to %v", c.name, uid, to, stranger, e.usable[asked])
			}
			if asked++; asked <= c.refuse {
				return unix.EPERM
			}
			return nil
		}
		if found := checkSenders(e); len(found) != 1 || found[0].Status != c.want ||
			!strings.Contains(found[0].Text, c.words) {
			t.Errorf("%s: found %+v, want %v that says %q", c.name, found, c.want, c.words)
		}
	}
}

// TestSendersRemedy: no line of it is wider than 80 columns, whoever the daemon's user is, and the file that it names
// is there if goroced came from a package.
func TestSendersRemedy(t *testing.T) {
	for _, uid := range []uint32{0, 998, stranger} {
		wantNarrow(t, &Report{Findings: []Finding{{Command: onlySender(uid)}}})
	}
	if c := onlySender(0); !strings.HasSuffix(c, " meta skuid != 0 counter drop") {
		t.Errorf("where root is the only user: %s, want one that ends with %q", c, " meta skuid != 0 counter drop")
	}
	e := machine(t, map[string]string{"/run/goroce/goroced.sock": ""})
	e.setCaps(t, setUID)
	for _, file := range []string{"dist/nftables/goroce.nft", packagedRule} {
		if f := wantFound(t, e.examine(), "senders", Warn, "any user"); !strings.Contains(f.Remedy, "("+file+")") {
			t.Errorf("%q, want it to name %s", f.Remedy, file)
		}
		e.write(t, packagedRule, "")
	}
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
	e.setCaps(t, setUID)
	e.netif.name, e.sendAs, e.usable = ns.IfName, sendAs, []netip.Addr{ns.Addr4, ns.Addr6}
	look := func() (found []Finding) {
		_ = ns.Do(func() error { found = checkNamed(e, "senders"); return nil })
		return found
	}
	sends := func(uid int) bool {
		err := ns.Do(func() error { return sendAs(uid, ns.Addr4) })
		if err != nil && !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, c := range []struct {
		file string // else what the doctor prints
		user int
	}{{file, daemonUser}, {"", daemonUser}, {"", 0}} {
		if err := os.Chown(e.path("/run/goroce/goroced.sock"), c.user, c.user); err != nil {
			t.Fatal(err)
		}
		if !sends(otherUser) {
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
		for uid, want := range map[int]bool{0: true, c.user: true, otherUser: false} {
			if got := sends(uid); got != want {
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
