package wrap

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

// Capturer is a Link that writes frames to a capture file; see [Pcap].
type Capturer struct {
	link.Link
	caps  link.Caps
	frame wire.Frame
	buf   []byte
	file  *captureFile
}

// captureFile is the file that the Capturers of a device share.
type captureFile struct {
	mu    sync.Mutex
	w     *capfile.Writer
	epoch time.Time
	err   error
}

// Pcap returns a Link that writes each frame, sent or received, to w in pcapng format, as an Ethernet packet like on
// the wire. Sent frames have the interface "NAME sent", received ones "NAME received". MAC addresses of hosts are
// derived from their GIDs. IPv4 identifications of sent frames are the real ones; for received frames, if the Link
// below does not know them, they are solved from the ICRC, so that dissectors find the ICRCs correct.
//
// epoch is the wall clock time of Instant 0; if it is zero, the first frame is assumed to pass at the current time. The
// file is complete after Close, and up to date after each call of Wait. w stays the caller's. If writing fails, the
// capture ends and the Link goes on: see Err.
func Pcap(l link.Link, w io.Writer, epoch time.Time) (*Capturer, error) {
	file := &captureFile{epoch: epoch}
	c := &Capturer{Link: l, caps: l.Caps(), file: file}
	var err error
	if file.w, err = newPcapWriter(w, &c.caps); err != nil {
		return nil, err
	}
	return c, nil
}

// newPcapWriter writes the start of a capture file for links with these capabilities.
func newPcapWriter(w io.Writer, caps *link.Caps) (*capfile.Writer, error) {
	name := caps.NetIf
	if name == "" {
		name = caps.Name
	}
	file, err := capfile.NewWriter(w, capfile.Ethernet, name, caps.Note)
	if err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}
	return file, nil
}

// Beside returns a Link around another link of the same device, which writes to the same file. The file is complete
// when all of the Links are closed.
func (c *Capturer) Beside(l link.Link) *Capturer {
	return &Capturer{Link: l, caps: l.Caps(), file: c.file}
}

// Err returns the error that has ended the capture, or nil. Any goroutine may call it.
func (c *Capturer) Err() error {
	c.file.mu.Lock()
	defer c.file.mu.Unlock()
	return c.file.err
}

// Send writes the frames that the Link below has taken.
func (c *Capturer) Send(now ib.Instant, out []link.Run) (int, error) {
	n, err := c.Link.Send(now, out)
	for i := range out[:n] {
		r := &out[i]
		c.frame.Outer = outerSent(r, &c.caps)
		for f := range r.Frames() {
			c.frame.Outer.ID = sentID(r, c.caps.ID, f)
			c.write(now, capfile.Sent, r.Frame(f))
		}
	}
	return n, err
}

// Recv writes the frames that the Link below has received.
func (c *Capturer) Recv(now ib.Instant, in []link.Run) (int, error) {
	n, err := c.Link.Recv(now, in)
	for i := range in[:n] {
		r := &in[i]
		c.frame.Outer = outerOf(r)
		for f := range r.Frames() {
			c.frame.Outer.ID = receivedID(r, f)
			c.write(now, capfile.Received, r.Frame(f))
		}
	}
	return n, err
}

func (c *Capturer) write(now ib.Instant, dir capfile.Direction, frame []byte) {
	file := c.file
	file.mu.Lock()
	defer file.mu.Unlock()
	if file.err != nil {
		return
	}
	if file.epoch.IsZero() {
		file.epoch = time.Now().Add(-time.Duration(now))
	}
	c.frame.EtherSrc, c.frame.EtherDst = macOf(&c.frame.Outer.Src), macOf(&c.frame.Outer.Dst)
	c.buf = append(c.frame.AppendHeaders(c.buf[:0], len(frame)), frame...)
	file.err = writeFrame(file.w, file.epoch, now, dir, c.buf)
}

// writeFrame writes an Ethernet frame that passed at now. epoch is the wall clock time of Instant 0.
func writeFrame(w *capfile.Writer, epoch time.Time, now ib.Instant, dir capfile.Direction, frame []byte) error {
	at := ib.Instant(epoch.UnixNano()) + now
	return w.Write(&capfile.Packet{At: at, Link: capfile.Ethernet, Data: frame, Dir: dir})
}

// macOf returns the MAC address of a group, and for a host a locally administered one made of the last bytes of its
// GID.
func macOf(g *ib.GID) [6]byte {
	if group.Is(g) {
		return group.MAC(g)
	}
	return [6]byte{0x02, 0, g[12], g[13], g[14], g[15]}
}

// Wait first brings the file up to date.
func (c *Capturer) Wait(d time.Duration, writable bool) error {
	_ = c.file.flush()
	return c.Link.Wait(d, writable)
}

func (f *captureFile) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = f.w.Flush()
	}
	return f.err
}

// Close closes the Link below and completes the file. It returns the error of the capture, or else that of the Link.
func (c *Capturer) Close() error {
	err := c.Link.Close()
	if werr := c.file.flush(); werr != nil {
		return fmt.Errorf("capture: %w", werr)
	}
	return err
}
