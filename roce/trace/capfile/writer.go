package capfile

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// maxName limits the name of an interface and the comment of a file, in bytes.
const maxName = 4 << 10

// Writer writes a capture file in pcapng format, little-endian, with times in nanoseconds. For each link type and
// direction of the packets the file has an interface: "NAME sent", "NAME received", or "NAME" if the direction is not
// known. A Reader finds the directions by these names.
//
// gopacket/pcapgo is not used: the tables of protocols that it imports would cost every program with this stack tens of
// milliseconds at its start, and 8 MB.
type Writer struct {
	w     *bufio.Writer
	name  string
	link  LinkType
	faces []face // the interfaces of the file, by their numbers
	block []byte // the block that is being made
}

// face is an interface of the file.
type face struct {
	link LinkType
	dir  Direction
}

// NewWriter writes the start of a file to w, with interfaces for packets of a link type that are sent and received.
// name is that of the interface; comment is about the file, and may be empty. Each is limited to 4,096 bytes: then the
// error is an *ib.AttrError that wraps ib.ErrInvalid. All others are those of w.
func NewWriter(w io.Writer, link LinkType, name, comment string) (*Writer, error) {
	for _, text := range []struct{ attr, value string }{{"name", name}, {"comment", comment}} {
		if n := len(text.value); n > maxName {
			return nil, driver.Refuse("write capture file", text.attr, fmt.Sprintf("%d bytes", n),
				fmt.Sprintf("at most %d bytes", maxName), ib.ErrInvalid)
		}
	}
	c := &Writer{w: bufio.NewWriter(w), name: name, link: link}
	c.begin(blockSection)
	c.uint32(byteOrderMagic)
	c.uint32(1)         // version 1.0
	c.uint64(1<<64 - 1) // the length of the section is not known
	c.option(optComment, []byte(comment))
	c.option(optApplication, []byte("goroce"))
	c.option(optEnd, nil)
	if err := c.end(); err != nil {
		return nil, err
	}
	for _, dir := range []Direction{Sent, Received} {
		if _, err := c.face(link, dir); err != nil {
			return nil, err
		}
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	return c, nil
}

// Write writes a packet, of which Num is not used. A WireLen below the length of Data counts as that length. If Data
// has more than MaxCapture bytes, the error is an *ib.AttrError that wraps ib.ErrInvalid, and nothing is written.
func (c *Writer) Write(p *Packet) error {
	if n := len(p.Data); n > MaxCapture {
		return driver.Refuse("write capture file", "Data", fmt.Sprintf("%d bytes", n),
			fmt.Sprintf("at most %d bytes; cut the packet", MaxCapture), ib.ErrInvalid)
	}
	id, err := c.face(p.Link, p.Dir)
	if err != nil {
		return err
	}
	c.begin(blockPacket)
	c.uint32(id)
	c.time(p.At)
	c.uint32(uint32(len(p.Data)))
	c.uint32(uint32(max(p.WireLen, len(p.Data))))
	c.padded(p.Data)
	return c.end()
}

// Statistics writes, at a time like that of a Packet, how many packets of a direction were to be captured so far, and
// how many of them are not in the file. They are those of the interface with the link type given to NewWriter.
func (c *Writer) Statistics(dir Direction, at ib.Instant, captured, dropped uint64) error {
	id, err := c.face(c.link, dir)
	if err != nil {
		return err
	}
	c.begin(blockStatistics)
	c.uint32(id)
	c.time(at)
	c.option(optReceived, binary.LittleEndian.AppendUint64(nil, captured))
	c.option(optDropped, binary.LittleEndian.AppendUint64(nil, dropped))
	c.option(optEnd, nil)
	return c.end()
}

// Flush writes what is buffered. The file is complete after it.
func (c *Writer) Flush() error { return c.w.Flush() }

// face returns the number of an interface, which it describes first if the file does not have it yet.
func (c *Writer) face(link LinkType, dir Direction) (uint32, error) {
	f := face{link, dir}
	if i := slices.Index(c.faces, f); i >= 0 {
		return uint32(i), nil
	}
	c.faces = append(c.faces, f)
	c.begin(blockInterface)
	c.uint32(uint32(link)) // and 16 reserved bits
	c.uint32(0)            // packets of any length
	c.option(optName, []byte(c.name+dirSuffix(dir)))
	c.option(optTSResol, []byte{9}) // 10^-9 s
	c.option(optEnd, nil)
	return uint32(len(c.faces) - 1), c.end()
}

// begin begins a block. Its length is filled in by end.
func (c *Writer) begin(typ uint32) {
	c.block = c.block[:0]
	c.uint32(typ)
	c.uint32(0)
}

// end writes the block, with its length at both ends.
func (c *Writer) end() error {
	n := uint32(len(c.block) + 4)
	binary.LittleEndian.PutUint32(c.block[4:], n)
	c.uint32(n)
	_, err := c.w.Write(c.block)
	return err
}

func (c *Writer) uint32(v uint32) { c.block = binary.LittleEndian.AppendUint32(c.block, v) }
func (c *Writer) uint64(v uint64) { c.block = binary.LittleEndian.AppendUint64(c.block, v) }

// time appends a time, whose halves have an order of their own.
func (c *Writer) time(at ib.Instant) {
	c.uint32(uint32(uint64(at) >> 32))
	c.uint32(uint32(at))
}

// option appends an option, unless it is an empty text.
func (c *Writer) option(code uint16, value []byte) {
	if code != optEnd && len(value) == 0 {
		return
	}
	c.block = binary.LittleEndian.AppendUint16(c.block, code)
	c.block = binary.LittleEndian.AppendUint16(c.block, uint16(len(value)))
	c.padded(value)
}

// padded appends bytes, and zeros up to a multiple of four.
func (c *Writer) padded(b []byte) {
	c.block = append(c.block, b...)
	c.block = append(c.block, make([]byte, -len(b)&3)...)
}
