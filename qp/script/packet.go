package script

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// packet is a packet on the wire. err is the error of decoding it.
type packet struct {
	wire.Packet
	ah  ib.AHNum // destination of a datagram
	err error
}

// shortNames maps names of packets in scripts to the RC opcode and the syndrome.
var shortNames = makeShortNames()

type packetName struct {
	op       wire.Opcode
	syndrome wire.Syndrome
}

func makeShortNames() map[string]packetName {
	names := map[string]packetName{}
	for op := range wire.Opcode(32) {
		if op.Valid() {
			names[op.Op().String()] = packetName{op, wire.AckNoCredits}
		}
	}
	names["CNP"] = packetName{wire.CNP, wire.AckNoCredits}
	names["SACK"] = packetName{wire.SACKOpcode, wire.AckNoCredits}
	names["RNR NAK"] = packetName{wire.RCAck, wire.RNRNak(0)}
	for s := wire.NAKSequence; s <= wire.NAKRemoteOp; s++ {
		names[strings.ReplaceAll(s.String(), ",", "")] = packetName{wire.RCAck, s}
	}
	return names
}

// special reports whether packets with the opcode are the same for all services.
func special(op wire.Opcode) bool { return op == wire.SACKOpcode || op == wire.CNP }

// shortName returns the name of p in scripts.
func shortName(p *wire.Packet) string {
	s := p.AETH.Syndrome
	if special(p.Opcode) {
		return p.Opcode.String()
	}
	switch isACK := p.Opcode.Op() == wire.OpAck; {
	case isACK && s.IsRNR():
		return "RNR NAK"
	case isACK && !s.IsAck():
		return strings.ReplaceAll(s.String(), ",", "")
	}
	return p.Opcode.Op().String()
}

// spec is a step's description of a packet, or of a run of packets.
type spec struct {
	label   string
	p       wire.Packet
	data    slice
	count   int    // packets, with consecutive PSNs and data
	credits bool   // the step states the credits
	pad     bool   // the step states the pad
	sack    []byte // the payload of a SACK or CNP

	// Datagrams.
	dest, from ib.QPN // 0 for the QP at that end of the scene
	ah         ib.AHNum
}

// parseSpec parses the description of a packet.
func (r *runner) parseSpec(text string) (*spec, error) {
	a := newArgs(text)
	s := &spec{label: text}
	if err := s.name(a); err != nil {
		return nil, err
	}
	p := &s.p
	s.psns(a)
	p.AckReq, p.SE = a.flag("AckReq"), a.flag("SE")
	if a.flag("CE") {
		p.ECN = wire.CE
	}
	p.AETH.MSN = ib.PSN(a.num("msn", 0, 24))
	p.Imm = uint32(a.num("imm", 0, 32))
	p.AtomicAck = a.num("was", 0, 64)
	p.RETH.Len = uint32(a.num("len", 0, 32))
	p.Atomic.Compare = a.num("compare", 0, 64)
	p.Atomic.Swap = a.num("swap", a.num("add", 0, 64), 64)
	s.address(r, a)
	s.acknowledge(a)
	s.selective(a)
	s.datagram(a)
	p.XRCSRQ = uint32(a.num("srq", 0, 24))
	level, extent, err := takeFlush(a)
	if err != nil {
		return nil, err
	}
	p.FETH = wire.FETH{Placement: uint8(level), Selectivity: uint8(extent)}
	for i, w := range a.words {
		if strings.Contains(w, "[") {
			var err error
			if s.data, err = parseSlice(w); err != nil {
				return nil, err
			}
			a.words = slices.Delete(a.words, i, i+1)
			break
		}
	}
	p.PadCnt = wire.PadFor(s.data.len())
	if pad := a.num("pad", 99, 8); pad != 99 {
		p.PadCnt, s.pad = uint8(pad), true
	}
	return s, a.done()
}

