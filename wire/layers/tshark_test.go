package layers

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// tsharkFields are the fields of Wireshark's dissector that are compared: each
// with what it should hold for a packet, "" where the packet has no such field.
var tsharkFields = []struct {
	name string
	want func(*wire.Packet, wire.HeaderSet) string
}{
	{"infiniband.bth.opcode", always(func(p *wire.Packet) uint64 { return uint64(p.Opcode) })},
	{"infiniband.bth.se", always(func(p *wire.Packet) uint64 { return truth(p.SE) })},
	{"infiniband.bth.m", always(func(p *wire.Packet) uint64 { return truth(p.MigReq) })},
	{"infiniband.bth.padcnt", always(func(p *wire.Packet) uint64 { return uint64(p.PadCnt) })},
	{"infiniband.bth.tver", always(func(p *wire.Packet) uint64 { return uint64(p.TVer) })},
	{"infiniband.bth.p_key", always(func(p *wire.Packet) uint64 { return uint64(p.PKey) })},
	{"infiniband.bth.destqp", always(func(p *wire.Packet) uint64 { return uint64(p.DestQP) })},
	{"infiniband.bth.a", always(func(p *wire.Packet) uint64 { return truth(p.AckReq) })},
	{"infiniband.bth.reserved7", always(func(p *wire.Packet) uint64 { return uint64(p.Resv7) })},
	{"infiniband.bth.psn", always(func(p *wire.Packet) uint64 { return uint64(p.PSN) })},
	{"infiniband.deth.q_key", with(wire.HasDETH, func(p *wire.Packet) uint64 { return uint64(p.DETH.QKey) })},
	{"infiniband.deth.srcqp", with(wire.HasDETH, func(p *wire.Packet) uint64 { return uint64(p.DETH.SrcQP) })},
	{"infiniband.reth.va", with(wire.HasRETH|wire.HasAtomicETH, func(p *wire.Packet) uint64 {
		if p.Opcode.IsAtomic() {
			return p.Atomic.VA
		}
		return p.RETH.VA
	})},
	{"infiniband.reth.r_key", with(wire.HasRETH|wire.HasAtomicETH, func(p *wire.Packet) uint64 {
		if p.Opcode.IsAtomic() {
			return uint64(p.Atomic.RKey)
		}
		return uint64(p.RETH.RKey)
	})},
	{"infiniband.reth.dmalen", with(wire.HasRETH, func(p *wire.Packet) uint64 { return uint64(p.RETH.Len) })},
	{"infiniband.atomiceth.swapdt", with(wire.HasAtomicETH, func(p *wire.Packet) uint64 { return p.Atomic.Swap })},
	{"infiniband.atomiceth.cmpdt", with(wire.HasAtomicETH, func(p *wire.Packet) uint64 { return p.Atomic.Compare })},
	{"infiniband.aeth.syndrome", with(wire.HasAETH, func(p *wire.Packet) uint64 { return uint64(p.AETH.Syndrome) })},
	{"infiniband.aeth.msn", with(wire.HasAETH, func(p *wire.Packet) uint64 { return uint64(p.AETH.MSN) })},
	{"infiniband.atomicacketh.origremdt",
		with(wire.HasAtomicAckETH, func(p *wire.Packet) uint64 { return p.AtomicAck })},
	{"infiniband.immdt", with(wire.HasImm, func(p *wire.Packet) uint64 { return uint64(p.Imm) })},
	{"infiniband.ieth", with(wire.HasIETH, func(p *wire.Packet) uint64 { return uint64(p.InvKey) })},
}

// always is for fields that every packet has.
func always(value func(*wire.Packet) uint64) func(*wire.Packet, wire.HeaderSet) string {
	return func(p *wire.Packet, _ wire.HeaderSet) string { return fmt.Sprint(value(p)) }
}

// with is for fields of extension headers.
func with(set wire.HeaderSet, value func(*wire.Packet) uint64) func(*wire.Packet, wire.HeaderSet) string {
	return func(p *wire.Packet, has wire.HeaderSet) string {
		if has&set == 0 {
			return ""
		}
		return fmt.Sprint(value(p))
	}
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// runTshark returns tshark's lines for a capture, one a packet: the fields of
// tsharkFields, the ICRC as it lies on the wire, and what the expert complains of.
func runTshark(t *testing.T, path string) (lines [][]string) {
	t.Helper()
	args := []string{"-n", "-r", path, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f",
		// It would guess at the payload.
		"--disable-protocol", "rpcordma", "--disable-protocol", "infiniband_sdp"}
	for _, f := range tsharkFields {
		args = append(args, "-e", f.name)
	}
	args = append(args, "-e", "infiniband.invariant.crc", "-e", "_ws.malformed")
	cmd := exec.Command(require.Command(t, "tshark"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark %s: %v\n%s", path, err, stderr.Bytes())
	}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		lines = append(lines, strings.Split(s.Text(), "\t"))
	}
	return lines
}

// number brings a field's value into decimal. tshark prints hexadecimal or decimal
// numbers, and bytes as bare hexadecimal digits.
func number(field, s string) string {
	base := 0
	if field == "infiniband.immdt" || field == "infiniband.ieth" {
		base = 16
	}
	v, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		return s
	}
	return fmt.Sprint(v)
}

