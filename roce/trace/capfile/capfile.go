// Package capfile reads and writes capture files, such as those of tcpdump and Wireshark. A [Reader] reads pcap with
// microseconds or nanoseconds, and pcapng, in either byte order; a [Writer] writes pcapng. Both are for one goroutine
// at a time, and know nothing of what is in the packets.
//
// Files may come from anywhere and are not trusted: whatever the bytes, the reader returns packets or an Error that
// names the file and the packet, and never keeps more than MaxCapture bytes of a file. The readers of gopacket/pcapgo
// are not used because they allocate as much as a length field says, divide by a time resolution from the file, and
// store link types in 8 bits, too few for LINUX_SLL2 (276), which "tcpdump -i any" writes.
package capfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/goroce/goroce/ib"
)

// MaxCapture limits the captured bytes of a packet, as in tcpdump and wireshark.
const MaxCapture = 256 << 10

// Sentinels for errors.Is.
var (
	ErrFormat    = errors.New("not a capture file")
	ErrTruncated = errors.New("file ends too early")
	ErrCorrupt   = errors.New("damaged file")
)

// Error says where and why a capture file could not be read.
type Error struct {
	File   string
	Packet int    // the packet that could not be read, from 1; 0 is the file header
	Detail string // what was found, and what is allowed
	Err    error  // one of the sentinels, or the error of the underlying reader
}

func (e *Error) Error() string {
	where := "file header"
	if e.Packet > 0 {
		where = fmt.Sprintf("packet %d", e.Packet)
	}
	return fmt.Sprintf("%s: %s: %v: %s", e.File, where, e.Err, e.Detail)
}

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// Packet is a captured packet.
type Packet struct {
	Num     int        // from 1
	At      ib.Instant // nanoseconds since 1970; 0 if the file has no time
	Link    LinkType   // the kind of header at the start of Data
	Data    []byte     // at most MaxCapture bytes; of a Reader, valid until the next call of Next
	WireLen int        // length on the wire, at least len(Data)
	Dir     Direction
}

// Direction says on which side of the capturing host a packet was. The values are those of epb_flags in pcapng.
type Direction uint8

// Directions.
const (
	DirUnknown Direction = iota // the file does not say
	Received
	Sent
)

// String returns the word for the direction, "" if it is not known.
func (d Direction) String() string {
	switch d {
	case Received:
		return "received"
	case Sent:
		return "sent"
	}
	return ""
}

// Reader reads the packets of one file.
type Reader struct {
	name  string
	r     *bufio.Reader
	num   int // number of the packet being read
	buf   []byte
	order binary.ByteOrder
	next  func(*Packet) error

	// Fields of pcap files.
	link   LinkType
	tickNS int64

	// Fields of pcapng files.
	ifaces []iface
}

// The first four bytes of a file, as a little-endian number.
const (
	magicMicro    = 0xA1B2C3D4
	magicMicroBig = 0xD4C3B2A1
	magicNano     = 0xA1B23C4D
	magicNanoBig  = 0x4D3CB2A1
	magicNG       = 0x0A0D0D0A // the same in both byte orders
	magicGzip     = 0x8B1F     // two bytes
)

// NewReader reads the header of a file. name appears in errors.
func NewReader(name string, r io.Reader) (*Reader, error) {
	c := &Reader{name: name, r: bufio.NewReaderSize(r, 64<<10), order: binary.LittleEndian}
	head, err := c.r.Peek(4)
	if err != nil {
		return nil, c.ended(err, "shorter than any file header")
	}
	magic := binary.LittleEndian.Uint32(head)
	switch magic {
	case magicMicroBig, magicNanoBig:
		c.order = binary.BigEndian
	}
	switch magic {
	case magicMicro, magicMicroBig:
		c.next, c.tickNS = c.nextPcap, 1000
		return c, c.pcapHeader()
	case magicNano, magicNanoBig:
		c.next, c.tickNS = c.nextPcap, 1
		return c, c.pcapHeader()
	case magicNG:
		c.next = c.nextNG
		return c, nil
	}
	if magic&0xFFFF == magicGzip {
		return nil, c.fail(ErrFormat, "it is compressed; unpack it with gunzip first")
	}
	return nil, c.fail(ErrFormat, "begins with %#08x; want pcap or pcapng, as tcpdump -w and wireshark write", magic)
}

// Next reads a packet into p. It returns io.EOF after the last one, and an *Error if the file cannot be read. After an
// error it must not be called again.
func (c *Reader) Next(p *Packet) error { return c.next(p) }

// read reads the next n bytes, at most MaxCapture and headers, into the buffer.
func (c *Reader) read(n int, what string) ([]byte, error) {
	if cap(c.buf) < n {
		c.buf = make([]byte, n, max(n, 2048))
	}
	b := c.buf[:n]
	if _, err := io.ReadFull(c.r, b); err != nil {
		return nil, c.ended(err, "within "+what)
	}
	return b, nil
}

// skip skips n bytes.
func (c *Reader) skip(n int64, what string) error {
	if _, err := io.CopyN(io.Discard, c.r, n); err != nil {
		return c.ended(err, "within "+what)
	}
	return nil
}

// atEnd reports whether the file ends here, which must be between packets.
func (c *Reader) atEnd() bool {
	_, err := c.r.Peek(1)
	return err == io.EOF
}

// ended converts the error of a read to an *Error.
func (c *Reader) ended(err error, detail string) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = ErrTruncated
	}
	return c.fail(err, "%s", detail)
}

func (c *Reader) fail(err error, format string, args ...any) error {
	return &Error{File: c.name, Packet: c.num, Detail: fmt.Sprintf(format, args...), Err: err}
}
