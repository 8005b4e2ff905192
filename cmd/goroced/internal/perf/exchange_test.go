package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
)

// The C tool's message for OUT 16, QPN 0x12, PSN 0x123456, R_Key 0x1a2b3c4d, memory
// at 0x7f0012345000 and GID ::ffff:10.0.0.1.
const message = "0000:0010:000012:123456:1a2b3c4d:00007f0012345000:" +
	"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01:00000000:\x00"

var messageAddress = address{outstanding: 16, qpn: 0x12, psn: 0x123456, rkey: 0x1a2b3c4d, vaddr: 0x7f0012345000,
	gid: ib.GIDFromAddr(netip.MustParseAddr("10.0.0.1"))}

func TestAddress(t *testing.T) {
	if len(message) != addressLen {
		t.Fatalf("the message has %d bytes, want %d", len(message), addressLen)
	}
	if got := string(textAddresses{}.encode(&messageAddress)); got != message {
		t.Errorf("encoded as %q, want %q", got, message)
	}
	got, err := textAddresses{}.decode([]byte(message))
	if err != nil || got != messageAddress {
		t.Errorf("decoded as %+v, %v, want %+v", got, err, messageAddress)
	}
	var b strings.Builder
	o := Defaults(Read, BW)
	got.print(&b, "local", &o)
	want := " local address: LID 0000 QPN 0x0012 PSN 0x123456 OUT 0x10 RKey 0x1a2b3c4d VAddr 0x007f0012345000\n" +
		" GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01\n"
	if b.String() != want {
		t.Errorf("printed as %q, want %q", b.String(), want)
	}
}

// TestBinaryAddress is the same address as the C tools send it over rdma_cm.
func TestBinaryAddress(t *testing.T) {
	const want = "\x00\x00\x00\x00" + "\x00\x00\x00\x10" + "\x00\x00\x00\x12" + "\x00\x12\x34\x56" +
		"\x1a\x2b\x3c\x4d" + "\x00\x00\x00\x00" +
		"\x00\x00\x7f\x00\x12\x34\x50\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01" +
		"\x00\x00\x00\x00\x00\x00\x00\x00"
	var codec binaryAddresses
	msg := codec.encode(&messageAddress)
	if diff := cmp.Diff([]byte(want), msg); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, err := codec.decode(msg); err != nil || got != messageAddress {
		t.Errorf("decoded as %+v, %v, want %+v", got, err, messageAddress)
	}
	for _, at := range []int{0, 4, 8, 12} { // the first byte of a LID, OUT, QPN and PSN
		bad := slices.Clone(msg)
		bad[at] = 1
		if a, err := codec.decode(bad); !errors.Is(err, ErrExchange) {
			t.Errorf("with byte %d set: %+v, error %v; want %v", at, a, err, ErrExchange)
		}
	}
}

func TestBadAddresses(t *testing.T) {
	for _, msg := range []string{
		"", "\x00", strings.Repeat("x", addressLen), strings.Repeat(":", addressLen), "GET / HTTP/1.1\r\n",
		strings.Replace(message, "123456", "+23456", 1), strings.Replace(message, "000012", "1000012", 1),
		strings.Replace(message, "0000:", "-001:", 1), strings.Replace(message, ":ff:", ":fg:", 1),
		strings.Replace(message, ":ff:ff:0a:00:00:01:", ":00:00:00:00:00:00:", 1), // no GID
		message[:addressLen-10],
	} {
		if a, err := (textAddresses{}).decode([]byte(msg)); !errors.Is(err, ErrExchange) {
			t.Errorf("%q was taken as %+v, error %v; want %v", msg, a, err, ErrExchange)
		}
	}
}

