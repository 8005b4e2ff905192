package device_test

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// filtered is a link that loses the packets that do not pass. Frames go in runs of their own.
type filtered struct {
	link.Link
	passes func(*wire.Packet) bool
}

func (f *filtered) Send(now ib.Instant, runs []link.Run) (int, error) {
	var pass []link.Run
	for i := range runs {
		for j := range runs[i].Frames() {
			one := runs[i]
			one.Buf = one.Frame(j)
			one.Size, one.ID = len(one.Buf), one.ID+uint16(j)
			var p wire.Packet
			if p.Decode(one.Buf[:len(one.Buf)-wire.ICRCLen]) == nil && !f.passes(&p) {
				continue
			}
			pass = append(pass, one)
		}
	}
	if n, err := f.Link.Send(now, pass); err != nil || n < len(pass) {
		return 0, fmt.Errorf("sent %d of %d: %w", n, len(pass), err)
	}
	return len(runs), nil
}
