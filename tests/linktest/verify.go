package linktest

import (
	"testing"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
	"github.com/goroce/goroce/wire/layers"
)

// Verify returns a Link around l that decodes every frame, sent or received, with package wire and independently with
// gopacket. It fails the test if the results differ or the ICRC is wrong. Frames must be sealed above it.
func Verify(t testing.TB, l link.Link) link.Link {
	var f wire.Frame
	var buf []byte
	return wrap.Trace(l, func(e *wrap.Event) {
		f.Outer = e.Outer
		buf = append(f.AppendHeaders(buf[:0], len(e.Frame)), e.Frame...)
		if err := layers.Verify(buf); err != nil {
			t.Errorf("a frame (sent: %v): %v\n% x", e.Sent, err, buf[:min(len(buf), 100)])
		}
	})
}
