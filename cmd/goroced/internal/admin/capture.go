package admin

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// CaptureOptions say what to capture.
type CaptureOptions struct {
	Device     string // "" if there is only one
	QP, PeerQP uint32 // 0 for any: see wrap.Match
	Peer       string // IP address, "" for any
	Packets    uint64 // number of packets; 0 for no limit
}

// CaptureResult describes a finished capture.
type CaptureResult struct {
	Packets uint64 // in the file
	Lost    uint64 // frames that the daemon dropped because they were not read fast enough
}

// Capture writes a pcapng capture to w until the context ends, the daemon's device is closed, or there are enough
// packets; none of these is an error. w gets whole blocks only, and gets them at once.
func (c *Client) Capture(ctx context.Context, w io.Writer, o CaptureOptions) (CaptureResult, error) {
	qpn := func(n uint32) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	body, err := c.do(ctx, http.MethodGet,
		"/v1/"+query("capture", "device", o.Device, "qp", qpn(o.QP), "peer_qp", qpn(o.PeerQP), "peer", o.Peer), nil)
	if err != nil {
		return CaptureResult{}, err
	}
	defer body.Close()
	b := blocks{r: bufio.NewReaderSize(body, bufferSize), w: bufio.NewWriterSize(w, bufferSize), most: o.Packets}
	err = b.copy()
	if ferr := b.w.Flush(); ferr != nil {
		err = fmt.Errorf("%w: %w", errCaptureFile, ferr)
	}
	if ctx.Err() != nil && !errors.Is(err, errCaptureFile) {
		err = nil
	}
	return b.result(), err
}

// Blocks of pcapng (draft-ietf-opsawg-pcapng 4.3, 4.6): type, total length, body, total length again. The daemon uses
// little-endian byte order.
const (
	blockPacket     = 6
	blockStatistics = 5
	blockHead       = 8
	blockLeast      = 12
	blockMost       = 1 << 18

	optionsAt = 20 // in an interface statistics block
	optEnd    = 0
	optIfDrop = 5
)

// bufferSize is the size of the client's buffers.
const bufferSize = 1 << 16

// errCaptureFile marks errors of the writer.
var errCaptureFile = errors.New("capture file")

// blocks copies whole blocks.
type blocks struct {
	r    *bufio.Reader
	w    *bufio.Writer
	most uint64

	buf     []byte
	packets uint64
	lost    [2]uint64 // by interface: sent, received
}

func (b *blocks) result() CaptureResult {
	return CaptureResult{b.packets, b.lost[0] + b.lost[1]}
}

// copy returns at the end of the stream, which may be within a block, or after enough packets.
func (b *blocks) copy() error {
	for b.most == 0 || b.packets < b.most {
		err := b.read()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b.look()
		_, err = b.w.Write(b.buf)
		if err == nil && b.r.Buffered() == 0 {
			err = b.w.Flush()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errCaptureFile, err)
		}
	}
	return nil
}

// read reads the next block into buf.
func (b *blocks) read() error {
	b.buf = append(b.buf[:0], make([]byte, blockHead)...)
	if _, err := io.ReadFull(b.r, b.buf); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(b.buf[4:])
	if n < blockLeast || n > blockMost || n%4 != 0 {
		return fmt.Errorf("what the daemon sent is no capture: a block of %d bytes", n)
	}
	b.buf = append(b.buf, make([]byte, n-blockHead)...)
	_, err := io.ReadFull(b.r, b.buf[blockHead:])
	return err
}

// look counts the packets and losses of the current block.
func (b *blocks) look() {
	switch binary.LittleEndian.Uint32(b.buf) {
	case blockPacket:
		b.packets++
	case blockStatistics:
		if len(b.buf) < optionsAt+4 {
			return
		}
		itf := binary.LittleEndian.Uint32(b.buf[blockHead:])
		for o := b.buf[optionsAt : len(b.buf)-4]; len(o) >= 4; {
			code, n := binary.LittleEndian.Uint16(o), int(binary.LittleEndian.Uint16(o[2:]))
			if code == optEnd || len(o) < 4+n {
				return
			}
			if code == optIfDrop && n == 8 && itf < uint32(len(b.lost)) {
				b.lost[itf] = binary.LittleEndian.Uint64(o[4:])
			}
			o = o[min(4+(n+3)&^3, len(o)):]
		}
	}
}