// compareWithTshark runs tshark over a capture and compares every field.
func compareWithTshark(t *testing.T, path string) {
	lines := runTshark(t, path)
	frames := readCapture(t, path)
	if len(lines) != len(frames) {
		t.Fatalf("%s: tshark prints %d packets, want %d", path, len(lines), len(frames))
	}
	for i, frame := range frames {
		packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		p := toWire(packet)
		for j, f := range tsharkFields {
			got, want := number(f.name, lines[i][j]), f.want(&p, p.Opcode.Headers())
			if got != want {
				t.Errorf("%s packet %d, %v: %s is %q in tshark, %q here", path, i+1, p.Opcode, f.name, got, want)
			}
		}
		icrc := packet.Layer(LayerTypeICRC).(*ICRC)
		if got, want := lines[i][len(tsharkFields)], fmt.Sprintf("0x%x", icrc.Contents); got != want {
			t.Errorf("%s packet %d, %v: ICRC is %s in tshark, %s here", path, i+1, p.Opcode, got, want)
		}
		if bad := lines[i][len(tsharkFields)+1]; bad != "" {
			t.Errorf("%s packet %d, %v: tshark says %q, want nothing", path, i+1, p.Opcode, bad)
		}
	}
}

// Wireshark reads the captures as we do.
func TestTsharkCaptures(t *testing.T) {
	for _, path := range captures(t) {
		compareWithTshark(t, path)
	}
}

// Wireshark reads packets of all RC, UC and UD opcodes as we do. Those that the
// captures do not have are made here. It knows neither XRC nor CNP nor the
// memory placement extensions.
func TestTsharkAllOpcodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "opcodes.pcap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := pcapgo.NewWriter(file)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		op := wire.Opcode(i)
		if !op.Valid() || op.Service() > wire.UD || op == wire.RCFlush || op == wire.RCAtomicWrite {
			continue
		}
		b := frameOf(op)
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	compareWithTshark(t, path)
}

// frameOf returns a frame with this opcode in which every field has its own value.
func frameOf(op wire.Opcode) []byte {
	p := wire.Packet{
		BTH:  wire.BTH{Opcode: op, SE: true, MigReq: true, PKey: 0xFFFF, DestQP: 0x123456, AckReq: true, PSN: 0xABCDEF},
		DETH: wire.DETH{QKey: 0x11111111, SrcQP: 0x654321}, RETH: wire.RETH{VA: 0x0102030405060708, RKey: 0x11121314,
			Len: 6},
		Atomic: wire.AtomicETH{VA: 0x2122232425262728, RKey: 0x31323334, Swap: 0x4142434445464748,
			Compare: 0x5152535455565758},
		AETH: wire.AETH{Syndrome: wire.RNRNak(14), MSN: 0x616263}, AtomicAck: 0x7172737475767778, Imm: 0x81828384,
		InvKey: 0x91929394,
	}
	if op.HasPayload() {
		p.Payload = []byte{1, 2, 3, 4, 5, 6}
		p.PadCnt = wire.PadFor(len(p.Payload))
	}
	f := wire.Frame{EtherDst: [6]byte{2, 0, 0, 0, 0, 2}, EtherSrc: [6]byte{2, 0, 0, 0, 0, 1}}
	f.Outer = wire.Outer{SrcPort: 0xC123, DstPort: wire.Port, HopLimit: 64}
	f.Outer.Src[0], f.Outer.Src[15], f.Outer.Dst[0], f.Outer.Dst[15] = 0xFD, 1, 0xFD, 2
	n := op.HeaderLen() + len(p.Payload) + int(p.PadCnt) + wire.ICRCLen
	b := f.AppendHeaders(nil, n)
	at := len(b)
	b = append(p.AppendHeaders(b), p.Payload...)
	b = append(b, make([]byte, int(p.PadCnt)+wire.ICRCLen)...)
	f.Outer.Seal(b[at:])
	return b
}
