package capfile

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/bits"

	"github.com/goroce/goroce/ib"
)

// Block types (draft-ietf-opsawg-pcapng, section 4).
const (
	blockSection    = 0x0A0D0D0A
	blockInterface  = 1
	blockOldPacket  = 2
	blockSimple     = 3
	blockStatistics = 5
	blockPacket     = 6
)

const (
	byteOrderMagic = 0x1A2B3C4D

	maxBlock      = 16 << 20 // limit of skipped blocks
	maxInterface  = 64 << 10 // limit of an interface description in bytes
	maxOptions    = 4 << 10  // options of a packet that are longer are skipped
	maxInterfaces = 4096     // limit for a section

	optEnd          = 0
	optComment      = 1
	optApplication  = 4 // of a section
	optReceived     = 4 // of statistics
	optDropped      = 5 // of statistics
	optName         = 2 // of an interface
	optFlags        = 2 // of a packet
	optTSResol      = 9
	optTSOffset     = 14
	defaultTSResol  = 6 // microseconds
	simpleHeaderLen = 4
	packetHeaderLen = 20
)

// iface is an interface of the current section.
type iface struct {
	link     LinkType
	snapLen  uint32
	tsResol  uint8 // power of ten, or of two if the top bit is set
	tsOffset int64 // seconds
	dir      Direction
}

// nextNG reads blocks until it has read a packet.
func (c *Reader) nextNG(p *Packet) error {
	for {
		if c.atEnd() {
			return io.EOF
		}
		typ, n, err := c.blockHeader()
		if err != nil {
			return err
		}
		switch typ {
		case blockSection:
			err = c.section(n)
		case blockInterface:
			err = c.interfaceBlock(n)
		case blockPacket, blockOldPacket:
			return c.packetBlock(p, typ, n)
		case blockSimple:
			return c.simpleBlock(p, n)
		default:
			err = c.skip(n+4, "a block")
		}
		if err != nil {
			return err
		}
	}
}

// blockHeader reads a block's type and returns the length of its body, without the twelve bytes of type, length, and
// trailing length.
func (c *Reader) blockHeader() (typ uint32, body int64, err error) {
	b, err := c.read(8, "a block's header")
	if err != nil {
		return 0, 0, err
	}
	if typ = c.order.Uint32(b); typ == blockSection {
		length := [4]byte(b[4:])
		magic, err := c.r.Peek(4)
		if err != nil {
			return 0, 0, c.ended(err, "within a section header")
		}
		switch uint32(byteOrderMagic) {
		case binary.LittleEndian.Uint32(magic):
			c.order = binary.LittleEndian
		case binary.BigEndian.Uint32(magic):
			c.order = binary.BigEndian
		default:
			return 0, 0, c.fail(ErrCorrupt, "section header without the byte order mark 0x1a2b3c4d")
		}
		b = append(b[:4], length[:]...)
	}
	total := c.order.Uint32(b[4:])
	if total < 12 || total%4 != 0 || total > maxBlock {
		return 0, 0, c.fail(ErrCorrupt, "block of type %#x with length %d; want 12 to %d, a multiple of 4", typ, total,
			maxBlock)
	}
	return typ, int64(total) - 12, nil
}

// section begins a new section, in which interfaces are numbered from 0.
func (c *Reader) section(n int64) error {
	if n < 16 {
		return c.fail(ErrCorrupt, "section header of %d bytes; want at least 28", n+12)
	}
	b, err := c.read(16, "a section header")
	if err != nil {
		return err
	}
	if major := c.order.Uint16(b[4:]); major != 1 {
		return c.fail(ErrFormat, "pcapng version %d; want 1", major)
	}
	c.ifaces = c.ifaces[:0]
	return c.skip(n-16+4, "a section header")
}

// interfaceBlock adds an interface: link type, snapshot length, options.
func (c *Reader) interfaceBlock(n int64) error {
	if n < 8 || n > maxInterface || len(c.ifaces) == maxInterfaces {
		return c.fail(ErrCorrupt, "interface description %d is a block of %d bytes; want at most %d "+
			"descriptions, each of 20 to %d bytes", len(c.ifaces)+1, n+12, maxInterfaces, maxInterface+12)
	}
	b, err := c.read(int(n)+4, "an interface description")
	if err != nil {
		return err
	}
	f := iface{link: LinkType(c.order.Uint16(b)), snapLen: c.order.Uint32(b[4:]), tsResol: defaultTSResol}
	c.options(b[8:n], func(code uint16, value []byte) {
		switch {
		case code == optName:
			f.dir = dirOfName(value)
		case code == optTSResol && len(value) == 1:
			f.tsResol = value[0]
		case code == optTSOffset && len(value) == 8:
			f.tsOffset = int64(c.order.Uint64(value))
		}
	})
	c.ifaces = append(c.ifaces, f)
	return nil
}

