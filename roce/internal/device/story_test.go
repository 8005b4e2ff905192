package device_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/roce/trace/story"
	"github.com/goroce/goroce/wire"
)

// tell draws a story as a tool does, and checks the lines of it that the test wants: each is in the text, in this
// order.
func tell(t *testing.T, s *story.Story, want ...string) {
	t.Helper()
	ladder := s.Ladder(40)
	text := ladder.Text(trace.TextOptions{Width: 120, ASCII: true})
	t.Logf("%v\n%s", s.Failed.Cause, text)
	rest := text
	for _, w := range want {
		at := strings.Index(rest, w)
		if at < 0 {
			t.Fatalf("got a story, want %q at its place:\n%s", w, text)
		}
		rest = rest[at+len(w):]
	}
}

// only returns the only failure that a device remembers.
func only(t *testing.T, d *device.Device) *story.Story {
	t.Helper()
	list := d.Failures()
	if len(list) != 1 {
		t.Fatalf("got %d failures, want 1", len(list))
	}
	return &list[0]
}

// TestStoryRetries: who gives up knows how often it has sent the packet, and when.
func TestStoryRetries(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	w.connect(1024, func(a *ib.QPAttr) { a.RetryCnt = 2 })
	must(t, w.b.qp.Close())
	w.write(0, 8, nil)
	w.poll(w.a)
	must(t, w.a.qp.Close()) // the story stays
	s := only(t, w.a.dev)
	tell(t, s, "RDMA WRITE 8 B", "WRITE Only psn=16777200", "2 retries left", "sent again", "1 retries left",
		"sent again", "0 retries left", "fails: the peer does not answer", "RTS to ERR",
		"transport retry counter exceeded")
	if s.Failed.Cause.Reason != ib.ReasonSilence {
		t.Errorf("got reason %v, want silence", s.Failed.Cause.Reason)
	}
}

// TestStoryRemoteAccess: each end has its half of a WRITE that is refused; the NAK is in both.
func TestStoryRemoteAccess(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	w.connect(1024, nil)
	w.write(0, 8, nil)
	w.poll(w.a)
	w.write(4096-6, 64, nil)
	w.poll(w.a)
	tell(t, only(t, w.a.dev), "ACK psn=16777200", "RDMA WRITE 64 B", "NAK remote access error psn=16777201",
		"fails: the peer does not allow the access", "RTS to ERR")
	tell(t, only(t, w.b.dev), "WRITE Only psn=16777201", "refuses psn 16777201: the bytes are not all in the region",
		"RTS to ERR", "NAK remote access error psn=16777201")
}

// TestStoryRNR: a SEND that finds no receive is told to wait, and goes on.
func TestStoryRNR(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	w.connect(1024, func(a *ib.QPAttr) { a.RNRRetry = 1 })
	w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10)})
	w.poll(w.a)
	tell(t, only(t, w.a.dev), "SEND 10 B", "SEND Only", "RNR NAK", "the peer's wait is over", "sent again", "RNR NAK",
		"fails: the peer has no receive posted")
	s, err := w.b.dev.Failure(w.b.qp)
	must(t, err)
	tell(t, &s, "SEND Only", "no receive is posted", "RNR NAK", "SEND Only", "no receive is posted")
}

// TestStoryLoss: a packet that is lost is asked for and sent again; nothing fails, but the recorder has it.
func TestStoryLoss(t *testing.T) {
	w := newWorld(t, 1, 4096, stack{above: same, below: lossy})
	w.connect(1024, nil)
	w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 4096)})
	w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 4096)})
	w.poll(w.a)
	a, err := w.a.dev.Failure(w.a.qp)
	must(t, err)
	tell(t, &a, "SEND First psn=16777200", "NAK PSN sequence error psn=16777201", "psn 16777201 is missing there",
		"SEND Middle psn=16777201", "sent again", "completion: SEND")
	b, err := w.b.dev.Failure(w.b.qp)
	must(t, err)
	tell(t, &b, "SEND Middle psn=16777202", "packets before it are missing", "SEND Last psn=16777203", "kept",
		"NAK PSN sequence error")
	if n := len(w.a.dev.Failures()); n != 0 {
		t.Errorf("got %d failures, want none", n)
	}
}

// lossy makes A's link lose the second packet that is sent.
func lossy(l link.Link) link.Link {
	if l.Caps().Local[0] != gidA {
		return l
	}
	lost := false
	return &filtered{Link: l, passes: func(p *wire.Packet) bool {
		first := p.PSN == 0xFFFFF1 && !lost
		lost = lost || first
		return !first
	}}
}

