package rsocket

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/simtest"
)

var sampleRecord = record{
	ioMap: true, credits: 384, mapSlots: 512,
	sgl:  sge{addr: 0x1122334455667788, key: 0xA1A2A3A4, length: 2},
	data: sge{addr: 0x0102030405060708, key: 0xB1B2B3B4, length: 65536},
}

// TestRecord pins the layout of the connection record (struct rs_conn_data).
func TestRecord(t *testing.T) {
	const want = "01" + "02" + "0180" + "000000" + "82" + "1122334455667788" + "a1a2a3a4" + "00000002" +
		"0102030405060708" + "b1b2b3b4" + "00010000"
	b := sampleRecord.append(nil)
	if got := hex.EncodeToString(b); got != want {
		t.Fatalf("record\n%s, want\n%s", got, want)
	}
	got, err := parseRecord(append(b, make([]byte, 16)...)) // private data is padded
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sampleRecord, got, cmp.AllowUnexported(record{}, sge{})); d != "" {
		t.Error(d)
	}
}

func TestBadRecord(t *testing.T) {
	good := sampleRecord.append(nil)
	for n := range good {
		if _, err := parseRecord(good[:n]); !isProtocolError(err) {
			t.Errorf("record of %d bytes: %v, want a *ProtocolError", n, err)
		}
	}
	for what, spoil := range map[string]func([]byte){
		"version 0":           func(b []byte) { b[0] = 0 },
		"version 2":           func(b []byte) { b[0] = 2 },
		"no credits":          func(b []byte) { b[2], b[3] = 0, 0 },
		"SGL of one entry":    func(b []byte) { b[23] = 1 },
		"SGL of 4 G entries":  func(b []byte) { b[20] = 0xFF },
		"SGL at the very end": func(b []byte) { binary.BigEndian.PutUint64(b[8:], ^uint64(0)-8) },
		"data at the end":     func(b []byte) { binary.BigEndian.PutUint64(b[24:], ^uint64(0)-8) },
	} {
		b := slices.Clone(good)
		spoil(b)
		if _, err := parseRecord(b); !isProtocolError(err) {
			t.Errorf("%s: %v, want a *ProtocolError", what, err)
		}
	}
}

func isProtocolError(err error) bool {
	_, ok := errors.AsType[*ProtocolError](err)
	return ok
}

func FuzzRecord(f *testing.F) {
	f.Add(sampleRecord.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		again, err := parseRecord(r.append(nil))
		if err != nil || again != r {
			t.Errorf("%+v, %v; want %+v", again, err, r)
		}
	})
}

func TestMapCode(t *testing.T) {
	for slots, code := range map[int]uint8{0: 0, 1: 1, 127: 127, 128: 128, 256: 129, 512: 130, 32512: 255} {
		if got := mapCode(slots); got != code {
			t.Errorf("%d slots have code %d, want %d", slots, got, code)
		}
		if got := mapSlots(code); got != slots {
			t.Errorf("code %d stands for %d slots, want %d", code, got, slots)
		}
	}
}

// TestOpening plays a peer through the first messages: where data goes, what is
// granted when, and how the buffers alternate.
func TestOpening(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		r := newRaw(t, n, Options{ReceiveBuffer: 8192, ReceiveQueue: 16}, nil)
		data := r.their.data

		// The second half was offered at once, as entry 1.
		second := data
		second.addr += 4096
		if got := parseSGE(r.table()[sgeLen:], binary.NativeEndian); got != second {
			t.Errorf("entry 1 is %+v, want %+v", got, second)
		}

		// Half of the queue, eight messages, makes a grant without an entry.
		for i := range 8 {
			r.write(data.addr+uint64(4*i), data.key, []byte("data"), msgData, 4)
		}
		if n := r.want(msgCredits, 16+8); n != 0 {
			t.Errorf("a grant with %d bytes, want none: nothing was read", n)
		}

		// A half that was read comes back as entry 0.
		r.write(data.addr+32, data.key, make([]byte, 4064), msgData, 4064)
		buf := make([]byte, 4096)
		if _, err := io.ReadFull(r.conn, buf); err != nil {
			t.Fatal(err)
		}
		if string(buf[:8]) != "datadata" {
			t.Errorf("read %q, want %q", buf[:8], "datadata")
		}
		if n := r.want(msgCredits, 16+9); n != sgeLen {
			t.Errorf("a grant with %d bytes, want an entry", n)
		}
		if got := parseSGE(r.table(), binary.NativeEndian); got != data {
			t.Errorf("entry 0 is %+v, want %+v", got, data)
		}
	})
}

// TestCredits lets a Conn write to a peer that allows little: three messages, then
// seven bytes.
func TestCredits(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		r := newRaw(t, n, Options{}, func(mine *record) { mine.credits, mine.data.length = 3, 16 })
		wrote := make(chan error, 1)
		write := func(s ...string) {
			go func() {
				for _, s := range s {
					if _, err := io.WriteString(r.conn, s); err != nil {
						wrote <- err
						return
					}
				}
				wrote <- nil
			}()
		}
		write("one", "two", "three", "four+")
		r.want(msgData, 3)
		r.want(msgData, 3)
		r.want(msgData, 5)
		r.quiet() // no credits
		r.say(msgCredits, 100)
		r.want(msgData, 5)
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if got := string(r.h.ep.data[:16]); got != "onetwothreefour+" {
			t.Errorf("the buffer holds %q, want %q", got, "onetwothreefour+")
		}

		write("fifth")
		r.quiet() // no space
		seven := sge{addr: r.h.ep.dataMR.Addr() + 100, key: r.h.ep.dataMR.RKey(), length: 2}
		r.entry(1, seven, 100)
		r.want(msgData, 2)
		r.quiet()
		seven.addr, seven.length = seven.addr+2, 5
		r.entry(0, seven, 100)
		r.want(msgData, 3)
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if got := string(r.h.ep.data[100:105]); got != "fifth" {
			t.Errorf("the buffer holds %q, want %q", got, "fifth")
		}
	})
}

