package devinfo

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/goroce/goroce/roce/host"
)

// Found is a device that could be opened.
type Found struct {
	Name      string       `json:"hca_id"`
	Addresses []netip.Addr `json:"addresses,omitempty"` // of software devices
	Default   bool         `json:"default,omitempty"`   // opened by default
}

// Software returns the software devices: one for each network interface that is up.
func Software(list []host.Interface) (found []Found) {
	for i := range list {
		if list[i].Up {
			found = append(found, Found{list[i].Device(), list[i].Addrs, list[i].Default})
		}
	}
	return found
}

// Named returns devices of which only the names are known.
func Named(names []string) (found []Found) {
	for _, name := range names {
		found = append(found, Found{Name: name})
	}
	return found
}

// List prints the devices as `ibv_devinfo -l` does, with additional information.
func List(w io.Writer, list []Found) error {
	plural := "s"
	if len(list) == 1 {
		plural = ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d HCA%s found:\n", len(list), plural)
	for _, f := range list {
		b.WriteString("\t" + f.Name)
		if f.Addresses != nil {
			fmt.Fprintf(&b, "\t%v", f.Addresses)
		}
		if f.Default {
			b.WriteString(" default")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}