// name takes the longest packet name with which the words begin.
func (s *spec) name(a *args) error {
	for n := min(len(a.words), 5); n > 0; n-- {
		if name, ok := shortNames[strings.Join(a.words[:n], " ")]; ok {
			s.p.Opcode, s.p.AETH.Syndrome = name.op, name.syndrome
			a.words = a.words[n:]
			return nil
		}
	}
	return fmt.Errorf("%q begins with no name of a packet, such as SEND First", strings.Join(a.words, " "))
}

// maxRun limits the packets of a run.
const maxRun = 1 << 13

// psns takes "psn=100" or "psn=101..130".
func (s *spec) psns(a *args) {
	v, _ := a.value("psn")
	from, to, isRun := strings.Cut(v, "..")
	if !isRun {
		to = from
	}
	first, err := strconv.ParseUint(from, 0, 24)
	last, err2 := strconv.ParseUint(to, 0, 24)
	if err != nil || err2 != nil {
		a.wrong("psn=%q is no PSN, nor a run of them such as 101..130", v)
	}
	s.p.PSN, s.count = ib.PSN(first), ib.PSN(last).Sub(ib.PSN(first))+1
	if s.count < 1 || s.count > maxRun {
		a.wrong("psn=%q ends before it begins, or is a run of more than %d packets", v, maxRun)
	}
}

// address takes "to=R+0", "rkey=" and "inv=".
func (s *spec) address(r *runner, a *args) {
	if v, ok := a.value("to"); ok {
		mem, off, err := r.address(v)
		if err != nil {
			a.wrong("to: %w", err)
			return
		}
		va := mem.addr + uint64(off)
		s.p.RETH.VA, s.p.RETH.RKey = va, mem.key
		s.p.Atomic.VA, s.p.Atomic.RKey = va, mem.key
	}
	key := ib.Key(a.num("rkey", uint64(s.p.RETH.RKey), 32))
	s.p.RETH.RKey, s.p.Atomic.RKey = key, key
	if v, ok := a.value("inv"); ok {
		mem := r.areas[v]
		if mem == nil {
			a.wrong("inv: there is no region %s", v)
			return
		}
		s.p.InvKey = mem.key
	}
}

// noCredits stands for a missing "credits="; it is no valid number of credits.
const noCredits = 1<<32 - 1

// acknowledge takes "credits=" and "delay=".
func (s *spec) acknowledge(a *args) {
	if a.flag("credits=none") {
		s.credits = true // the syndrome is that of shortNames, AckNoCredits
	} else if n := a.num("credits", noCredits, 32); n != noCredits {
		s.p.AETH.Syndrome, s.credits = wire.AckCredits(int(n)), true
	}
	if v, ok := a.value("delay"); ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			a.wrong("delay: %w", err)
			return
		}
		for code := range uint8(32) {
			if wire.RNRDelay(code) == d.Nanoseconds() {
				s.p.AETH.Syndrome = wire.RNRNak(code)
				return
			}
		}
		a.wrong("delay=%s is none of the 32 that have a code", v)
	}
}

// cnpLen is the length of a CNP's payload, which is reserved (IBTA A17.9.3).
const cnpLen = 16

// selective takes "has=102..103,105" and "trigger=105" of a SACK.
func (s *spec) selective(a *args) {
	if s.p.Opcode == wire.CNP {
		s.p.BECN, s.sack = true, make([]byte, cnpLen)
	}
	if s.p.Opcode != wire.SACKOpcode {
		return
	}
	sack := wire.SACK{Trigger: ib.PSN(a.num("trigger", 0, 24)), First: s.p.PSN.Add(1)}
	v, _ := a.value("has")
	for _, run := range strings.Split(v, ",") {
		from, to, isRun := strings.Cut(run, "..")
		if !isRun {
			to = from
		}
		first, err := strconv.ParseUint(from, 0, 24)
		last, err2 := strconv.ParseUint(to, 0, 24)
		if err != nil || err2 != nil || last < first || last-first >= wire.SACKWords*64 {
			a.wrong("has=%q is no list of PSNs such as 102..103,105", v)
			return
		}
		for psn := first; psn <= last; psn++ {
			sack.Set(ib.PSN(psn))
		}
	}
	s.sack = sack.Append(nil)
}

