package wrap

import (
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Event is a frame that passed a Trace.
type Event struct {
	Now ib.Instant // the engine's clock when its turn began
	// At is when the call of Send began, or that of Recv returned. On one machine it tells cause from effect: a frame
	// has an earlier At where it is sent than where it arrives. Now does not: a turn may begin before the frame is
	// sent that it receives.
	At     time.Time
	Sent   bool // false: received
	Outer  wire.Outer
	Frame  []byte      // from BTH to ICRC; valid during the call only
	Packet wire.Packet // the decoded Frame; Payload is a part of Frame
	Err    error       // why Frame could not be decoded; then Packet is undefined
}

// Trace returns a Link that calls f for each frame that is sent or received, in order. The Event is reused, so f must
// not keep it. If the Link below does not know the IPv4 identification of a received frame, it is solved from the ICRC.
func Trace(l link.Link, f func(*Event)) link.Link {
	return &tracer{Link: l, caps: l.Caps(), f: f}
}

type tracer struct {
	link.Link
	caps link.Caps
	f    func(*Event)
	ev   Event
}

func (t *tracer) Send(now ib.Instant, out []link.Run) (int, error) {
	t.ev.Now, t.ev.At, t.ev.Sent = now, time.Now(), true
	n, err := t.Link.Send(now, out)
	for i := range out[:n] {
		r := &out[i]
		t.ev.Outer = outerSent(r, &t.caps)
		for f := range r.Frames() {
			t.ev.Outer.ID = sentID(r, t.caps.ID, f)
			t.call(r.Frame(f))
		}
	}
	return n, err
}

func (t *tracer) Recv(now ib.Instant, in []link.Run) (int, error) {
	n, err := t.Link.Recv(now, in)
	t.ev.Now, t.ev.At, t.ev.Sent = now, time.Now(), false
	for i := range in[:n] {
		r := &in[i]
		t.ev.Outer = outerOf(r)
		for f := range r.Frames() {
			t.ev.Outer.ID = receivedID(r, f)
			t.call(r.Frame(f))
		}
	}
	return n, err
}

func (t *tracer) call(frame []byte) {
	t.ev.Frame = frame
	t.ev.Err = t.ev.Packet.Decode(frame[:max(len(frame)-wire.ICRCLen, 0)])
	t.f(&t.ev)
}
