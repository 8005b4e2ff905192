package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// run decodes a file and returns what Run printed.
func run(t *testing.T, file []byte, opts Options) (string, Summary) {
	t.Helper()
	var b strings.Builder
	sum, err := Run(&b, bytes.NewReader(file), opts)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), sum
}

// testFile returns a file in testdata.
func testFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGolden compares every form of output with the golden files. pingpong is the
// beginning of ibv_rc_pingpong, rping a whole run of rping over rdma_cm, loss
// pieces of ib_read_bw on a lossy path, of whose packets 90 bytes were captured.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		golden, file string
		opts         Options
	}{
		{"pingpong.txt", "pingpong.pcap", Options{}},
		{"pingpong-fields.txt", "pingpong.pcap", Options{Verbose: true}},
		{"pingpong.jsonl", "pingpong.pcap", Options{JSON: true}},
		{"rping.txt", "rping.pcap", Options{}},
		{"rping-wide.txt", "rping.pcap", Options{Terminal: term.Terminal{Width: 240}}},
		{"rping-ladder.txt", "rping.pcap", Options{Ladder: true}},
		{"rping-fields-qp1.txt", "rping.pcap", Options{Verbose: true, QP: 1}},
		{"loss-errors.txt", "loss.pcap", Options{Errors: true}},
		{"loss-ladder.txt", "loss.pcap", Options{Ladder: true, Terminal: term.Terminal{Width: 110}}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			c.opts.Name = c.file
			got, _ := run(t, testFile(t, c.file), c.opts)
			golden(t, c.golden, got)
		})
	}
}

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(testFile(t, name)), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// outer returns the outer headers of a packet between two hosts.
func outer() wire.Outer {
	return wire.Outer{Src: ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}, Dst: ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 2},
		SrcPort: 50000, DstPort: wire.Port, HopLimit: 64}
}

// transport returns a sealed packet, from BTH to ICRC.
func transport(o wire.Outer, op wire.Opcode, psn ib.PSN, n int) []byte {
	p := wire.Packet{BTH: wire.BTH{Opcode: op, PKey: ib.DefaultPKey, DestQP: 0x12, PSN: psn, PadCnt: wire.PadFor(n)}}
	b := p.AppendHeaders(nil)
	b = append(b, make([]byte, n+int(p.PadCnt)+wire.ICRCLen)...)
	o.Seal(b)
	return b
}

// ipPacket returns an IP packet around a transport packet.
func ipPacket(o wire.Outer, transport []byte) []byte {
	return append(o.AppendHeaders(nil, len(transport)), transport...)
}

// pcap returns a file of packets with this link type.
func pcap(link capfile.LinkType, packets ...[]byte) []byte {
	le := binary.LittleEndian
	b := append(le.AppendUint32(nil, 0xA1B2C3D4), 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0)
	b = le.AppendUint32(b, uint32(link))
	for i, p := range packets {
		b = le.AppendUint32(b, 1)
		b = le.AppendUint32(b, uint32(i))
		b = le.AppendUint32(b, uint32(len(p)))
		b = append(le.AppendUint32(b, uint32(len(p))), p...)
	}
	return b
}

// TestICRC: right, wrong, right with another identification.
func TestICRC(t *testing.T) {
	o := outer()
	o.ID = 7
	right := ipPacket(o, transport(o, wire.RCSendOnly, 1, 10))
	wrong := bytes.Clone(right)
	wrong[len(wrong)-8] ^= 4
	other := ipPacket(outer(), transport(o, wire.RCSendOnly, 2, 10))
	text, sum := run(t, pcap(capfile.Raw, right, wrong, other), Options{Terminal: term.Terminal{Width: 240}})
	if want := (ICRCCounts{Right: 1, Wrong: 1, OtherID: 1}); sum.ICRC != want {
		t.Errorf("ICRC %+v, want %+v", sum.ICRC, want)
	}
	lines := strings.Split(text, "\n")
	for i, want := range []string{" ok ", " BAD ", "ICRC right with IP ID 7, not 0"} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("line %q, want %q in it", lines[i+1], want)
		}
	}
	// What receivers drop does not count as sent.
	if strings.Contains(text, "AGAIN") || sum.Problems != 1 {
		t.Errorf("%d problems, want 1:\n%s", sum.Problems, text)
	}
}