// payload returns the payload of a packet with these data.
func (s *spec) payload(data slice) []byte {
	if s.sack != nil {
		return s.sack
	}
	return data.bytes()
}

// datagram takes "qkey=", "from=", "dest=" and "ah=".
func (s *spec) datagram(a *args) {
	s.p.DETH.QKey = uint32(a.num("qkey", 0, 32))
	s.from, s.dest = ib.QPN(a.num("from", 0, 24)), ib.QPN(a.num("dest", 0, 24))
	s.ah = ib.AHNum(a.num("ah", 0, 32))
}

// between sets source and destination QP of p, unless the step states others.
func (s *spec) between(p *wire.Packet, from, to ib.QPN) {
	p.PKey, p.DestQP, p.DETH.SrcQP = ib.DefaultPKey, to, from
	if s.dest != 0 {
		p.DestQP = s.dest
	}
	if s.from != 0 {
		p.DETH.SrcQP = s.from
	}
}

// at returns packet i of the run, and its data.
func (s *spec) at(i, mtu int) (wire.Packet, slice) {
	p, d := s.p, s.data
	p.PSN = p.PSN.Add(i)
	if s.count > 1 {
		d.from = min(d.from+i*mtu, s.data.to)
		d.to = min(d.from+mtu, s.data.to)
		p.PadCnt = wire.PadFor(d.len())
	}
	return p, d
}

// text returns the description of one packet of the step, which has this PSN and data.
func (s *spec) text(psn ib.PSN, data slice) string {
	if s.count == 1 {
		return s.label
	}
	words := strings.Fields(s.label)
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "psn="):
			words[i] = fmt.Sprintf("psn=%d", psn)
		case strings.Contains(w, "["):
			words[i] = data.String()
		}
	}
	return strings.Join(words, " ")
}

// differs returns an error that says how got differs from the packet of the step; nil
// if it does not.
func (s *spec) differs(want wire.Packet, data slice, got *packet) error {
	if got.err != nil {
		return got.err
	}
	if want.Opcode != got.Opcode {
		return fmt.Errorf("the opcode differs")
	}
	h := want.Opcode.Headers()
	type check struct {
		name      string
		want, got any
		applies   bool
	}
	for _, c := range []check{
		{"PSN", want.PSN, got.PSN, true},
		{"AckReq", want.AckReq, got.AckReq, true},
		{"SE", want.SE, got.SE, true},
		{"destination QP", want.DestQP, got.DestQP, true},
		{"P_Key", want.PKey, got.PKey, true},
		{"pad count", want.PadCnt, got.PadCnt, true},
		{"address handle", s.ah, got.ah, true},
		{"SRQ", want.XRCSRQ, got.XRCSRQ, h&wire.HasXRCETH != 0},
		{"DETH", want.DETH, got.DETH, h&wire.HasDETH != 0},
		{"FETH", want.FETH, got.FETH, h&wire.HasFETH != 0},
		{"RETH", want.RETH, got.RETH, h&wire.HasRETH != 0},
		{"AtomicETH", want.Atomic, got.Atomic, h&wire.HasAtomicETH != 0},
		{"MSN", want.AETH.MSN, got.AETH.MSN, h&wire.HasAETH != 0},
		{"syndrome", want.AETH.Syndrome, got.AETH.Syndrome, h&wire.HasAETH != 0 && s.tellsSyndrome(got)},
		{"value", want.AtomicAck, got.AtomicAck, h&wire.HasAtomicAckETH != 0},
		{"immediate", want.Imm, got.Imm, h&wire.HasImm != 0},
		{"key to invalidate", want.InvKey, got.InvKey, h&wire.HasIETH != 0},
	} {
		if c.applies && c.want != c.got {
			return fmt.Errorf("the %s is not %v but %v", c.name, c.want, c.got)
		}
	}
	if !bytes.Equal(s.payload(data), got.Payload) {
		return fmt.Errorf("the payload differs")
	}
	return nil
}