func FuzzAddress(f *testing.F) {
	f.Add([]byte(message))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		var text textAddresses
		a, err := text.decode(msg)
		if err != nil {
			if !errors.Is(err, ErrExchange) {
				t.Errorf("error %v, want %v", err, ErrExchange)
			}
			return
		}
		again, err := text.decode(text.encode(&a))
		if err != nil || again != a {
			t.Errorf("%q is %+v, and then %+v, %v; want the same", msg, a, again, err)
		}
	})
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		msg    string
		text   string
		goroce bool
		talks  bool
	}{
		{string(encodeVersion(true)), "6.06", true, true},
		{"6.06\x00goroce\x00\x00\x00\x00\x00", "6.06", true, false},
		{"6.06" + strings.Repeat("\x00", 12), "6.06", false, false},
		{"5.70" + strings.Repeat("\x00", 12), "5.70", false, false},
		{"5.60" + strings.Repeat("\x00", 12), "", false, false},
		{"GET / HTTP/1.1\r\n", "", false, false},
		{"nan" + strings.Repeat("\x00", 13), "", false, false},
		{strings.Repeat("\x00", 16), "", false, false},
	} {
		text, goroce, talks, err := decodeVersion([]byte(c.msg))
		if text != c.text || goroce != c.goroce || talks != c.talks || (err == nil) != (c.text != "") {
			t.Errorf("%q: version %q, goroce %v, talks %v, error %v;\nwant %q, %v, %v", c.msg, text, goroce, talks, err,
				c.text, c.goroce, c.talks)
		}
		if err != nil && !errors.Is(err, ErrExchange) {
			t.Errorf("%q: error %v, want %v", c.msg, err, ErrExchange)
		}
	}
	if n := len(encodeVersion(true)); n != versionLen {
		t.Errorf("the version has %d bytes, want %d", n, versionLen)
	}
}

func TestSizes(t *testing.T) {
	if v, err := decodeInt(encodeInt(4096), "page", 1, maxCycle); v != 4096 || err != nil {
		t.Errorf("4096 is read as %d, %v; want 4096", v, err)
	}
	for _, v := range []int{0, -1, maxCycle + 1, math.MinInt32} {
		if _, err := decodeInt(encodeInt(v), "page", 1, maxCycle); !errors.Is(err, ErrExchange) {
			t.Errorf("%d: error %v, want %v", v, err, ErrExchange)
		}
	}
	for code := range 256 {
		mtu, err := decodeMTU([]byte{byte(code), 0})
		if good := code >= '1' && code <= '5'; good != (err == nil) ||
			good && string(encodeMTU(mtu)) != string([]byte{byte(code), 0}) {
			t.Errorf("%q: MTU %d, error %v; want an error: %v", rune(code), mtu, err, !good)
		}
	}
}

func TestFigures(t *testing.T) {
	row := Row{Size: 65536, Iterations: 5000, Bandwidth: &Bandwidth{Peak: 1.5, Average: 1.25, MsgRate: 0.02}}
	f := row.figures()
	if f[2] != 0x3ff8000000000000 { // 1.5, IEEE 754
		t.Errorf("1.5 goes as %#x, want 0x3ff8000000000000", f[2])
	}
	got, err := f.row()
	if diff := cmp.Diff(row, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got): %s", err, diff)
	}
	for i, v := range []uint64{0: 1 << 63, 1: 1 << 63, 2: math.Float64bits(math.NaN()),
		3: math.Float64bits(math.Inf(1)), 4: math.Float64bits(math.NaN())} {
		bad := row.figures()
		bad[i] = v
		if _, err := bad.row(); !errors.Is(err, ErrExchange) {
			t.Errorf("figure %d of %#x: error %v, want %v", i, v, err, ErrExchange)
		}
	}
}

// heard is a meeting that records what this end says, and answers with the same, in the version of a C tool.
type heard struct {
	meeting
	said []string
}

func (h *heard) swap(mine, theirs []byte, _ time.Duration) error {
	copy(theirs, mine)
	if len(h.said) == 0 {
		copy(theirs, make([]byte, len(theirs)))
		copy(theirs, version)
	}
	h.said = append(h.said, string(mine))
	return nil
}

