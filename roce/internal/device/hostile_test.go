package device_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// target is a device with a connected QP, whose peer the test simulates.
type target struct {
	*host
	peer  link.Link
	outer link.Run
	now   ib.Instant
	whole []byte // the registered memory and the bytes around it
}

// Registered memory is the middle of a larger buffer, so that the test detects a write
// outside it.
const (
	guard      = 4096
	registered = 8192
)

func newTarget(t testing.TB) *target {
	t.Helper()
	return newTargetWith(t, device.Options{})
}

func newTargetWith(t testing.TB, o device.Options) *target {
	t.Helper()
	network := mem.NewNetwork()
	o.Manual, o.Seed, o.AckDelay = true, 1, -1
	dev, err := device.Open(wrap.Seal(network.Open([]ib.GID{gidA}, mem.Options{})), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	h := newHost(t, dev, 0)
	v := &target{host: h, peer: network.Open([]ib.GID{gidB}, mem.Options{})}
	v.whole = make([]byte, guard+registered+guard)
	v.buf = v.whole[guard : guard+registered]
	h.mr,
		err = h.pd.RegMR(ib.MRInit{Buf: v.buf,
		Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	w.makeQP(h)
	w.bringUp(h, gidB, 0x1234, ib.MTU256, nil)
	v.outer = link.Run{Src: gidB, Dst: gidA, SrcPort: 0xC000, HopLimit: 64}
	for range 8 {
		w.recv(h, ib.RecvWR{SGL: h.sge(0, 1000)})
	}
	return v
}

// hit sends a frame with a correct ICRC, and lets the device answer.
func (v *target) hit(frame []byte) {
	o := wire.Outer{Src: v.outer.Src, Dst: v.outer.Dst, SrcPort: v.outer.SrcPort, DstPort: link.Port}
	o.Seal(frame)
	v.raw(frame)
}

// raw sends a frame as it is, and lets the device answer.
func (v *target) raw(frame []byte) {
	run := v.outer
	run.Buf, run.Size = frame, len(frame)
	v.peer.Send(v.now, []link.Run{run})
	v.step()
}

func (v *target) step() {
	for range 1000 {
		if !v.dev.Step(v.now) {
			break
		}
	}
	var in [64]link.Run
	for {
		if n, _ := v.peer.Recv(v.now, in[:]); n == 0 {
			return
		}
	}
}

// frame is a packet for the target's QP, with room for the ICRC.
func (v *target) frame(p *wire.Packet) []byte {
	p.DestQP, p.PKey = v.qp.Num(), ib.DefaultPKey
	p.PadCnt = uint8(-len(p.Payload) & 3)
	b := append(p.AppendHeaders(nil), p.Payload...)
	return append(b, make([]byte, int(p.PadCnt)+wire.ICRCLen)...)
}

// TestDropReasons sends one packet for each reason to drop it, and reads the
// counter.
func TestDropReasons(t *testing.T) {
	stranger := ib.GIDFromAddr(netip.MustParseAddr("192.0.2.66"))
	send := func() *wire.Packet {
		return &wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PSN: 0xFFFFF0}, Payload: []byte("hello")}
	}
	for _, c := range []struct {
		name   string
		attack func(v *target)
		count  func(s *device.Stats) uint64
	}{
		{"ACK without AETH", func(v *target) {
			v.hit([]byte{byte(wire.RCAck), 0, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		}, func(s *device.Stats) uint64 { return s.DropMalformed }},
		{"wrong ICRC", func(v *target) {
			v.raw(v.frame(send()))
		}, func(s *device.Stats) uint64 { return s.RxICRCErrors }},
		{"transport version 1", func(v *target) {
			p := send()
			p.TVer = 1
			v.hit(v.frame(p))
		}, func(s *device.Stats) uint64 { return s.DropMalformed }},
		{"unknown opcode", func(v *target) {
			f := v.frame(send())
			f[0] = 0x1F
			v.hit(f)
		}, func(s *device.Stats) uint64 { return s.DropMalformed }},
		{"unknown QP", func(v *target) {
			f := v.frame(send())
			f[5] ^= 0x55
			v.hit(f)
		}, func(s *device.Stats) uint64 { return s.DropNoQP }},
		{"service of another kind", func(v *target) {
			p := send()
			p.Opcode = wire.UCSendOnly
			v.hit(v.frame(p))
		}, func(s *device.Stats) uint64 { return s.DropService }},
		{"another partition", func(v *target) {
			f := v.frame(send())
			f[2], f[3] = 0x12, 0x34
			v.hit(f)
		}, func(s *device.Stats) uint64 { return s.DropPKey }},
		{"not the peer's address", func(v *target) {
			_ = v.peer.AddLocal(stranger)
			v.outer.Src = stranger
			v.hit(v.frame(send()))
		}, func(s *device.Stats) uint64 { return s.DropAddress }},
		{"response to nothing", func(v *target) {
			v.hit(v.frame(&wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 5}}))
		}, func(s *device.Stats) uint64 { return s.GhostResponse }},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newTarget(t)
			before := v.dev.Stats()
			c.attack(v)
			after := v.dev.Stats()
			if c.count(&after) != c.count(&before)+1 {
				t.Errorf("%d counted, want %d: %+v", c.count(&after), c.count(&before)+1, after)
			}
			if n, _ := v.cq.Poll(make([]ib.WC, 1)); n != 0 {
				t.Error("a receive completed")
			}
		})
	}
}

