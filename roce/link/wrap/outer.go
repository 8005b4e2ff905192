package wrap

import (
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// outerOf returns the IP and UDP headers of r's first frame.
func outerOf(r *link.Run) wire.Outer {
	return wire.Outer{
		Src: r.Src, Dst: r.Dst,
		SrcPort: r.SrcPort, DstPort: link.Port,
		TrafficClass: r.TrafficClass, HopLimit: r.HopLimit, FlowLabel: r.FlowLabel,
		ID: r.ID,
	}
}

// outerSent returns the IP and UDP headers of r when a link with these capabilities sends it, which may use a source
// port of its own.
func outerSent(r *link.Run, c *link.Caps) wire.Outer {
	o := outerOf(r)
	if c.FixedSrcPort != 0 {
		o.SrcPort = c.FixedSrcPort
	}
	return o
}

// sentID returns the identification of frame i of r when it is sent.
func sentID(r *link.Run, rule link.IDRule, i int) uint16 {
	switch rule {
	case link.IDIndex:
		return uint16(i)
	case link.IDFree:
		return r.ID + uint16(i)
	}
	return 0
}

// receivedID returns the identification of frame i of a received run: the one with which its ICRC is correct, if there
// is one. It is not known otherwise for the later frames of a run, and for all frames from a plain UDP socket.
func receivedID(r *link.Run, i int) uint16 {
	o := outerOf(r)
	if !r.Src.Is4() {
		return 0
	}
	frame := r.Frame(i)
	guess := o.ID + uint16(i)
	for _, id := range [...]uint16{guess, o.ID, 0} {
		o.ID = id
		if o.Check(frame) {
			return id
		}
	}
	if id, ok := o.SolveID(frame); ok && !r.KnownID {
		return id
	}
	return guess
}
