package rsocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/simtest"
)

// meet sends a byte from c and reads it at d: what c mapped or wrote before is
// there then.
func meet(t *testing.T, c, d *Conn) {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(d, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// TestMap writes into each other's buffers.
func TestMap(t *testing.T) {
	onNetworks(t, func(t *testing.T, open medium) {
		p := newPair(t, open, Options{MapSlots: 2})
		for i, c := range []struct{ owner, writer *Conn }{{p.a, p.b}, {p.b, p.a}} {
			buf, data := make([]byte, 300_000), random(uint64(i), 250_000)
			if off, err := c.owner.Map(buf, ib.RemoteWrite, 5000); err != nil || off != 5000 {
				t.Fatalf("Map: %d, %v; want 5000", off, err)
			}
			meet(t, c.owner, c.writer)
			if n, err := c.writer.WriteAt(data, 5000+1234); err != nil || n != len(data) {
				t.Fatalf("WriteAt: %d, %v; want %d", n, err, len(data))
			}
			meet(t, c.writer, c.owner)
			if !bytes.Equal(buf[1234:1234+len(data)], data) {
				t.Error("the buffer does not hold what was written")
			}
			if err := c.owner.Unmap(buf); err != nil {
				t.Fatal(err)
			}
			meet(t, c.owner, c.writer)
			if n, err := c.writer.WriteAt(data, 5000); n != 0 || !errors.Is(err, ErrNotMapped) {
				t.Errorf("WriteAt after Unmap: %d, %v, want ErrNotMapped", n, err)
			}
		}
	})
}

// TestMapBounds refuses what lies outside, and maps again in the place of what was
// unmapped, as often as one likes.
func TestMapBounds(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{MapSlots: 2})
		low, high := make([]byte, 100), make([]byte, 100)
		for i := range 100 {
			if i > 0 {
				for _, buf := range [][]byte{low, high} {
					if err := p.a.Unmap(buf); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, err := p.a.Map(low, ib.RemoteWrite, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := p.a.Map(high, ib.RemoteWrite|ib.LocalWrite, 100); err != nil {
				t.Fatal(err)
			}
		}
		meet(t, p.a, p.b)

		data := random(1, 300)
		if n, err := p.b.WriteAt(data, 50); n != 150 || !errors.Is(err, ErrNotMapped) {
			t.Errorf("WriteAt over the end: %d, %v, want 150 and ErrNotMapped", n, err)
		}
		meet(t, p.b, p.a)
		if !bytes.Equal(low[50:], data[:50]) || !bytes.Equal(high, data[50:150]) {
			t.Error("the buffers do not hold what was written")
		}
		for _, off := range []int64{-1, 200, 1 << 62} {
			if n, err := p.b.WriteAt(data, off); n != 0 || !errors.Is(err, ErrNotMapped) {
				t.Errorf("WriteAt %d: %d, %v, want ErrNotMapped", off, n, err)
			}
		}

		more := make([]byte, 10)
		for what, c := range map[string]struct {
			buf    []byte
			access ib.Access
			offset int64
			want   error
		}{
			"no slot":       {more, ib.RemoteWrite, 1000, ib.ErrLimit},
			"overlap":       {more, ib.RemoteWrite, 195, ib.ErrInvalid},
			"empty":         {nil, ib.RemoteWrite, 1000, ib.ErrInvalid},
			"reads":         {more, ib.RemoteRead, 1000, ib.ErrInvalid},
			"no rights":     {more, 0, 1000, ib.ErrInvalid},
			"offset":        {more, ib.RemoteWrite, -2, ib.ErrInvalid},
			"offset's end":  {more, ib.RemoteWrite, 1<<63 - 5, ib.ErrInvalid},
			"peer has none": {more, ib.RemoteWrite, 1000, ib.ErrLimit},
		} {
			conn := p.a
			if what == "peer has none" {
				conn = newPair(t, on(n), Options{}).a
			}
			if _, err := conn.Map(c.buf, c.access, c.offset); !errors.Is(err, c.want) {
				t.Errorf("Map, %s: %v, want %v", what, err, c.want)
			}
		}
		if err := p.a.Unmap(more); !errors.Is(err, ErrNotMapped) {
			t.Errorf("Unmap of what is not mapped: %v, want ErrNotMapped", err)
		}
		if err := p.a.Unmap(nil); !errors.Is(err, ErrNotMapped) {
			t.Errorf("Unmap of nothing: %v, want ErrNotMapped", err)
		}
	})
}

// TestUnmapUntold: Unmap that cannot tell the peer says so, and ends the mapping.
func TestUnmapUntold(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		p := newPair(t, on(n), Options{MapSlots: 1})
		buf := make([]byte, 10)
		if _, err := p.a.Map(buf, ib.RemoteWrite, 0); err != nil {
			t.Fatal(err)
		}
		p.a.SetWriteDeadline(time.Unix(1, 0))
		if err := p.a.Unmap(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Unmap after the deadline: %v, want ErrDeadlineExceeded", err)
		}
		p.a.SetWriteDeadline(time.Time{})
		if err := p.a.Unmap(buf); !errors.Is(err, ErrNotMapped) {
			t.Errorf("the next Unmap: %v, want ErrNotMapped", err)
		}
	})
}

// TestMapCredits maps without spending credits, which rsocket.c would not give back.
func TestMapCredits(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		r := newRaw(t, n, Options{}, func(mine *record) { mine.credits = 2 })
		if _, err := r.conn.Map(make([]byte, 10), ib.RemoteWrite, 0); err != nil {
			t.Fatal(err)
		}
		r.want(msgMap, 0)
		for range 2 {
			if _, err := r.conn.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			r.want(msgData, 1)
		}
	})
}

// TestMapWire pins the layout of an iomap entry (struct rs_iomap): behind the SGL,
// in the peer's byte order. Offset -1 stands for the address.
func TestMapWire(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		for _, order := range []binary.ByteOrder{binary.BigEndian, binary.LittleEndian} {
			r := newRaw(t, n, Options{}, func(mine *record) { mine.bigEndian = order == binary.BigEndian })
			buf := make([]byte, 1000)
			off, err := r.conn.Map(buf, ib.RemoteWrite, -1)
			if err != nil {
				t.Fatal(err)
			}
			if n := r.want(msgMap, 0); n != mapEntryLen {
				t.Errorf("an iomap entry of %d bytes, want %d", n, mapEntryLen)
			}
			mr := r.conn.maps.ours[0].mr
			want := mapEntry{offset: uint64(off), sge: sge{addr: mr.Addr(), key: mr.RKey(), length: 1000}}
			entry := r.table()[sglEntries*sgeLen:]
			if got := (mapEntry{order.Uint64(entry), parseSGE(entry[8:], order)}); got != want ||
				got.offset != mr.Addr() {
				t.Errorf("%v: the entry is %+v, want %+v", order, got, want)
			}
			if err := r.conn.Unmap(buf); err != nil {
				t.Fatal(err)
			}
			r.want(msgMap, 0)
			if !bytes.Equal(entry, make([]byte, mapEntryLen)) {
				t.Errorf("the entry after Unmap is %x, want zeros", entry)
			}
		}
	})
}
