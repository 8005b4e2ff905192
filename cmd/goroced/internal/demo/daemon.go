package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/wire"
)

// Daemon names a running daemon. The hosts are then two clients of it, on the same
// device, so that their packets turn round inside the daemon.
type Daemon struct {
	Socket, Admin string // paths; "" is where daemons have theirs
	Device        string // "" is the first
}

// dial opens the daemon's device as a client of its own.
func (s *side) dial(ctx context.Context, d *Daemon) error {
	dev, err := device.OpenDaemon(ctx, d.Socket, d.Device, host.Options{})
	if err != nil {
		return err
	}
	s.dev = dev
	gids, err := dev.GIDs(1)
	if err != nil {
		return err
	}
	if len(gids) == 0 {
		return fmt.Errorf("device %s of the daemon has no address: %w", dev.Attr().Name, ib.ErrState)
	}
	s.addr, s.link, s.note = gids[0].GID.Addr(), "daemon", "a client of its own, on device "+dev.Attr().Name
	return nil
}

// packetStream is a capture of the packets between the hosts.
type packetStream struct {
	stop func()
	done chan struct{} // closed when it has ended
}

// close ends the capture.
func (c *packetStream) close() {
	if c != nil {
		c.stop()
		<-c.done
	}
}

// captureInto hands the packets of the client's queue pair, both ways, to the recorder. It fails with what the daemon
// says to who may not capture.
func (p *pair) captureInto(ctx context.Context) (*packetStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &packetStream{stop: cancel, done: make(chan struct{})}
	out, in := io.Pipe()
	o := admin.CaptureOptions{Device: p.client.dev.Attr().Name, QP: uint32(p.client.qp.Num())}
	go func() {
		_, err := admin.NewClient(p.opts.Daemon.Admin).Capture(ctx, in, o)
		_ = in.CloseWithError(err)
	}()
	r, err := pcapgo.NewNgReader(out, pcapgo.DefaultNgReaderOptions)
	if err != nil { // the admin client's, if that has one
		cancel()
		return nil, errors.Join(err, out.Close())
	}
	p.rec.captured = true
	go func() {
		defer close(c.done)
		defer out.Close()
		for p.record(r) == nil {
		}
	}()
	return c, nil
}

// record takes the next packet of a capture, which shows a connection from one end: what
// the client sends on its first interface, what it receives on the second.
func (p *pair) record(r *pcapgo.NgReader) error {
	data, info, err := r.ReadPacketData()
	if err != nil {
		return err
	}
	var frame wire.Frame
	var packet wire.Packet
	frame.PartialUDPSum = true
	if err := frame.Decode(data); err != nil {
		return err
	}
	if err := packet.Decode(frame.Transport[:len(frame.Transport)-wire.ICRCLen]); err != nil {
		return err
	}
	ends := [...]struct {
		dest ib.QPN
		from *side
	}{{p.server.qp.Num(), p.client}, {p.client.qp.Num(), p.server}}
	if i := info.InterfaceIndex; i < len(ends) && packet.DestQP == ends[i].dest {
		p.rec.capture(ends[i].from.name, info.Timestamp, &packet)
	}
	return nil
}
