package pingpong

import (
	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
)

// memory is what is sent and where messages arrive. By default it is one piece, as
// in the C tool, so that the server returns what it got. If data are checked, what
// arrives must not already stand there: then the message that is sent lies behind
// the areas in which messages arrive.
type memory struct {
	buf      []byte
	send     int // offset of the message that is sent
	headroom int // bytes of an area before the message
	stride   int // bytes of an area
	areas    int
}

// areas is how many messages need memory of their own when they arrive. A queue
// pair's next message comes when the last one was looked at and answered. Queue
// pairs that share their receives know nothing of one another.
func (o *Options) areas() int {
	if o.Check && o.Service.traits().shared {
		return o.RxDepth
	}
	return 1
}

func newMemory(dev ib.Device, o *Options) *memory {
	t := o.Service.traits()
	m := &memory{send: t.headroom, headroom: t.headroom, stride: t.headroom + o.Size, areas: o.areas()}
	if o.Check {
		m.send = m.areas * m.stride
	}
	m.buf = device.Memory(dev, m.send+o.Size)
	wipe(m.buf)
	fillPattern(m.buf[m.send:], t.fill, o.Check)
	return m
}

// offset is where a receive places its message.
func (m *memory) offset(slot int) int { return slot % m.areas * m.stride }

// area is what a receive fills: headroom, then the message.
func (m *memory) area(slot int) (headroom, message []byte) {
	a := m.buf[m.offset(slot):][:m.stride]
	return a[:m.headroom], a[m.headroom:]
}

// wipe makes sure that the next message has to arrive to be right.
func wipe(b []byte) {
	for i := range b {
		b[i] = wipedByte
	}
}
