package capfile

import (
	"io"

	"github.com/goroce/goroce/ib"
)

const (
	pcapHeaderLen = 24
	pcapRecordLen = 16
)

// pcapHeader reads the file header (draft-ietf-opsawg-pcap, section 4): magic,
// version 2.4, two unused words, snapshot length, link type.
func (c *Reader) pcapHeader() error {
	b, err := c.read(pcapHeaderLen, "the file header")
	if err != nil {
		return err
	}
	if major := c.order.Uint16(b[4:]); major != 2 {
		return c.fail(ErrFormat, "pcap version %d; want 2", major)
	}
	// The upper 16 bits say whether an FCS follows each packet, and its length; bytes after the IP packet are ignored
	// anyway.
	c.link = LinkType(c.order.Uint32(b[20:]))
	return nil
}

// nextPcap reads a packet record (section 5).
func (c *Reader) nextPcap(p *Packet) error {
	if c.atEnd() {
		return io.EOF
	}
	c.num++
	b, err := c.read(pcapRecordLen, "the packet's header")
	if err != nil {
		return err
	}
	sec, frac := int64(c.order.Uint32(b)), int64(c.order.Uint32(b[4:]))
	captured, length := c.order.Uint32(b[8:]), c.order.Uint32(b[12:])
	at := ib.Instant(sec*1e9 + frac*c.tickNS)
	return c.packet(p, at, c.link, captured, length)
}

// packet reads the bytes of a packet.
func (c *Reader) packet(p *Packet, at ib.Instant, link LinkType, captured, length uint32) error {
	if captured > MaxCapture {
		return c.fail(ErrCorrupt, "captured length %d; at most %d", captured, MaxCapture)
	}
	data, err := c.read(int(captured), "the packet")
	if err != nil {
		return err
	}
	// Some writers store a length below that of the captured bytes.
	wireLen := min(max(int64(length), int64(captured)), 1<<30)
	*p = Packet{Num: c.num, At: at, Link: link, Data: data, WireLen: int(wireLen),
		Dir: link.direction(data)}
	return nil
}