// TestPinSourcePort: with the option a connection accepts packets only from the source port of the
// first packet that advanced it, until the connection is made anew; without it from any port.
func TestPinSourcePort(t *testing.T) {
	const peer, forger = 0xC123, 0xC124
	for _, pin := range []bool{false, true} {
		v := newTargetWith(t, device.Options{PinSourcePort: pin})
		taken := func(port uint16, psn ib.PSN) bool {
			v.outer.SrcPort = port
			v.hit(v.frame(&wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PSN: psn}, Payload: []byte("hello")}))
			n, _ := v.cq.Poll(make([]ib.WC, 1))
			return n == 1
		}
		for _, step := range []struct {
			what string
			port uint16
			psn  ib.PSN
			want bool
		}{
			{"a forger who does not know the PSN", forger, 0x123456, false},
			{"the peer", peer, 0xFFFFF0, true},
			{"a forger who knows it", forger, 0xFFFFF1, !pin},
			{"the peer again", peer, 0xFFFFF1, pin},
		} {
			if got := taken(step.port, step.psn); got != step.want {
				t.Errorf("pinned %v, %s: taken %v, want %v", pin, step.what, got, step.want)
			}
		}
		if s := v.dev.Stats(); (s.DropSourcePort == 1) != pin {
			t.Errorf("pinned %v: %d packets counted, want 1 only if pinned", pin, s.DropSourcePort)
		}
		if err := v.qp.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState); err != nil {
			t.Fatal(err)
		}
		w := &world{t: t}
		w.bringUp(v.host, gidB, 0x1234, ib.MTU256, nil)
		w.recv(v.host, ib.RecvWR{SGL: v.sge(0, 1000)})
		if !taken(forger, 0xFFFFF0) {
			t.Errorf("pinned %v: a new connection does not take the port of its peer", pin)
		}
	}
}

// FuzzDevice hits a connected QP with frames whose ICRC, QP and addresses are
// correct and the rest arbitrary: no panic, and no write outside the registered
// memory. The input is a list of frames, each behind a byte with its length in
// units of 4.
func FuzzDevice(f *testing.F) {
	v := newTarget(f)
	list := func(packets ...*wire.Packet) (b []byte) {
		for _, p := range packets {
			frame := v.frame(p)
			b = append(append(b, byte(len(frame)/4)), frame...)
		}
		return b
	}
	psn := ib.PSN(0xFFFFF0)
	reth := wire.RETH{VA: v.mr.Addr(), RKey: v.mr.RKey(), Len: 512}
	full := make([]byte, 256)
	f.Add(list(&wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendFirst, PSN: psn}, Payload: full},
		&wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendLast, PSN: psn + 1, AckReq: true}, Payload: full}))
	f.Add(list(&wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteFirst, PSN: psn}, RETH: reth, Payload: full},
		&wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteLast, PSN: psn + 1, AckReq: true}, Payload: full}))
	f.Add(list(&wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRequest, PSN: psn}, RETH: reth},
		&wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRequest, PSN: psn}, RETH: reth}))
	f.Add(list(&wire.Packet{BTH: wire.BTH{Opcode: wire.RCFetchAdd, PSN: psn},
		Atomic: wire.AtomicETH{VA: reth.VA, RKey: reth.RKey, Swap: 1}}))
	f.Add(list(&wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: psn}, AETH: wire.AETH{Syndrome: wire.NAKSequence}}))
	f.Fuzz(func(t *testing.T, input []byte) {
		v := newTarget(t)
		w := &world{t: t, a: v.host}
		for _, op := range []ib.WROpcode{ib.WRSend, ib.WRRead, ib.WRFetchAdd, ib.WRWrite} {
			w.send(v.host, ib.SendWR{Opcode: op, SGL: v.sge(4096, 8), RemoteAddr: 4096, RKey: 1})
		}
		v.step()
		for len(input) > 0 {
			n := min(max(int(input[0])*4, 16), len(input)-1)
			frame := append([]byte(nil), input[1:1+n]...)
			input = input[1+n:]
			for len(frame) < 16 || len(frame)%4 != 0 {
				frame = append(frame, 0)
			}
			num := v.qp.Num()
			frame[2], frame[3] = 0xFF, 0xFF
			frame[5], frame[6], frame[7] = byte(num>>16), byte(num>>8), byte(num)
			v.hit(frame)
			if at := v.dev.Deadline(); at != driver.Never && len(input)%3 == 0 {
				v.now = max(v.now, at)
				v.step()
			}
		}
		for i, b := range v.whole {
			if inside := i >= guard && i < guard+registered; !inside && b != 0 {
				t.Fatalf("byte %d outside the region was written", i-guard)
			}
		}
	})
}

