package pathmtu

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
)

// TestCheck: an option that does not suit is refused with what is allowed.
func TestCheck(t *testing.T) {
	l := mem.NewNetwork().Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))}, mem.Options{})
	dev, err := roce.Open(l, roce.Options{ActiveMTU: ib.MTU1024, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for mtu, want := range map[ib.MTU]string{
		0: "", 256: "", 1024: "",
		1500: "rping: MTU is 1500: invalid argument; allowed: 256, 512, 1024, 2048, 4096",
		2048: "rping: MTU is 2048: invalid argument; allowed: at most 1024, which is what the packets of ",
	} {
		err := Check("rping", dev, mtu)
		if (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%d: %v, want %q", mtu, err, want)
		}
	}
}
