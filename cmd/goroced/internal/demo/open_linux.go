package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
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
	r, err := pcapgo.NewNgReader(out, pcapgo.DefaultNgReaderOptions)
	if err != nil { // the admin client's error, if it has failed
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

// record records the next packet of a capture. The capture is taken at the client's QP: the first interface has what
// the client sends, the second what it receives.
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