// TestTrainsAreChecked: the frames of one run have the same effect as the same frames one by one,
// although most frames of a train are not decoded, and whichever error one of them has.
func TestTrainsAreChecked(t *testing.T) {
	const size, count, bad = 64, 40, 23
	var payloads []byte
	for i := range count {
		payloads = append(payloads, bytes.Repeat([]byte{byte(i + 1)}, size)...)
	}
	for _, c := range []struct {
		name  string
		spoil func(v *target, p *wire.Packet)
		seal  byte // xored into the last byte of the ICRC
	}{
		{"nothing", func(*target, *wire.Packet) {}, 0},
		{"ICRC", func(*target, *wire.Packet) {}, 1},
		{"address", func(v *target, p *wire.Packet) { p.RETH.VA = v.mr.Addr() + registered - size + 1 }, 0},
		{"key", func(_ *target, p *wire.Packet) { p.RETH.RKey++ }, 0},
		{"PSN", func(_ *target, p *wire.Packet) { p.PSN = p.PSN.Add(1) }, 0},
		{"an old PSN", func(_ *target, p *wire.Packet) { p.PSN = p.PSN.Add(-1) }, 0},
		{"QP", func(_ *target, p *wire.Packet) { p.DestQP++ }, 0},
		{"P_Key", func(_ *target, p *wire.Packet) { p.PKey = 0x1234 }, 0},
		{"opcode", func(_ *target, p *wire.Packet) { p.Opcode = wire.RCWriteFirst }, 0},
		{"it asks for an ACK", func(_ *target, p *wire.Packet) { p.AckReq = true }, 0},
	} {
		var got [2]string
		for way, together := range []bool{true, false} {
			v := newTarget(t)
			run := v.outer
			for i := range count {
				p := &wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteOnly, PSN: ib.PSN(0xFFFFF0).Add(i),
					AckReq: i == count-1},
					RETH:    wire.RETH{VA: v.mr.Addr() + uint64(i*size), RKey: v.mr.RKey(), Len: size},
					Payload: payloads[i*size:][:size]}
				p.DestQP, p.PKey = v.qp.Num(), ib.DefaultPKey
				if i == bad {
					c.spoil(v, p)
				}
				frame := append(append(p.AppendHeaders(nil), p.Payload...), make([]byte, wire.ICRCLen)...)
				o := wire.Outer{Src: run.Src, Dst: run.Dst, SrcPort: run.SrcPort, DstPort: link.Port}
				if together {
					o.ID = uint16(len(run.Buf) / max(run.Size, 1))
				}
				o.Seal(frame)
				if i == bad {
					frame[len(frame)-1] ^= c.seal
				}
				if !together {
					v.raw(frame)
					continue
				}
				run.Buf, run.Size = append(run.Buf, frame...), max(run.Size, len(frame))
			}
			if together {
				v.peer.Send(v.now, []link.Run{run})
				v.step()
			}
			st := v.dev.Stats()
			got[way] = fmt.Sprintf("%x %d packets, %d bad ICRC, %d no QP, %d P_Key, %d gaps, %d again, %d in no "+
				"state for it", sha256.Sum256(v.whole),
				st.RcvdPkts, st.RxICRCErrors, st.DropNoQP, st.DropPKey, st.OutOfSeqRequest, st.DuplicateRequest,
				st.DropState)
			if c.name == "nothing" && (st.RcvdPkts != count || !bytes.Equal(v.buf[:len(payloads)], payloads)) {
				t.Errorf("%d packets were received, want %d, with their data", st.RcvdPkts, count)
			}
		}
		if got[0] != got[1] {
			t.Errorf("%s: %s, want as one by one: %s", c.name, got[0], got[1])
		}
	}
}
