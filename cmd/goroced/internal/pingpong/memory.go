package pingpong

import "github.com/goroce/goroce/ib"

// memory has the message to send and room for received ones. By default these are the same memory, as in the C tool, so
// the server returns what it has received. If data are checked, a received message must not be in memory already: then
// the message to send is behind the areas for received ones.
type memory struct {
	buf      []byte
	send     int // offset of the message to send
	headroom int // bytes before the message in an area
	stride   int // size of an area
	areas    int
}

// areas returns how many messages need memory of their own when they are received. The next message of a queue pair
// comes after the last one has been checked and answered, but queue pairs that share receives are independent of one
// another.
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
	m.buf = ib.Alloc(dev, m.send+o.Size)
	wipe(m.buf)
	fillPattern(m.buf[m.send:], t.fill, o.Check)
	return m
}

// offset returns where a receive places its message.
func (m *memory) offset(slot int) int { return slot % m.areas * m.stride }

// area returns the memory of a receive: headroom, then the message.
func (m *memory) area(slot int) (headroom, message []byte) {
	a := m.buf[m.offset(slot):][:m.stride]
	return a[:m.headroom], a[m.headroom:]
}

// wipe overwrites b, so that the next message is right only if it arrives.
func wipe(b []byte) {
	for i := range b {
		b[i] = wipedByte
	}
}
