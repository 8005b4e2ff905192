package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

// hasSockets: this system has the links of package host.
const hasSockets = true

// onSockets opens a device on UDP sockets.
func (s *side) onSockets(addr netip.Addr, st stack) error {
	dev, err := host.Open(host.Options{Link: "udp", Addrs: []netip.Addr{addr}, Shards: 1, Fault: st.fault,
		Trace: st.trace, Pcap: st.pcap, Device: st.device})
	if err != nil {
		return err
	}
	s.use(dev, addr)
	return nil
}

// dial opens the daemon's device as a client.
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

// captureInto passes the packets of the client's queue pair, in both directions, to the recorder. It fails with the
// daemon's error if the user may not capture.
func (p *pair) captureInto(ctx context.Context) (*packetStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &packetStream{stop: cancel, done: make(chan struct{})}
	out, in := io.Pipe()
	o := admin.CaptureOptions{Device: p.client.dev.Attr().Name, QP: uint32(p.client.qp.Num())}
	go func() {
		_, err := admin.NewClient(p.opts.Daemon.Admin).Capture(ctx, in, o)
		_ = in.CloseWithError(err)
	}()
	r, err := capfile.NewReader("the daemon's capture", out)
	if err != nil {
		cancel()
		var start *capfile.Error
		if errors.As(err, &start) {
			err = start.Err // the admin client's error, if it has failed
		}
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

// record records the next packet of a capture, which is taken at the client's QP.
func (p *pair) record(r *capfile.Reader) error {
	var captured capfile.Packet
	if err := r.Next(&captured); err != nil {
		return err
	}
	var frame wire.Frame
	var packet wire.Packet
	frame.PartialUDPSum = true
	if err := frame.Decode(captured.Data); err != nil {
		return err
	}
	if err := packet.Decode(frame.Transport[:len(frame.Transport)-wire.ICRCLen]); err != nil {
		return err
	}
	from, dest := p.client, p.server.qp.Num()
	if captured.Dir == capfile.Received {
		from, dest = p.server, p.client.qp.Num()
	}
	if packet.DestQP == dest {
		p.rec.capture(from.name, time.Unix(0, int64(captured.At)), &packet)
	}
	return nil
}