// TestRewritten: where no ICRC is right, packets are followed nevertheless.
func TestRewritten(t *testing.T) {
	o, alien := outer(), outer()
	alien.Src[15] = 9
	text, sum := run(t, pcap(capfile.Raw, ipPacket(o, transport(alien, wire.RCSendOnly, 1, 0)),
		ipPacket(o, transport(alien, wire.RCSendOnly, 1, 0))), Options{})
	if sum.ICRC.Wrong != 2 || !strings.Contains(text, "AGAIN: #1") {
		t.Errorf("%+v, want 2 wrong and %q\n%s", sum.ICRC, "AGAIN: #1", text)
	}
}

// TestRun: packets that segmentation offload had not split yet.
func TestRun(t *testing.T) {
	base := outer()
	base.ID = 40
	var frames []byte
	for i, n := range []int{256, 256, 256, 17} {
		o := base
		o.ID += uint16(i)
		frames = append(frames, transport(o, []wire.Opcode{wire.RCSendMiddle, wire.RCSendLast}[i/3], ib.PSN(100+i),
			n)...)
	}
	text, sum := run(t, pcap(capfile.Raw, ipPacket(base, frames)), Options{Terminal: term.Terminal{Width: 240}})
	if sum.Packets != 1 || sum.Runs != 1 || sum.RoCE != 4 || sum.ICRC.Right != 4 || sum.Problems != 0 {
		t.Errorf("summary %+v, want a run of 4, all right\n%s", sum, text)
	}
	if !strings.Contains(text, "SEND Last psn=103 (17 B)") || !strings.Contains(text, "part 4 of a run") {
		t.Error(text)
	}
	// In a ladder, what is wrong with a packet has all of its meaning; others have none.
	second := base
	second.ID++
	late := append(transport(base, wire.RCSendOnly, 107, 4), transport(second, wire.RCSendOnly, 108, 4)...)
	text, _ = run(t, pcap(capfile.Raw, ipPacket(base, frames), ipPacket(base, transport(base, wire.RCSendOnly, 105, 4)),
		ipPacket(base, late)), Options{Ladder: true, Terminal: term.Terminal{Width: 240}})
	const want = "GAP: psn 106 missing; SEND 3, all 4 B; part 1 of a run"
	if !strings.Contains(text, want) || strings.Count(text, "of a run") != 1 {
		t.Errorf("ladder, which should have %q and no other part of a run:\n%s", want, text)
	}
	// A damaged run is one malformed packet.
	frames[20] ^= 1
	if _, sum := run(t, pcap(capfile.Raw, ipPacket(base, frames)), Options{}); sum.Malformed+sum.ICRC.Wrong != 1 ||
		sum.RoCE > 1 {
		t.Errorf("damaged: %+v, want 1 malformed or wrong, RoCE at most 1", sum)
	}
}

// TestLinkTypes: the same packet in every wrapping.
func TestLinkTypes(t *testing.T) {
	o := outer()
	ip := ipPacket(o, transport(o, wire.RCSendOnly, 1, 10))
	wrap := func(head ...byte) []byte { return append(head, ip...) }
	for link, packet := range map[capfile.LinkType][]byte{
		// VLAN, padding
		capfile.Ethernet: append(wrap(0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0x81, 0, 0x60, 5, 8, 0), 0, 0, 0),
		capfile.Raw:      ip,
		capfile.SLL:      wrap(0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 2, 0, 0, 8, 0),
		capfile.SLL2:     wrap(8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 0, 0, 0, 0, 0, 2, 0, 0),
		capfile.Null:     wrap(2, 0, 0, 0),
	} {
		if text, sum := run(t, pcap(link, packet), Options{Verbose: true}); sum.RoCE != 1 || sum.ICRC.Right != 1 {
			t.Errorf("%v: %+v, want 1, right\n%s", link, sum, text)
		}
	}
	_, err := Run(io.Discard, bytes.NewReader(pcap(127, ip)), Options{Name: "radio.pcap"})
	if !errors.Is(err, capfile.ErrFormat) || !strings.Contains(err.Error(), "radio.pcap: packet 1") {
		t.Errorf("link type 127: %v, want %v and %q", err, capfile.ErrFormat, "radio.pcap: packet 1")
	}
}