// TestSequenceWraps sends more messages than 16 bits count.
func TestSequenceWraps(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{})
		const messages = 1<<16 + 1000
		go func() {
			for range messages {
				if _, err := p.a.Write([]byte{1}); err != nil {
					t.Error(err)
					break
				}
			}
			p.a.CloseWrite()
		}()
		if got, err := io.Copy(io.Discard, p.b); err != nil || got != messages {
			t.Errorf("%d bytes arrived, %v, want %d", got, err, messages)
		}
	})
}

// TestByteOrder has a peer of the other byte order: entries for it are written in
// that order.
func TestByteOrder(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		r := newRaw(t, n, Options{}, func(mine *record) { mine.bigEndian = !hostBigEndian })
		want := r.their.data
		want.addr += uint64(want.length)
		if got := parseSGE(r.table()[sgeLen:], other); got != want {
			t.Errorf("entry 1 is %+v, want %+v", got, want)
		}
	})
}

// TestHostile sends what no rsocket sends. The connection ends, and the error says
// why.
func TestHostile(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(*raw)
	}{
		{"type 1", func(r *raw) { r.say(1, 0) }},
		{"type 2", func(r *raw) { r.say(2, 0) }},
		{"type 3", func(r *raw) { r.say(3, 0) }},
		{"type 5", func(r *raw) { r.say(5, 0) }},
		{"control 3", func(r *raw) { r.say(msgControl, 3) }},
		{"more data than offered", func(r *raw) { r.say(msgData, 128<<10+1) }},
		{"iomap entry out of range", func(r *raw) { r.say(msgMap, 2) }},
		{"target around the end of memory", func(r *raw) {
			go io.WriteString(r.conn, "some bytes")
			r.want(msgData, 4)
			r.entry(1, sge{addr: ^uint64(0), length: 100}, 10)
		}},
		{"offset out of range", func(r *raw) {
			e := mapEntry{offset: 1<<63 - 2, sge: sge{length: 9}}
			r.write(r.their.sgl.addr+2*sgeLen, r.their.sgl.key, e.append(nil, r.their.byteOrder()), msgMap, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
				r := newRaw(t, n, Options{MapSlots: 2}, func(mine *record) { mine.data.length = 4 })
				c.send(r)
				_, err := r.conn.Read(make([]byte, 1))
				if !isProtocolError(err) || !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("Read: %v, want ECONNRESET because of a *ProtocolError", err)
				}
				if _, err := r.conn.Write([]byte{1}); !isProtocolError(err) {
					t.Errorf("Write: %v, want a *ProtocolError", err)
				}
			})
		})
	}
}

// nullQP takes everything and does nothing.
type nullQP struct{ ib.QP }

func (nullQP) PostSend(wrs []ib.SendWR) (int, error) { return len(wrs), nil }
func (nullQP) Close() error                          { return nil }

// FuzzMessages has a peer that writes anything into the table and says anything.
// What is left must add up.
func FuzzMessages(f *testing.F) {
	dev, _ := overMem(f)
	ep, err := newEndpoint(dev, Options{ReceiveBuffer: 4096, ReceiveQueue: 16, SendQueue: 16, MapSlots: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0x80, 0, 0, 32, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 9, 0xC0, 0, 0, 1}, []byte("a table"))
	f.Fuzz(func(t *testing.T, messages, table []byte) {
		for i := range ep.table {
			ep.table[i] = 0
			for j := 8 * i; j < min(8*i+8, len(table)); j++ {
				ep.table[i] |= uint64(table[j]) << (8 * (j % 8))
			}
		}
		peer := sampleRecord
		c := &Conn{ep: ep, qp: nullQP{}, in: newInbound(4096, 16),
			out: newOutbound(len(ep.send), 16, ep.table[:4], &peer), maps: newMappings(ep.table[4:], &peer)}
		for ; len(messages) >= 4; messages = messages[4:] {
			if err := c.receive(binary.BigEndian.Uint32(messages)); err != nil {
				if !isProtocolError(err) {
					t.Fatalf("%v, want a *ProtocolError", err)
				}
				return
			}
			first, second := c.in.unread(ep.data, 1000)
			c.in.consumed(len(first) + len(second))
			c.grant()
			if sum := c.in.avail + c.in.offered + c.in.freed; sum != c.in.size || c.in.offered < 0 {
				t.Fatalf("the receive buffer does not add up: %+v; want a sum of %d, none negative", c.in, c.in.size)
			}
			if n := c.out.room(); n > 0 {
				c.out.take(n)
				c.out.slots++
				if err := c.out.nextTarget(); err != nil && !isProtocolError(err) {
					t.Fatal(err)
				}
			}
		}
	})
}