// TestStoryBounds: a device remembers 64 failures, and they keep no more recorders than that. With more QPs than there
// are recorders, all work, and the recorders of QPs that are idle go to others.
func TestStoryBounds(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	var first []ib.QP
	for i := range 1200 {
		w.connect(1024, nil)
		if i == 0 {
			first = []ib.QP{w.a.qp, w.b.qp}
		}
		w.write(0, 8, nil)
		w.poll(w.a)
		w.now += 5e6
	}
	s, err := w.a.dev.Failure(w.a.qp)
	must(t, err)
	tell(t, &s, "RDMA WRITE 8 B", "ACK")
	if s, err = w.a.dev.Failure(first[0]); err != nil || len(s.Records) != 0 {
		t.Errorf("got %d records of the QP that was idle for longest, %v; want none", len(s.Records), err)
	}
	for i := range 70 {
		w.connect(1024, nil)
		w.write(4096, 8+i, nil)
		w.poll(w.a)
		must(t, w.a.qp.Close())
		must(t, w.b.qp.Close())
	}
	for _, h := range []*host{w.a, w.b} {
		list := h.dev.Failures()
		if len(list) != 64 {
			t.Errorf("got %d failures, want 64", len(list))
		}
		for i := range list {
			if len(list[i].Records) == 0 {
				t.Errorf("failure %d has no records, want some", i)
			}
		}
	}
}

// TestStoryAfterReset: a QP that has failed, and is used for another connection, begins another story.
func TestStoryAfterReset(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	w.connect(1024, nil)
	w.write(4095, 2, nil)
	w.poll(w.a)
	before := only(t, w.a.dev)
	w.modify(w.a.qp, ib.QPAttr{State: ib.StateReset}, ib.AttrState)
	w.modify(w.b.qp, ib.QPAttr{State: ib.StateReset}, ib.AttrState)
	w.bringUp(w.a, gidB, w.b.qp.Num(), 1024, nil)
	w.bringUp(w.b, gidA, w.a.qp.Num(), 1024, nil)
	w.write(0, 2, nil)
	w.poll(w.a)
	if after := only(t, w.a.dev); !slices.Equal(before.Records, after.Records) {
		t.Errorf("got %d records of the failure after another connection, want the %d from before", len(after.Records),
			len(before.Records))
	}
	s, err := w.a.dev.Failure(w.a.qp)
	must(t, err)
	tell(t, &s, "in RTS", "RDMA WRITE 2 B")
	if err := w.a.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.a.dev.Failure(w.a.qp); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("got %v of a QP that is closed, want %v", err, ib.ErrClosed)
	}
}

// TestStoryCapture: the packets in the file of a story are those of a capture of the same conversation, with all
// headers and without payload.
func TestStoryCapture(t *testing.T) {
	var full bytes.Buffer
	began := time.Unix(1_700_000_000, 0)
	w := newWorld(t, 1, 8192, stack{above: func(l link.Link) link.Link {
		if l.Caps().Local[0] != gidA {
			return l
		}
		c, err := wrap.Pcap(l, &full, began)
		must(t, err)
		return c
	}, below: same})
	w.connect(1024, nil)
	for _, wr := range []ib.SendWR{
		{Opcode: ib.WRWrite, SGL: w.a.sge(0, 3000)}, {Opcode: ib.WRRead, SGL: w.a.sge(0, 3000)},
		{Opcode: ib.WRCompareSwap, SGL: w.a.sge(0, 8), Compare: 0x1122334455667788, Swap: 7},
		{Opcode: ib.WRFetchAdd, SGL: w.a.sge(0, 8), Compare: 3},
		{Opcode: ib.WRAtomicWrite, SGL: w.a.sge(0, 8)},
		{Opcode: ib.WRWriteImm, SGL: w.a.sge(0, 5), Imm: 0xAABBCCDD},
		{Opcode: ib.WRSendImm, SGL: w.a.sge(0, 2000), Imm: 9},
	} {
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 4096)})
		wr.RemoteAddr, wr.RKey = w.b.mr.Addr(), w.b.mr.RKey()
		w.send(w.a, wr)
		if wc := w.poll(w.a); wc.Status != ib.WCSuccess {
			t.Fatal(wc.Err())
		}
	}
	w.write(8190, 64, nil)
	w.poll(w.a)
	must(t, w.a.dev.Close())
	var file bytes.Buffer
	s := only(t, w.a.dev)
	must(t, s.WriteCapture(&file, began))
	want, got := headersIn(t, &full), headersIn(t, &file)
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("packet %d: got\n%s, want\n%s", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d packets, want %d", len(got), len(want))
	}
}

// headersIn returns the direction, length and headers of each packet of a file, without the IPv4 identification.
func headersIn(t *testing.T, file io.Reader) (list []string) {
	t.Helper()
	r, err := capfile.NewReader("capture", file)
	must(t, err)
	for {
		var p capfile.Packet
		err := r.Next(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		must(t, err)
		const outer = wire.EtherLen + wire.IPv4Len + wire.UDPLen
		n := outer + wire.Opcode(p.Data[outer]).HeaderLen()
		head := slices.Clone(p.Data[:n])
		clear(head[wire.EtherLen+4 : wire.EtherLen+6])   // identification
		clear(head[wire.EtherLen+10 : wire.EtherLen+12]) // checksum
		list = append(list, fmt.Sprintf("%v %d %x", p.Dir, p.WireLen, head))
	}
}
