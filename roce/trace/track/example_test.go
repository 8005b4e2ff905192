package track_test

import (
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/roce/trace/track"
	"github.com/goroce/goroce/wire"
)

// The packets of a WRITE, as they pass the network card of the client. The tracker finds out that one has not arrived.
func Example() {
	client := ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
	server := ib.GIDFromAddr(netip.MustParseAddr("192.0.2.2"))
	request := func(op wire.Opcode, psn ib.PSN, bytes int) wire.Packet {
		return wire.Packet{BTH: wire.BTH{Opcode: op, DestQP: 0x22, PSN: psn}, RETH: wire.RETH{Len: 2560},
			Payload: make([]byte, bytes)}
	}
	response := func(psn, msn ib.PSN, s wire.Syndrome) wire.Packet {
		return wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, DestQP: 0x11, PSN: psn},
			AETH: wire.AETH{Syndrome: s, MSN: msn}}
	}
	packets := []wire.Packet{
		request(wire.RCWriteFirst, 7, 1024),
		request(wire.RCWriteMiddle, 8, 1024),
		request(wire.RCWriteLast, 9, 512),
		response(8, 0, wire.NAKSequence),
		request(wire.RCWriteMiddle, 8, 1024),
		request(wire.RCWriteLast, 9, 512),
		response(9, 1, wire.AckNoCredits),
	}

	var tracker track.Tracker
	ladder := trace.Ladder{Left: "client", Right: "server"}
	for i := range packets {
		p, at := &packets[i], ib.Instant(i)*2000 // a packet every 2 us
		outer := wire.Outer{Src: client, Dst: server}
		if p.DestQP == 0x11 {
			outer.Src, outer.Dst = server, client
		}
		effect := tracker.Add(i+1, at, &outer, p)
		fmt.Printf("#%d %v\n", i+1, &effect)
		ladder.Packet(at, outer.Src == client, fmt.Sprintf("%s #%d", trace.ShortLabel(p), i+1)).Note = effect.Note()
		if effect.Lost > 0 {
			lost := &ladder.Events[effect.Lost-1]
			lost.Lost, lost.Problem = true, true
		}
	}
	fmt.Printf("\n%s", ladder.Text(trace.TextOptions{Width: 92, ASCII: true}))
	// Output:
	// #1 WRITE 1, bytes 0..1023 of 2560
	// #2 WRITE 1, bytes 1024..2047 of 2560
	// #3 WRITE 1, bytes 2048..2559 of 2560
	// #4 NAK: expected #2, want it again; acknowledges #1; so #2 was lost after its capture
	// #5 AGAIN: #2, after NAK #4; WRITE 1, bytes 1024..2047 of 2560
	// #6 AGAIN: #3, going back with #5; WRITE 1, bytes 2048..2559 of 2560
	// #7 acknowledges #5..#6, completes WRITE 1
	//
	//      time  client                                    server
	//         0  |-- WRITE First psn=7 len=2560 (1024 B) #1 --->|
	// ! 2.00 us  |- WRITE Middle psn=8 (1024 B) #2 --X          |
	//   4.00 us  |-------- WRITE Last psn=9 (512 B) #3 -------->|
	//   6.00 us  |<--- NAK PSN sequence error psn=8 msn=0 #4 ---|
	//   8.00 us  |------ WRITE Middle psn=8 (1024 B) #5 ------->|  again: after NAK #4
	//   10.0 us  |-------- WRITE Last psn=9 (512 B) #6 -------->|  again
	//   12.0 us  |<------------ ACK psn=9 msn=1 #7 -------------|  completes WRITE 1
}
