package trace_test

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/wire"
)

// A WRITE of three packets loses one, and the responder asks for it again.
func Example() {
	const microsecond ib.Instant = 1000
	packet := func(op wire.Opcode, psn ib.PSN, bytes int) *wire.Packet {
		return &wire.Packet{BTH: wire.BTH{Opcode: op, PSN: psn}, RETH: wire.RETH{Len: 2560},
			Payload: make([]byte, bytes)}
	}
	first := packet(wire.RCWriteFirst, 7, 1024)
	middle := packet(wire.RCWriteMiddle, 8, 1024)
	last := packet(wire.RCWriteLast, 9, 512)
	last.AckReq = true
	nak := packet(wire.RCAck, 8, 0)
	nak.AETH.Syndrome = wire.NAKSequence
	ack := packet(wire.RCAck, 9, 0)
	ack.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: 1}

	l := trace.Ladder{Left: "client", Right: "server"}
	l.Local(0, true, "post WRITE 2560 B")
	l.Packet(0, true, trace.ShortLabel(first))
	e := l.Packet(1*microsecond, true, trace.ShortLabel(middle))
	e.Lost, e.Note, e.Problem = true, "a switch is full", true
	l.Packet(2*microsecond, true, trace.ShortLabel(last))
	l.Packet(9*microsecond, false, trace.ShortLabel(nak))
	l.Note("go back to psn 8")
	l.Packet(11*microsecond, true, trace.ShortLabel(middle)).Note = "again"
	l.Packet(12*microsecond, true, trace.ShortLabel(last)).Note = "again"
	l.Packet(20*microsecond, false, trace.ShortLabel(ack))
	l.Local(21*microsecond, true, "completion: WRITE success")
	fmt.Print(l.Text(trace.TextOptions{Width: 90}))
	// Output:
	//      time  client                                 server
	//         0  ●  post WRITE 2560 B                        │
	//            ├── WRITE First psn=7 len=2560 (1024 B) ───►│
	// ! 1.00 us  ├─ WRITE Middle psn=8 (1024 B) ──X          │  a switch is full
	//   2.00 us  ├──── WRITE Last psn=9 AckReq (512 B) ─────►│
	//   9.00 us  │◄─── NAK PSN sequence error psn=8 msn=0 ───┤
	//            │┄┄┄┄┄┄┄┄┄┄┄┄ go back to psn 8 ┄┄┄┄┄┄┄┄┄┄┄┄┄│
	//   11.0 us  ├────── WRITE Middle psn=8 (1024 B) ───────►│  again
	//   12.0 us  ├──── WRITE Last psn=9 AckReq (512 B) ─────►│  again
	//   20.0 us  │◄──────────── ACK psn=9 msn=1 ─────────────┤
	//   21.0 us  ●  completion: WRITE success                │
}
