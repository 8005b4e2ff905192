//go:build linux

package dropin

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
)

// TestRunGID: perftest, which asks for an index of the GID table, gets that of an address: one behind -x, or that of
// the variable. The device has two addresses, and by itself perftest takes row 0.
func TestRunGID(t *testing.T) {
	installed(t, "ib_write_bw")
	besides(t)
	first, second := linktest.Loopback(), linktest.Loopback()
	u := newUser(t, "GOROCED_DEVICE_ADDRESSES="+first.String()+","+second.String())
	play := func(what string, variable []string, option ...string) {
		v := user{u.host, append(slices.Clip(u.env), variable...)}
		port := linktest.Port(t)
		args := append([]string{"run", "--", "ib_write_bw", "-n", "10", "-p", strconv.Itoa(port)}, option...)
		server := v.do(t, args...)
		server.listens(t, port)
		client := v.do(t, append(args, first.String())...)
		for _, p := range []*process{server, client} {
			out, _ := p.wait(t) // its server in 4.5 ends with 1 if the client leaves first
			for _, want := range []string{" GID index       : 1", "GID: " + decimal(second), "\n 65536 "} {
				if !strings.Contains(out, want) {
					t.Errorf("%s: got\n%s\nwant %q", what, out, want)
				}
			}
		}
	}
	play("-x", nil, "-x", second.String())
	play("variable", []string{"GOROCE_GID=" + second.String()})
}

// decimal returns the GID of an address as perftest prints it.
func decimal(a netip.Addr) string {
	var words []string
	for _, b := range a.As16() {
		words = append(words, fmt.Sprintf("%02d", b))
	}
	return strings.Join(words, ":")
}
