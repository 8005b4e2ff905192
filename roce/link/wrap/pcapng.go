package wrap

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"
)

// Blocks and options of a capture file (draft-ietf-opsawg-pcapng, section 4).
const (
	ngSection    = 0x0A0D0D0A
	ngInterface  = 1
	ngStatistics = 5
	ngPacket     = 6

	ngByteOrder = 0x1A2B3C4D
	ngVersion   = 1         // 1.0
	ngUnknown   = 1<<64 - 1 // the length of a section
	ngEthernet  = 1         // LINKTYPE_ETHERNET

	ngOptEnd     = 0
	ngOptComment = 1
	ngOptApp     = 4 // of a section
	ngOptName    = 2 // of an interface
	ngOptTSResol = 9 // of an interface
	ngOptRecv    = 4 // of statistics
	ngOptDrop    = 5 // of statistics

	ngNanoseconds = 9 // a resolution: the negative exponent of ten
)

// ngWriter writes a capture file in pcapng format, little-endian, with times in nanoseconds. gopacket/pcapgo is not
// used: the tables of protocols that it imports would cost every program with this stack tens of milliseconds at its
// start, and 8 MB.
type ngWriter struct {
	w     *bufio.Writer
	block []byte // the block that is being made
}

// newNGWriter writes the start of a file: a section with one interface for each name.
func newNGWriter(w io.Writer, comment string, names ...string) (*ngWriter, error) {
	ng := &ngWriter{w: bufio.NewWriter(w)}
	ng.begin(ngSection)
	ng.uint32(ngByteOrder)
	ng.uint32(ngVersion)
	ng.uint64(ngUnknown)
	ng.option(ngOptComment, []byte(comment))
	ng.option(ngOptApp, []byte("goroce"))
	ng.option(ngOptEnd, nil)
	err := ng.end()
	for _, name := range names {
		ng.begin(ngInterface)
		ng.uint32(ngEthernet)
		ng.uint32(0) // packets of any length
		ng.option(ngOptName, []byte(name))
		ng.option(ngOptTSResol, []byte{ngNanoseconds})
		ng.option(ngOptEnd, nil)
		if e := ng.end(); err == nil {
			err = e
		}
	}
	if err == nil {
		err = ng.flush()
	}
	return ng, err
}

// packet writes a whole packet of an interface.
func (ng *ngWriter) packet(itf int, at time.Time, data []byte) error {
	ng.begin(ngPacket)
	ng.uint32(uint32(itf))
	ng.time(at)
	ng.uint32(uint32(len(data))) // captured
	ng.uint32(uint32(len(data))) // on the wire
	ng.padded(data)
	return ng.end()
}

// statistics writes how many packets of an interface were selected, and how many of them are not in the file.
func (ng *ngWriter) statistics(itf int, at time.Time, n CaptureCounts) error {
	ng.begin(ngStatistics)
	ng.uint32(uint32(itf))
	ng.time(at)
	ng.option(ngOptRecv, binary.LittleEndian.AppendUint64(nil, n.Matched))
	ng.option(ngOptDrop, binary.LittleEndian.AppendUint64(nil, n.Dropped))
	ng.option(ngOptEnd, nil)
	return ng.end()
}

func (ng *ngWriter) flush() error { return ng.w.Flush() }

// begin begins a block. Its length is filled in by end.
func (ng *ngWriter) begin(typ uint32) {
	ng.block = ng.block[:0]
	ng.uint32(typ)
	ng.uint32(0)
}

// end writes the block, with its length at both ends.
func (ng *ngWriter) end() error {
	n := uint32(len(ng.block) + 4)
	binary.LittleEndian.PutUint32(ng.block[4:], n)
	ng.uint32(n)
	_, err := ng.w.Write(ng.block)
	return err
}

func (ng *ngWriter) uint32(v uint32) { ng.block = binary.LittleEndian.AppendUint32(ng.block, v) }
func (ng *ngWriter) uint64(v uint64) { ng.block = binary.LittleEndian.AppendUint64(ng.block, v) }

// time appends a time, whose halves have an order of their own.
func (ng *ngWriter) time(at time.Time) {
	ns := uint64(at.UnixNano())
	ng.uint32(uint32(ns >> 32))
	ng.uint32(uint32(ns))
}

// option appends an option, unless it is an empty text.
func (ng *ngWriter) option(code uint16, value []byte) {
	if code != ngOptEnd && len(value) == 0 {
		return
	}
	ng.block = binary.LittleEndian.AppendUint16(ng.block, code)
	ng.block = binary.LittleEndian.AppendUint16(ng.block, uint16(len(value)))
	ng.padded(value)
}

// padded appends bytes, and zeros up to a multiple of four.
func (ng *ngWriter) padded(b []byte) {
	ng.block = append(ng.block, b...)
	ng.block = append(ng.block, make([]byte, -len(b)&3)...)
}
