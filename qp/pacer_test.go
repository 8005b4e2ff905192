package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestPacer spaces packets to the rate, without saving up idle time.
func TestPacer(t *testing.T) {
	var p pacer
	p.sent(0, 1<<20)
	if p.ready() != 0 {
		t.Error("the zero pacer paces")
	}
	for _, c := range []struct {
		kbps uint32
		ns   ib.Instant // for 1,024 bytes
	}{
		{8, 1_024_000_000}, {8_000, 1_024_000}, {1_000_000, 8192}, {100_000_000, 81},
	} {
		p = pacer{}
		p.setRate(c.kbps)
		p.sent(1000, 1024)
		if got := p.ready() - 1000; got != c.ns {
			t.Errorf("%d kb/s: 1,024 bytes take %d ns, want %d", c.kbps, got, c.ns)
		}
		p.sent(1000, 512)
		if got := p.ready() - 1000; got != c.ns+c.ns/2 {
			t.Errorf("%d kb/s: 1,536 bytes take %d ns, want %d", c.kbps, got, c.ns+c.ns/2)
		}
		late := p.ready() + 1_000_000
		p.sent(late, 1024)
		if got := p.ready() - late; got != c.ns {
			t.Errorf("%d kb/s: after idle time 1,024 bytes take %d ns, want %d", c.kbps, got, c.ns)
		}
	}
	p.setRate(0)
	if p.ready() != 0 {
		t.Error("no limit, but it paces")
	}
}

// TestPacedTrains: a train leaves when the budget of the whole train before it is there, and has no more bytes than a
// burst. Without a burst each packet leaves by itself.
func TestPacedTrains(t *testing.T) {
	const (
		kbps    = 8_000_000 // a byte takes 1 ns
		packets = 16        // and one more: the last of a message is in no train
		each    = 1024 + packetOverhead
	)
	for _, c := range []struct {
		name  string
		burst int
		train int // packets that leave together
	}{
		{"no burst", 0, 1},
		{"less than a packet", each - 1, 1},
		{"not quite two packets", 2*each - 1, 1},
		{"four packets", 4 * each, 4},
	} {
		h, _ := connected(t)
		h.q.cfg.Trains = true
		h.q.pace.setRate(kbps)
		h.q.pace.burst = c.burst
		h.post(&ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{h.sge(0, (packets+1)*1024)}, RemoteAddr: memAddr, RKey: 1})
		var out [packets]TxPacket
		budget := ib.Instant(c.train * each)
		for now, sent := ib.Instant(0), 0; ; now += budget {
			if n := h.q.NextPackets(now, out[:]); n != 1 || out[0].Train != c.train-1 ||
				out[0].Opcode != wire.RCWriteOnly {
				t.Fatalf("%s, at %d ns: got %d trains, the first a %v with %d packets behind it, want 1 of %d WRITEs",
					c.name, now, n, out[0].Opcode, out[0].Train, c.train)
			}
			if sent += c.train; sent == packets {
				break
			}
			if at := h.q.Deadline(); at != now+budget {
				t.Fatalf("%s: after %d packets: got a deadline at %d ns, want %d", c.name, sent, at, now+budget)
			}
			if n := h.q.NextPackets(now+budget-1, out[:]); n != 0 {
				t.Fatalf("%s, at %d ns: got %d trains, want none before %d ns", c.name, now+budget-1, n, now+budget)
			}
			h.q.HandleTimeout(now + budget)
		}
	}
}
