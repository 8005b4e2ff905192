package engine

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// newPeers returns the table of a device, and a function that hands it a hello.
func newPeers() (*peerTable, func(now ib.Instant, from ib.GID, h wire.Hello)) {
	t := &peerTable{}
	t.init(rand.New(rand.NewPCG(1, 2)))
	return t, func(now ib.Instant, from ib.GID, h wire.Hello) {
		var mad [wire.MADLen]byte
		h.Put(&mad)
		t.receive(now, &link.Run{Src: from, Dst: hostOf(0)}, mad[:])
	}
}

func hostOf(i int) ib.GID {
	return ib.GIDFromAddr(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
}

// sent returns what the table sends at a time.
func (t *peerTable) sent(now ib.Instant) (list []wire.Hello) {
	var to link.Run
	var mad [wire.MADLen]byte
	for ib.Instant(t.due.Load()) <= now {
		if t.next(now, &to, &mad) {
			var h wire.Hello
			h.Decode(&mad)
			list = append(list, h)
		}
	}
	return list
}

// TestPeers: a destination is asked three times, then not for a minute. One that answers or asks has announced itself.
// An answer to nothing, and one that says no, announce nobody.
func TestPeers(t *testing.T) {
	peers, receive := newPeers()
	dst := hostOf(1)
	path := &link.Run{Src: hostOf(0), Dst: dst}
	if !peers.ask(0, path) || peers.ask(0, path) {
		t.Fatal("got no question for the first loss, or a second one")
	}
	var asked []wire.Hello
	for now := ib.Instant(0); now < strictFor; now += helloWait / 2 {
		asked = append(asked, peers.sent(now)...)
	}
	if len(asked) != helloTries || ib.Instant(peers.due.Load()) != driver.Never {
		t.Fatalf("got %d hellos in a minute, want %d", len(asked), helloTries)
	}
	receive(1, dst, wire.Hello{Answer: true, TID: asked[0].TID + 1, Version: 1})
	receive(1, dst, wire.Hello{Answer: true, TID: asked[0].TID, Status: 0x0C})
	if peers.announced(dst) {
		t.Error("announced by an answer to nothing, or by a no")
	}
	if !peers.ask(strictFor+1, path) {
		t.Error("got no question after a minute")
	}
	receive(strictFor+2, dst, wire.Hello{Answer: true, TID: peers.sent(strictFor + 1)[0].TID, Version: 1})
	if !peers.announced(dst) || len(peers.sent(2*strictFor)) != 0 {
		t.Error("not announced by its answer, or asked again")
	}
	peers.refuted(2*strictFor, dst)
	if peers.announced(dst) || peers.ask(2*strictFor, path) {
		t.Error("still announced after it did not what it said, or asked again at once")
	}
	if receive(2*strictFor, dst, wire.Hello{TID: 1, Version: 1}); peers.announced(dst) {
		t.Error("announced again by a hello at once, want not for a minute")
	}
	receive(2*strictFor, hostOf(2), wire.Hello{TID: 7, Version: 1})
	if answers := peers.sent(2 * strictFor); len(answers) != 1 || !answers[0].Answer || answers[0].TID != 7 {
		t.Errorf("got %+v for a hello, want an answer", answers)
	}
	if !peers.announced(hostOf(2)) {
		t.Error("not announced by its own hello")
	}
}

// TestPeersBounds: whatever comes from however many addresses, the table and the answers that wait are bounded, and
// there is room again when what is known has become old.
func TestPeersBounds(t *testing.T) {
	peers, receive := newPeers()
	for i := range 10 * peersMost {
		receive(0, hostOf(i), wire.Hello{TID: uint64(i), Version: 1})
	}
	if len(peers.known) > peersMost || len(peers.replies) > repliesMost {
		t.Fatalf("got %d destinations and %d answers, want %d and %d at most", len(peers.known), len(peers.replies),
			peersMost, repliesMost)
	}
	peers.sent(0)
	for i := range 2 * peersMost {
		receive(ib.Instant(i), hostOf(i), wire.Hello{TID: uint64(i), Version: 1})
		peers.sent(ib.Instant(i))
	}
	path := &link.Run{Src: hostOf(0), Dst: hostOf(5 * peersMost)}
	if len(peers.known) != peersMost || peers.ask(1, path) {
		t.Fatalf("got %d destinations and one more asked, want %d", len(peers.known), peersMost)
	}
	if !peers.ask(2*announcedFor, path) {
		t.Error("got no room after ten minutes")
	}
}
