package wire

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
)

// benchOuter returns IPv4 or IPv6 headers.
func benchOuter(v6 bool) Outer {
	o := Outer{SrcPort: 0xF806, DstPort: Port, HopLimit: 64, ID: 7}
	o.Src, o.Dst = mapped([4]byte{10, 0, 0, 1}), mapped([4]byte{10, 0, 0, 2})
	if v6 {
		o.Src, o.Dst = ib.GID{0xFD, 15: 1}, ib.GID{0xFD, 15: 2}
	}
	return o
}

// benchFrame returns a SEND frame of about size bytes with room for the ICRC.
func benchFrame(size int) []byte {
	p := Packet{BTH: BTH{Opcode: RCSendMiddle, PKey: ib.DefaultPKey, DestQP: 17, PSN: 99}}
	b := p.AppendHeaders(nil)
	return append(b, make([]byte, size-len(b))...)
}

// benchSizes are lengths from BTH to ICRC: an ACK, a short message, and full packets of MTU 1024 and 4096.
var benchSizes = []int{20, 64, 1024 + 16, 4096 + 16}

func BenchmarkDecode(b *testing.B) {
	for _, op := range []Opcode{RCAck, RCSendMiddle, RCWriteOnly, RCCompareSwap, UDSendOnly} {
		b.Run(op.String(), func(b *testing.B) {
			p := Packet{BTH: BTH{Opcode: op}}
			frame := p.AppendHeaders(nil)
			for b.Loop() {
				if err := p.Decode(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutHeaders(b *testing.B) {
	for _, op := range []Opcode{RCAck, RCSendMiddle, RCWriteOnly, RCCompareSwap, UDSendOnly} {
		b.Run(op.String(), func(b *testing.B) {
			p := Packet{BTH: BTH{Opcode: op}}
			var buf [MaxHeaderLen]byte
			for b.Loop() {
				p.PutHeaders(buf[:])
			}
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("v6=%v/%d", v6, size), func(b *testing.B) {
				o, frame := benchOuter(v6), benchFrame(size)
				b.SetBytes(int64(size))
				for b.Loop() {
					o.Seal(frame)
				}
			})
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o, frame := benchOuter(false), benchFrame(size)
			o.Seal(frame)
			b.SetBytes(int64(size))
			for b.Loop() {
				if !o.Check(frame) {
					b.Fatal("bad ICRC")
				}
			}
		})
	}
}

func BenchmarkSolveID(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o, frame := benchOuter(false), benchFrame(size)
			o.Seal(frame)
			o.ID = 0x1234
			for b.Loop() {
				if id, ok := o.SolveID(frame); !ok || id != 7 {
					b.Fatal(id, ok)
				}
			}
		})
	}
}

func BenchmarkReseal(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			frame := benchFrame(size)
			for b.Loop() {
				Reseal(frame, 7, 8)
			}
		})
	}
}

// BenchmarkRun seals and checks runs of frames.
func BenchmarkRun(b *testing.B) {
	const frames = 64
	for _, size := range []int{20, 40, 1024 + 16} {
		o, buf := benchOuter(false), []byte(nil)
		for range frames {
			buf = append(buf, benchFrame(size)...)
		}
		prefix := o.Prefix(size)
		b.Run(fmt.Sprintf("seal/%d", size), func(b *testing.B) {
			for b.Loop() {
				prefix.SealRun(0, 1, buf, size)
			}
		})
		b.Run(fmt.Sprintf("check/%d", size), func(b *testing.B) {
			prefix.SealRun(0, 1, buf, size)
			for b.Loop() {
				if prefix.CheckRun(0, buf, size) != frames {
					b.Fatal("bad ICRC")
				}
			}
		})
	}
}