// TestPartialChecksum: a UDP checksum that a NIC had yet to complete is no error.
func TestPartialChecksum(t *testing.T) {
	o := outer()
	ip := ipPacket(o, transport(o, wire.RCSendOnly, 1, 10))
	ip[26], ip[27] = 0x12, 0x34
	if text, sum := run(t, pcap(capfile.Raw, ip), Options{}); sum.ICRC.Right != 1 {
		t.Errorf("%+v, want 1 right\n%s", sum, text)
	}
}

// TestOtherTraffic: what is not RoCEv2 is counted, and shown only when asked for;
// what goes to port 4791 but is no RoCEv2 packet is a problem.
func TestOtherTraffic(t *testing.T) {
	o := outer()
	good := ipPacket(o, transport(o, wire.RCSendOnly, 1, 10))
	dns := bytes.Clone(good)
	dns[22], dns[23] = 0, 53
	opcode := ipPacket(o, transport(o, wire.RCSendOnly, 2, 10))
	opcode[28] = 0x1F
	short := ipPacket(o, make([]byte, 8))
	file := pcap(capfile.Raw, good, dns, opcode, short, []byte{0x45})
	text, sum := run(t, file, Options{})
	if sum.Packets != 5 || sum.RoCE != 1 || sum.Other != 2 || sum.Malformed != 2 || sum.Problems != 2 {
		t.Errorf("summary %+v, want 5: RoCE 1, other 2, malformed 2, problems 2\n%s", sum, text)
	}
	if strings.Contains(text, "not RoCEv2") || !strings.Contains(text, "malformed: BTH: unknown opcode") {
		t.Error(text)
	}
	if text, _ := run(t, file, Options{Verbose: true}); strings.Count(text, "not RoCEv2") < 2 {
		t.Error(text)
	}
}

// TestFilters: what each option lets through.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		opts Options
		want int
	}{
		{Options{}, 65},
		{Options{QP: 1}, 5},
		{Options{QP: 0x29}, 65}, // with the messages of the connection managers
		{Options{Conn: 1}, 3},   // when REQ, REP and RTU come, it is not known what they belong to
		{Options{Conn: 2}, 62},
		{Options{Conn: 3}, 0},
		{Options{First: 60}, 6},
		{Options{First: 3, Last: 5}, 3},
		{Options{Last: 5, QP: 1}, 3},
		{Options{QP: 0x99}, 0},
		{Options{Errors: true}, 0},
	} {
		c.opts.JSON = true
		text, sum := run(t, testFile(t, "rping.pcap"), c.opts)
		if n := strings.Count(text, "\n") - 1; n != c.want || sum.Packets != 65 {
			t.Errorf("%+v: %d packets shown of %d, want %d", c.opts, n, sum.Packets, c.want)
		}
	}
	if _, err := Run(io.Discard, strings.NewReader(""), Options{Ladder: true, JSON: true}); !errors.Is(err,
		ib.ErrInvalid) {
		t.Errorf("ladder and JSON: %v, want %v", err, ib.ErrInvalid)
	}
}

// pieces is a file that comes in pieces. It calls next when it is asked for one.
type pieces struct {
	list [][]byte
	next func(left int)
}

func (p *pieces) Read(b []byte) (int, error) {
	p.next(len(p.list))
	if len(p.list) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.list[0])
	p.list = p.list[1:]
	return n, nil
}

