package device_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// meddler changes the datagrams for QP 1 that a host sends, before they are sealed.
type meddler struct {
	link.Link
	change []byte // the next one's byte change[0] is xored with change[1]
	past   [][]byte
	run    link.Run // the latest, for replays
	ids    [][]byte // communication IDs of the connection that it must not touch
}

const (
	madAt    = wire.BTHLen + 8           // behind the DETH
	idsAt    = madAt + wire.MADHeaderLen // local and remote communication ID of most messages
	idLen    = 4
	mostPast = 16
)

// overhears is the link of the attacked host. It tells the meddler what the host sends to itself.
type overhears struct {
	link.Link
	to *meddler
}

func (o *overhears) Send(now ib.Instant, out []link.Run) (int, error) {
	for _, r := range out {
		if r.Src == r.Dst && len(r.Buf) > idsAt+idLen && len(o.to.ids) < 2 {
			if id := slices.Clone(r.Buf[idsAt : idsAt+idLen]); !slices.ContainsFunc(o.to.ids, func(b []byte) bool {
				return bytes.Equal(b, id)
			}) {
				o.to.ids = append(o.to.ids, id)
			}
		}
	}
	return o.Link.Send(now, out)
}

func (m *meddler) Send(now ib.Instant, out []link.Run) (int, error) {
	for i := range out {
		r := &out[i]
		if len(r.Buf) != madAt+wire.MADLen+wire.ICRCLen {
			continue
		}
		if len(m.change) > 0 {
			r.Buf[madAt+int(m.change[0])] ^= m.change[1]
			m.change = nil
		}
		m.run = *r
		if m.past = append(m.past, slices.Clone(r.Buf)); len(m.past) > mostPast {
			m.past = m.past[1:]
		}
	}
	return m.Link.Send(now, out)
}

// around puts the meddler into the link of the attacking host.
func (m *meddler) around(l link.Link) link.Link {
	if l.Caps().Local[0] == gidB {
		m.Link = l
		return m
	}
	return &overhears{l, m}
}

// replay sends an earlier datagram again, after change has changed it.
func (m *meddler) replay(now ib.Instant, which byte, change func(b []byte)) {
	if len(m.past) == 0 {
		return
	}
	r := m.run
	r.Buf = slices.Clone(m.past[int(which)%len(m.past)])
	r.Size = len(r.Buf)
	change(r.Buf)
	_, _ = m.Link.Send(now, []link.Run{r})
}

// cmUser is an owner at the connection manager of the host that is attacked, or of the one that attacks.
type cmUser struct {
	*cmEnd
	listener ib.CMID
	param    ib.CMConnParam
	others   []ib.CMConnParam // for its attempts by turns; none if it makes none
	open     []ib.CMID        // of requests that it has read, and of its own attempts
	settled  ib.CMID          // its end of a connection that nobody else may touch
	most     int              // IDs that it may have; 0 for any number
}

// hear reads the events, and answers them as value says.
func (u *cmUser) hear(value byte) {
	u.w.t.Helper()
	u.w.settle()
	for range 100 {
		ev, err := u.ch.NextEvent(over)
		if errors.Is(err, context.Canceled) {
			return
		}
		must(u.w.t, err)
		switch {
		case u.settled != nil && ev.ID == u.settled:
			u.w.t.Fatalf("a connection between others got %v", ev.Type)
		case ev.Type == ib.CMConnectRequest:
			if ev.Listener != u.listener {
				u.w.t.Fatal("a request came to another's listener")
			}
			u.open = append(u.open, ev.ID)
			if value%3 == 0 {
				_ = ev.ID.Accept(u.param)
			} else if value%3 == 1 {
				_ = ev.ID.Reject(ib.CMReject{PrivateData: []byte{value}})
			}
		case !slices.Contains(u.open, ev.ID):
			u.w.t.Fatalf("%v came for an ID that is not of this channel", ev.Type)
		case ev.Type == ib.CMAddrResolved:
			_ = ev.ID.ResolveRoute(0)
		case ev.Type == ib.CMRouteResolved:
			if n := len(u.open); len(u.others) > 0 {
				u.param = u.others[n%len(u.others)]
			}
			_ = ev.ID.Connect(u.param)
		case ev.Type == ib.CMConnectResponse:
			_ = ev.ID.Establish()
		}
		if most := u.most; most > 0 && len(u.open)+2 > most { // the listener and the settled one
			u.w.t.Fatalf("%d IDs are open, want at most %d", len(u.open)+2, most)
		}
		u.w.settle()
	}
	u.w.t.Fatal("a hundred events, and no end")
}

// drop closes an ID.
func (u *cmUser) drop(which byte) {
	u.w.t.Helper()
	if len(u.open) > 0 {
		i := int(which) % len(u.open)
		must(u.w.t, u.open[i].Close())
		u.open = slices.Delete(u.open, i, i+1)
	}
}

