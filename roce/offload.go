package roce

// Offload says whether frames leave in runs that the kernel or the NIC takes
// apart and numbers.
type Offload uint8

// States of Device.Offload.
const (
	OffloadNone Offload = iota // packets leave as the link makes them
	OffloadOn
	OffloadOff // given up: the NIC numbers segments in a way that peers refuse
)

func (o Offload) String() string {
	switch o {
	case OffloadOn:
		return "on"
	case OffloadOff:
		return "off: the NIC's segments do not arrive"
	}
	return "none"
}

// Offload tells how the device's segmentation offload does. It goes from on to
// off at most once.
func (d *Device) Offload() Offload {
	switch {
	case !d.caps.Segments:
		return OffloadNone
	case d.engine.OffloadOff():
		return OffloadOff
	}
	return OffloadOn
}
