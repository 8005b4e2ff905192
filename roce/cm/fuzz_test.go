package cm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// FuzzHandle passes arbitrary datagrams, and messages of a peer that contain bytes of the input, to connections in all
// states. Nothing may panic, and memory must stay bounded.
func FuzzHandle(f *testing.F) {
	f.Add(uint64(1), []byte{0, 0, 0})
	f.Add(uint64(2), slices.Repeat([]byte{1, 200, 7, 3, 17, 0x15}, 20))
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		rng := rand.New(rand.NewPCG(seed, 5))
		for _, st := range labs {
			l := newLab(t, st.reach)
			l.m.opts.MaxHalfOpen, l.m.opts.MaxHalfOpenSource, l.m.opts.MaxTimewait = 8, 4, 4
			l.m.opts.MaxConns = 1 + 8 + 4
			if rng.IntN(2) == 0 {
				l.listen(false)
			}
			l.abuse(rng, script)
		}
	})
}

// abuse runs a script against a manager: three bytes determine each step.
func (l *lab) abuse(rng *rand.Rand, script []byte) {
	for len(script) >= 3 {
		op, at, value := script[0], script[1], script[2]
		script = script[3:]
		switch {
		case op < 180:
			l.message(messages[int(op)%len(messages)], func(mad []byte) []byte {
				mad[at] ^= value
				mad[rng.IntN(len(mad))] ^= uint8(rng.Uint32()) & -(value & 1)
				return mad
			})
		case op < 200: // bytes of the script, which are no message
			mad := slices.Repeat(script[:min(len(script), 40)], 7)
			l.m.Handle(l.now, labPath, mad[:min(len(mad), int(at)+1)])
		case op < 230:
			_ = l.input(inputs[int(op)%len(inputs)])
		default:
			l.now += ib.Instant(value) * 100 * millisecond
			l.m.Timeout(l.now)
		}
		l.takeOut()
	}
	l.now = l.now + 600*second
	for range 1000 {
		l.m.Timeout(l.now)
		l.takeOut()
	}
	for id := range l.m.conns {
		l.m.Release(l.now, id)
	}
	for range 100 {
		l.now += 10 * second
		l.m.Timeout(l.now)
		l.takeOut()
	}
	if s := l.m.leftover(); s != "" {
		l.t.Fatalf("the manager still holds %s, want nothing", s)
	}
}

// takeOut takes out messages and events and checks the limits.
func (l *lab) takeOut() {
	if n := l.m.messages.len(); n > 8 {
		l.t.Fatalf("%d messages after one input, want at most 8", n)
	}
	if n := len(l.m.conns); n > 1+8+4 || l.m.half.Len() > 8 || l.m.waiting.Len() > 4 || len(l.m.byRemote) > n ||
		len(l.m.byQP) > n || len(l.m.timers) > n {
		l.t.Fatalf("the manager holds too much: %s; want at most 13 connections, 8 half open, 4 waiting",
			l.m.leftover())
	}
	var m Message
	for l.m.NextMessage(&m) {
		if m.Path.Remote == (ib.GID{}) || len(m.MAD) != wire.MADLen {
			l.t.Fatalf("message to %+v of %d bytes, want a peer and %d", m.Path, len(m.MAD), wire.MADLen)
		}
	}
	var e Event
	for l.m.NextEvent(&e) {
		if e.Kind == Request {
			l.id = e.ID
		}
	}
}
