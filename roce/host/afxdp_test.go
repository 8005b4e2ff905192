package host

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/afxdp"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestAFXDP: over every address, also after the interface was down; the note says
// how the frames pass.
func TestAFXDP(t *testing.T) {
	require.Root(t)
	nsA, nsB := linktest.NewVeth(t, 1500)
	a, b := openIn(t, nsA, Options{Link: "afxdp"}), openIn(t, nsB, Options{Link: "afxdp"})
	if caps := a.Link(); caps.Name != "afxdp" || caps.Note != "native XDP, copy mode, 1 queue" {
		t.Errorf("link %+v, want afxdp in copy mode, of 1 queue", caps)
	}
	// The link-local address may be away for a moment, since the carrier was.
	for _, addrs := range [][2]netip.Addr{{nsA.Addr4, nsB.Addr4}, {nsA.Addr6, nsB.Addr6}} {
		x, y := over(t, a, b, addrs[0], addrs[1])
		if err := write(t, x, y); err != nil {
			t.Errorf("from %v: %v", addrs[0], err)
		}
	}
	nsA.Command(t, "ip", "link", "set", nsA.IfName, "down")
	wantPort(t, a, ib.EventPortErr, ib.PortDown)
	wantPort(t, b, ib.EventPortErr, ib.PortDown)
	nsA.Command(t, "ip", "link", "set", nsA.IfName, "up")
	wantPort(t, a, ib.EventPortActive, ib.PortActive)
	wantPort(t, b, ib.EventPortActive, ib.PortActive)
	x, y := over(t, a, b, nsA.Addr4, nsB.Addr4)
	if err := write(t, x, y); err != nil {
		t.Error(err)
	}
}

// TestAFXDPRefused: who asks for it by name is told what is missing.
func TestAFXDPRefused(t *testing.T) {
	addr := linktest.Loopback()
	_, err := Open(Options{Link: "afxdp", Addrs: []netip.Addr{addr}})
	if os.Geteuid() != 0 {
		var missing *CapabilityError
		if !errors.As(err, &missing) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "CAP_BPF") {
			t.Errorf("as an ordinary user: error %v, want a *CapabilityError that names CAP_BPF", err)
		}
		return
	}
	var refused *afxdp.Error
	if !errors.As(err, &refused) || !errors.Is(err, errors.ErrUnsupported) ||
		!strings.Contains(err.Error(), "use link udp") {
		t.Errorf("on loopback: error %v, want an *afxdp.Error that says what to use", err)
	}
}

// TestChoiceOnDevice: "auto" goes on where the interface cannot, and says why.
func TestChoiceOnDevice(t *testing.T) {
	defer func(d []linkKind) { linkKinds = d }(linkKinds)
	cannot := &afxdp.Error{NetIf: "eth7", Op: "attach the XDP program", Err: unix.EOPNOTSUPP}
	linkKinds = []linkKind{fake("first", "CAP_FIRST", cannot), fake("second", "", nil)}
	l, err := openOne("auto", nil)
	if err != nil {
		t.Fatal(err)
	}
	if note := l.Caps().Note; note != "eth7: attach the XDP program: operation not supported, so second: a fake" {
		t.Errorf("note %q, want %q", note, "eth7: attach the XDP program: operation not supported, so second: a fake")
	}
	if _, err := openOne("first", nil); !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrCapability) {
		t.Errorf("asked for by name: error %v, want %v and not %v", err, errors.ErrUnsupported, ErrCapability)
	}
}