// TestLive: of a file that goes on, each packet is shown when it has come.
func TestLive(t *testing.T) {
	file := testFile(t, "pingpong.pcap")
	var shown bytes.Buffer
	in := &pieces{[][]byte{file[:len(file)/2], file[len(file)/2:]}, func(left int) {
		want := map[int]int{2: 0, 1: 4, 0: 10}[left]
		if got := strings.Count(shown.String(), " ok "); got != want {
			t.Errorf("got %d packets shown when %d pieces are to come, want %d", got, left, want)
		}
	}}
	if _, err := Run(&shown, in, Options{Terminal: term.Terminal{Width: 240}}); err != nil {
		t.Fatal(err)
	}
}

// TestJSON: every line is an object, the last one the summary.
func TestJSON(t *testing.T) {
	text, _ := run(t, testFile(t, "loss.pcap"), Options{JSON: true})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		var v struct {
			Packet  int
			Effect  struct{ Kind string }
			Summary *Summary
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if last := i == len(lines)-1; last != (v.Summary != nil) || !last && (v.Packet != i+1 || v.Effect.Kind == "") {
			t.Fatalf("line %d: %s, want packet %d, or the summary at the end", i+1, line, i+1)
		}
	}
}

// TestDamagedFile: what comes before the damage is printed, and the error says
// where it is.
func TestDamagedFile(t *testing.T) {
	file := testFile(t, "pingpong.pcap")
	var b strings.Builder
	sum, err := Run(&b, bytes.NewReader(file[:len(file)-10]), Options{Name: "cut.pcap"})
	if !errors.Is(err, capfile.ErrTruncated) || !strings.HasPrefix(err.Error(), "cut.pcap: packet 10: ") {
		t.Errorf("error %v, want %v and %q", err, capfile.ErrTruncated, "cut.pcap: packet 10: ")
	}
	if sum.RoCE != 9 || len(sum.Connections) != 1 || !strings.Contains(b.String(), "cut.pcap: 9 packets") {
		t.Errorf("summary %+v, want 9 of one connection\n%s", sum, b.String())
	}
	if _, err := Run(io.Discard, strings.NewReader("not a capture"), Options{}); !errors.Is(err, capfile.ErrFormat) {
		t.Errorf("text file: %v, want %v", err, capfile.ErrFormat)
	}
}

// failWriter fails after some bytes.
type failWriter struct{ room int }

var errFull = errors.New("disk full")

func (w *failWriter) Write(b []byte) (int, error) {
	if w.room -= len(b); w.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteError(t *testing.T) {
	for _, opts := range []Options{{}, {JSON: true}, {Ladder: true}, {Verbose: true}} {
		for _, room := range []int{0, 5000} {
			if _, err := Run(&failWriter{room}, bytes.NewReader(testFile(t, "loss.pcap")), opts); !errors.Is(err,
				errFull) {
				t.Errorf("%+v: %v, want the writer's error", opts, err)
			}
		}
	}
}

// FuzzDecode: any file gives output and perhaps an error of capfile, in every
// form of output.
func FuzzDecode(f *testing.F) {
	f.Add(testFile(f, "pingpong.pcap")[:2300])
	f.Add(testFile(f, "rping.pcap")[:1500])
	o := outer()
	f.Add(pcap(capfile.SLL2, append([]byte{8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 0, 0, 0, 0, 0, 2, 0, 0},
		ipPacket(o, transport(o, wire.RCReadRequest, 5, 0))...)))
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, opts := range []Options{{Verbose: true}, {JSON: true}, {Ladder: true}} {
			sum, err := Run(io.Discard, bytes.NewReader(file), opts)
			if err != nil && !errors.As(err, new(*capfile.Error)) {
				t.Errorf("error %T: %v", err, err)
			}
			if sum.Packets < sum.Other+sum.Malformed-sum.Runs*64<<10 {
				t.Errorf("summary %+v, want at least %d packets", sum, sum.Other+sum.Malformed-sum.Runs*64<<10)
			}
		}
	})
}