// ask begins a connection to a port of the attacked host.
func (u *cmUser) ask(port uint16) {
	u.w.t.Helper()
	if len(u.open) == 8 {
		u.drop(0)
	}
	id := u.id()
	u.open = append(u.open, id)
	must(u.w.t, id.ResolveAddr(addrPortOf(u.h, 0), addrPortOf(u.w.a, port), 0))
	u.hear(2)
}

// FuzzCMRouting has a host whose messages of the connection manager are changed and replayed at will
// attack another one, on which two owners listen. Each event must come to the owner that it is for, within
// the limits of that owner; a connection between the two owners must notice nothing, and they must be able to
// make another one. Four bytes of the input are a step.
func FuzzCMRouting(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 7, 24, 1, 0, 4, 0, 0, 0, 8, 24, 1, 0, 8, 0, 0, 1, 2, 0, 0, 0, 5, 0, 9, 0, 6, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 5, 0, 200, 0, 3, 0, 0, 0})
	f.Add([]byte{7, 17, 3, 0, 0, 0, 0, 0, 8, 17, 5, 0, 8, 24, 255, 0, 8, 28, 255, 0, 3, 0, 1, 0, 2, 0, 0, 0})
	for kind := range byte(4) { // a DREQ, as if it were of the owners' connection, or a REJ
		from, to := kind%2, kind/2
		f.Add([]byte{0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 6, 0, 0, 0, 10, from, to, 0, 10, from, to, 1,
			10, from, to, 2, 3, 0, 0, 0, 4, 0, 0, 0})
	}
	f.Add(bytes.Repeat([]byte{0, 0, 0, 0, 3, 0, 2, 0}, 8))
	f.Add(bytes.Repeat([]byte{0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0}, 8))
	f.Fuzz(func(t *testing.T, script []byte) {
		m := &meddler{}
		w := newWorld(t, 1, 64, stack{above: m.around, below: same})
		v, u := w.owners()
		bad := &cmUser{cmEnd: w.newCM(w.b)}
		for range 4 { // two requests that name one QP are never both good
			bad.others = append(bad.others, bad.cmEnd.param())
		}
		for steps := 0; len(script) >= 4 && steps < 64; steps++ {
			act, at, value, which := script[0], script[1], script[2], script[3]
			script = script[4:]
			switch act % 11 {
			case 0:
				bad.ask(7471)
			case 1:
				bad.ask(7472)
			case 2:
				bad.hear(value)
			case 3:
				v.hear(value)
			case 4:
				u.hear(value)
			case 5:
				for range value % 32 {
					w.advance()
				}
			case 6:
				bad.drop(which)
			case 7:
				m.change = []byte{at, value}
			case 8:
				m.replay(w.now, which, func(b []byte) { b[madAt+int(at)] ^= value })
			case 9:
				v.drop(which)
			case 10: // as if it were of the connection between the owners
				m.replay(w.now, which, func(b []byte) {
					copy(b[idsAt:], m.ids[at%2])
					copy(b[idsAt+idLen:], m.ids[value%2])
				})
			}
			w.settle()
		}
		must(t, bad.ch.Close())
		for _, x := range []*cmUser{v, u} {
			for x.hear(2); len(x.open) > 0; x.hear(2) {
				x.drop(0)
			}
		}
		if n := w.a.dev.CMStats().Open; n > 1000 {
			t.Fatalf("%d connections are open, want at most 1,000", n)
		}
		w.between(u, v)
	})
}

// owners makes two owners on host a, with listeners on ports 7471 and 7472 and a connection to each other.
func (w *world) owners() (v, u *cmUser) {
	w.t.Helper()
	limits := device.CMLimits{IDs: 4, HalfOpen: 3, Backlog: 3}
	v, u = &cmUser{cmEnd: w.asTenant(w.a, limits, nil)}, &cmUser{cmEnd: w.asTenant(w.a, limits, nil)}
	for i, x := range []*cmUser{v, u} {
		x.listener, x.param, x.most = x.listen(uint16(7471+i), 0), x.cmEnd.param(), limits.IDs
	}
	u.settled, v.settled = w.between(u, v)
	for _, x := range []*cmUser{v, u} {
		x.param = x.cmEnd.param()
	}
	return v, u
}

// between makes a connection from one owner to another, and returns both ends.
func (w *world) between(from, to *cmUser) (active, passive ib.CMID) {
	w.t.Helper()
	attr, err := to.listener.Query()
	must(w.t, err)
	active = from.resolved(w.a, attr.Local.Port())
	must(w.t, active.Connect(from.param))
	passive = to.next(ib.CMConnectRequest).ID
	must(w.t, passive.Accept(to.param))
	from.next(ib.CMConnectResponse)
	must(w.t, active.Establish())
	to.next(ib.CMEstablished)
	return active, passive
}