// TestWords is the meeting as perftest 6.06 holds it, from a trace of its calls: the
// greeting; the addresses of all queue pairs twice, with one of the first in other
// places for each tool. Over rdma_cm two empty ones precede them, around the
// connections.
func TestWords(t *testing.T) {
	greeting := []string{string(encodeVersion(true)), "\x00\x00\x10\x00", "\x00\x00\x00\x40", "3\x00"}
	a, b := messageAddress, messageAddress
	b.qpn++
	one, all := []address{a}, []address{a, b}
	join := slices.Concat[[]address]
	for _, c := range []struct {
		op   Op
		test Test
		want []address
	}{
		{Send, BW, join(all, one, all)}, {Send, Lat, join(all, one, all)},
		{Write, BW, join(all, all, one)}, {Read, BW, join(all, all, one)}, {Atomic, BW, join(all, all, one)},
		{Write, Lat, join(one, all, all, one)}, {Read, Lat, join(one, all, all, one)},
		{Atomic, Lat, join(one, all, all, one)},
	} {
		for _, cm := range []*cmMeeting{nil, {}} {
			o := Defaults(c.op, c.test)
			o.MTU, o.Host, o.CM = ib.MTU1024, "server", cm != nil
			h, want := &heard{meeting: &tcpMeeting{}}, greeting
			if cm != nil {
				cm.o, h.meeting = &o, cm
				nothing := string(make([]byte, binaryLen))
				want = append(slices.Clip(want), nothing, nothing)
			}
			for _, a := range c.want {
				want = append(slices.Clip(want), string(h.encode(&a)))
			}
			s := &session{o: &o, t: o.traits(), meeting: h, cm: cm, gid: &ib.GIDEntry{},
				e: &endpoint{o: &o, local: []address{a, b}, remote: make([]address, 2)}}
			if err := s.greet(); err != nil {
				t.Fatal(err)
			}
			if err := s.connect(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, h.said); diff != "" {
				t.Errorf("%v %v (-want +got): %s", c.op, c.test, diff)
			}
		}
	}
}

// TestBegin is who sends the first message in the C tools.
func TestBegin(t *testing.T) {
	for _, c := range []struct {
		op     Op
		server bool
	}{{Send, false}, {Write, true}} {
		o := Defaults(c.op, Lat)
		server := o.begins()
		o.Host = "server"
		if server != c.server || o.begins() == c.server {
			t.Errorf("%v lat: the server begins %v, the client %v; want %v and the other", c.op, server, o.begins(),
				c.server)
		}
	}
}

// TestGreedyPeer: a peer whose pages are large does not make this end take more
// memory than it would otherwise.
func TestGreedyPeer(t *testing.T) {
	o := Defaults(Write, BW)
	o.Size, o.NumQP = 8, 1024
	s := &session{o: &o, t: o.traits()}
	s.meeting = &script{answers: []string{"6.06", "\x00\x0f\xff\xff", "\x00\x00\x00\x40", "3\x00"}}
	var attr *ib.AttrError
	if err := s.greet(); !errors.As(err, &attr) || attr.Attr != "NumQP" ||
		!strings.Contains(attr.Allowed, "at most 512") {
		t.Errorf("error %v, want one of NumQP, at most 512", err)
	}
}

// script is a meeting with a peer that says one thing after the other.
type script struct {
	meeting
	answers []string
}

func (s *script) swap(_, theirs []byte, _ time.Duration) error {
	copy(theirs, s.answers[0])
	s.answers = s.answers[1:]
	return nil
}

// TestIdleFigures: what the server of a one-sided test reports, which has measured nothing, is not looked at.
func TestIdleFigures(t *testing.T) {
	o := Defaults(Write, BW)
	o.Host = "server"
	nan := string(binary.BigEndian.AppendUint64(nil, math.Float64bits(math.NaN())))
	s := &session{o: &o, t: o.traits(), e: &endpoint{local: make([]address, 1), remote: make([]address, 1)},
		meeting: &script{meeting: &tcpMeeting{}, answers: []string{message, nan, nan, nan, nan, nan, message}}}
	s.report.Results = []Row{{Bandwidth: &Bandwidth{}}}
	if err := s.finish(); err != nil {
		t.Errorf("got error %v", err)
	}
}

// TestOtherEnds: what meets a goroce end and is no perftest is refused, and the
// error says what was expected.
func TestOtherEnds(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"0000:000012:123456:" + strings.Repeat("0", 33)} {
		o := Defaults(Write, BW)
		s := &session{o: &o, t: o.traits(), meeting: &script{answers: []string{text}}}
		if err := s.suspect(s.greet()); !errors.Is(err, ErrExchange) ||
			!strings.Contains(fmt.Sprint(err), "ib_write_bw") {
			t.Errorf("%q: error %v, want %v that names ib_write_bw", text, err, ErrExchange)
		}
	}
}
