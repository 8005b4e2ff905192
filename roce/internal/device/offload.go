package device

import "github.com/goroce/goroce/ib"

// Offload says whether the device uses segmentation offload: frames are sent in runs that
// the kernel or the NIC splits and numbers.
type Offload uint8

// States of Device.Offload.
const (
	OffloadNone Offload = iota // the link has no segmentation offload
	OffloadOn
	OffloadOff // given up for some destinations: see Device.OffloadOff
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

// Offload returns the state of the device's segmentation offload.
func (d *Device) Offload() Offload {
	switch {
	case !d.caps.Segments:
		return OffloadNone
	case len(d.OffloadOff()) > 0:
		return OffloadOff
	}
	return OffloadOn
}

// OffloadOff is that of roce.Device.
func (d *Device) OffloadOff() []ib.GID { return d.engine.OffloadOff() }
