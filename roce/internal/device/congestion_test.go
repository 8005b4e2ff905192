package device_test

import (
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestCongestionOption: data move with each congestion control, and a name that there is not is refused.
func TestCongestionOption(t *testing.T) {
	for _, name := range []string{"", "cubic", "dcqcn", "reno"} {
		w := &world{t: t, timeout: liveTimeout}
		network := mem.NewNetwork()
		open := func(gid ib.GID) (*device.Device, error) {
			l := wrap.Seal(network.Open([]ib.GID{gid}, mem.Options{}))
			return device.Open(l, device.Options{Congestion: name})
		}
		a, err := open(gidA)
		if name == "reno" {
			if !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("%q: got %v, want %v", name, err, ib.ErrInvalid)
			}
			continue
		}
		must(t, err)
		b, err := open(gidB)
		must(t, err)
		w.a, w.b = newHost(t, a, 1<<20), newHost(t, b, 1<<20)
		w.connect(ib.MTU1024, nil)
		for i := range 20 {
			w.send(w.a, ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: w.a.sge(0, 1<<20), RemoteAddr: w.b.mr.Addr(),
				RKey: w.b.mr.RKey()})
			if wc := w.wait(w.a); wc.Err() != nil {
				t.Fatalf("%q: %v", name, wc.Err())
			}
		}
	}
}