// tellsSyndrome reports whether the syndromes have to be equal: a step may omit the
// credits of an ACK.
func (s *spec) tellsSyndrome(got *packet) bool {
	return s.credits || !s.p.AETH.Syndrome.IsAck() || !got.AETH.Syndrome.IsAck()
}

// describe formats a packet like a step.
func (r *runner) describe(p *packet) string {
	if p.err != nil {
		return "a packet that does not decode: " + p.err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s psn=%d", shortName(&p.Packet), p.PSN)
	h := p.Opcode.Headers()
	add := func(applies bool, format string, args ...any) {
		if applies {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	add(p.AckReq, "AckReq")
	add(p.SE, "SE")
	add(p.ah != 0, "ah=%d", p.ah)
	add(h&wire.HasDETH != 0, "from=%#x dest=%#x qkey=%#x", uint32(p.DETH.SrcQP), uint32(p.DestQP), p.DETH.QKey)
	add(h&wire.HasXRCETH != 0, "srq=%d", p.XRCSRQ)
	add(h&wire.HasRETH != 0, "to=%s len=%d", r.addressText(p.RETH.VA, p.RETH.RKey), p.RETH.Len)
	add(h&wire.HasAtomicETH != 0, "to=%s", r.addressText(p.Atomic.VA, p.Atomic.RKey))
	if h&wire.HasFETH != 0 {
		for name, bit := range flushLevels {
			add(ib.FlushLevel(p.FETH.Placement)&bit != 0, "level=%s", name)
		}
		add(p.FETH.Selectivity == wire.FlushRegion, "extent=region")
	}
	add(p.Opcode.Op() == wire.OpFetchAdd, "add=%d", p.Atomic.Swap)
	add(p.Opcode.Op() == wire.OpCompareSwap, "compare=%d swap=%d", p.Atomic.Compare, p.Atomic.Swap)
	add(h&wire.HasAETH != 0, "msn=%d", p.AETH.MSN)
	if n, ok := p.AETH.Syndrome.Credits(); ok && h&wire.HasAETH != 0 {
		add(true, "credits=%d", n)
	}
	add(h&wire.HasAETH != 0 && p.AETH.Syndrome.IsRNR(), "delay=%v",
		time.Duration(wire.RNRDelay(p.AETH.Syndrome.Code())))
	add(h&wire.HasAtomicAckETH != 0, "was=%d", p.AtomicAck)
	add(h&wire.HasImm != 0, "imm=%#x", p.Imm)
	add(h&wire.HasIETH != 0, "inv=%#x", uint32(p.InvKey))
	switch p.Opcode {
	case wire.SACKOpcode:
		b.WriteString(sackText(&p.Packet))
		return b.String()
	case wire.CNP:
		return b.String()
	}
	add(len(p.Payload) > 0, "%s", identify(p.Payload, r.areas, r.messages))
	return b.String()
}

// sackText formats the payload of a SACK.
func sackText(p *wire.Packet) string {
	var sack wire.SACK
	if sack.Decode(p.Payload) != nil {
		return " which does not decode"
	}
	var runs []string
	for psn, n := sack.Run(sack.First); n > 0; psn, n = sack.Run(psn.Add(n)) {
		run := fmt.Sprint(uint32(psn))
		if n > 1 {
			run += fmt.Sprintf("..%d", uint32(psn.Add(n-1)))
		}
		runs = append(runs, run)
	}
	return fmt.Sprintf(" trigger=%d has=%s", uint32(sack.Trigger), strings.Join(runs, ","))
}
