package roce

import "github.com/goroce/goroce/ib"

// Offload says whether frames leave in runs that the kernel or the NIC takes
// apart and numbers.
type Offload uint8

// States of Device.Offload.
const (
	OffloadNone Offload = iota // packets leave as the link makes them
	OffloadOn
	OffloadOff // not to some destinations: see Device.OffloadOff
)

func (o Offload) String() string {
	switch o {
	case OffloadOn:
		return "on"
	case OffloadOff:
		return "off to some destinations: segments do not arrive there"
	}
	return "none"
}

// Offload tells how the device's segmentation offload does.
func (d *Device) Offload() Offload {
	switch {
	case !d.caps.Segments:
		return OffloadNone
	case len(d.OffloadOff()) > 0:
		return OffloadOff
	}
	return OffloadOn
}

// OffloadOff returns the destinations to which frames do not leave in runs for now: time
// after time runs did not arrive there while single frames did. A NIC that numbers
// segments in its own way does that, to all destinations, and so does a peer that lies,
// to itself. Each is tried again after ten minutes.
func (d *Device) OffloadOff() []ib.GID { return d.engine.OffloadOff() }