// options calls use for each option of a block.
func (c *Reader) options(opts []byte, use func(code uint16, value []byte)) {
	for len(opts) >= 4 {
		code, size := c.order.Uint16(opts), int(c.order.Uint16(opts[2:]))
		opts = opts[4:]
		padded := (size + 3) &^ 3
		if code == optEnd || padded > len(opts) {
			return
		}
		use(code, opts[:size])
		opts = opts[padded:]
	}
}

// dirSuffix ends the name of an interface in the files of a Writer; "" if the direction is not known.
func dirSuffix(d Direction) string {
	if s := d.String(); s != "" {
		return " " + s
	}
	return ""
}

// dirOfName returns the direction that a Writer tells by the name of an interface.
func dirOfName(name []byte) Direction {
	for _, d := range []Direction{Received, Sent} {
		if bytes.HasSuffix(name, []byte(dirSuffix(d))) {
			return d
		}
	}
	return DirUnknown
}

// packetBlock reads an enhanced packet block, or an obsolete packet block, which has an interface number of 16 bits.
func (c *Reader) packetBlock(p *Packet, typ uint32, n int64) error {
	c.num++
	if n < packetHeaderLen {
		return c.fail(ErrCorrupt, "packet block of %d bytes; want at least 32", n+12)
	}
	b, err := c.read(packetHeaderLen, "the packet's header")
	if err != nil {
		return err
	}
	id := c.order.Uint32(b)
	if typ == blockOldPacket {
		id = uint32(c.order.Uint16(b))
	}
	if id >= uint32(len(c.ifaces)) {
		return c.fail(ErrCorrupt, "interface %d, but the section describes %d", id, len(c.ifaces))
	}
	f := &c.ifaces[id]
	ticks := uint64(c.order.Uint32(b[4:]))<<32 | uint64(c.order.Uint32(b[8:]))
	captured, length := c.order.Uint32(b[12:]), c.order.Uint32(b[16:])
	return c.blockData(p, f, f.instant(ticks), captured, length, n-packetHeaderLen)
}

// simpleBlock reads a simple packet block, which is of the first interface and has no time.
func (c *Reader) simpleBlock(p *Packet, n int64) error {
	c.num++
	if n < simpleHeaderLen || len(c.ifaces) == 0 {
		return c.fail(ErrCorrupt, "simple packet block of %d bytes, %d interfaces; want at least 16 and 1", n+12,
			len(c.ifaces))
	}
	b, err := c.read(simpleHeaderLen, "the packet's header")
	if err != nil {
		return err
	}
	length := c.order.Uint32(b)
	captured := min(length, uint32(n-simpleHeaderLen))
	if snap := c.ifaces[0].snapLen; snap > 0 {
		captured = min(captured, snap)
	}
	return c.blockData(p, &c.ifaces[0], 0, captured, length, n-simpleHeaderLen)
}

// blockData reads the packet in the remaining n bytes of a block, looks at its options, and skips them and the block's
// trailing length.
func (c *Reader) blockData(p *Packet, f *iface, at ib.Instant, captured, length uint32, n int64) error {
	if int64(captured) > n {
		return c.fail(ErrCorrupt, "captured length %d, but the block has room for %d", captured, n)
	}
	if err := c.packet(p, at, f.link, captured, length); err != nil {
		return err
	}
	if f.dir != DirUnknown {
		p.Dir = f.dir
	}
	rest := n - int64(captured)
	padding := int64(-captured & 3)
	if size := rest - padding; size > 0 && size <= maxOptions {
		b, err := c.r.Peek(int(rest)) // not read, which would overwrite the packet
		if err != nil {
			return c.ended(err, "within the packet's options")
		}
		c.options(b[padding:], func(code uint16, value []byte) {
			if code != optFlags || len(value) != 4 {
				return
			}
			if dir := Direction(c.order.Uint32(value) & 3); dir == Received || dir == Sent {
				p.Dir = dir
			}
		})
	}
	return c.skip(rest+4, "the packet")
}

// instant converts a time stamp to nanoseconds since 1970. A resolution finer than 2^-63 or 10^-19 s is invalid, and
// counts as no time.
func (f *iface) instant(ticks uint64) ib.Instant {
	perSecond := uint64(1)
	if exp := f.tsResol & 0x7F; f.tsResol&0x80 != 0 {
		if exp > 63 {
			return 0
		}
		perSecond <<= exp
	} else {
		if exp > 19 {
			return 0
		}
		for range exp {
			perSecond *= 10
		}
	}
	hi, lo := bits.Mul64(ticks%perSecond, 1e9)
	ns, _ := bits.Div64(hi, lo, perSecond)
	return ib.Instant((int64(ticks/perSecond)+f.tsOffset)*1e9 + int64(ns))
}
