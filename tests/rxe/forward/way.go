package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// batch is how many frames a way receives at a time.
const batch = 64

// maxFrame is the longest frame with segmentation offload, including headers.
const maxFrame = 1 << 17

// struct virtio_net_hdr (linux/virtio_net.h), which precedes each frame because of
// PACKET_VNET_HDR. It says which offloads (checksum, segmentation) are still to be done.
const (
	vnetGSOType = 1
	vnetGSOSize = 4
	vnetLen     = 10
)

// way is one direction as a link.Link: it receives from one device and sends to the other.
// Recv returns only RoCEv2 packets.
type way struct {
	in, out int // packet sockets
	wake    int // an eventfd
	lost    atomic.Uint64

	buffers [batch][]byte            // received runs
	other   []byte                   // a frame received after them that is not RoCEv2
	headers wire.Frame               // headers of the latest frame
	ether   map[[2]ib.GID][2][6]byte // Ethernet destination and source, by addresses
	frame   []byte                   // buffer for the frame to send
}

func (w *way) Caps() link.Caps {
	return link.Caps{Name: "forward", MTU: maxFrame, RunFrames: 1, RunBytes: maxFrame, ID: link.IDFree}
}

// Recv reads frames from the socket, forwards those that are not RoCEv2, and returns the rest.
func (w *way) Recv(_ ib.Instant, runs []link.Run) (int, error) {
	if w.other != nil {
		w.send(w.other)
		w.other = nil
	}
	n := 0
	for range batch {
		if n == min(batch, len(runs)) {
			break
		}
		if w.buffers[n] == nil {
			w.buffers[n] = make([]byte, maxFrame)
		}
		size, _, err := unix.Recvfrom(w.in, w.buffers[n], 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return n, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EINVAL):
			continue // ENETDOWN is reported once; EINVAL is an offload that virtio_net_hdr cannot describe
		case err != nil:
			return n, fmt.Errorf("receive: %w", err)
		}
		frame := w.buffers[n][:size]
		switch {
		case w.decode(frame, &runs[n]):
			n++
		case n > 0: // forward it after the runs before it
			w.other = frame
			return n, nil
		default:
			w.send(frame)
		}
	}
	return n, nil
}

// Keep does nothing: Caps.Keeps is false.
func (w *way) Keep() {}

// decode converts a frame to a run, and reports whether it is RoCEv2.
func (w *way) decode(frame []byte, r *link.Run) bool {
	h := &w.headers
	h.PartialUDPSum = true // do not check it: encode replaces it
	if len(frame) < vnetLen || h.Decode(frame[vnetLen:]) != nil || h.HasVLAN {
		return false
	}
	o := &h.Outer
	*r = link.Run{Src: o.Src, Dst: o.Dst, SrcPort: o.SrcPort, TrafficClass: o.TrafficClass, HopLimit: o.HopLimit,
		FlowLabel: o.FlowLabel, ID: o.ID, KnownID: true, Size: len(h.Transport), Buf: h.Transport}
	if frame[vnetGSOType] == unix.VIRTIO_NET_HDR_GSO_UDP_L4 {
		r.Size = int(binary.NativeEndian.Uint16(frame[vnetGSOSize:]))
	}
	if w.ether == nil {
		w.ether = make(map[[2]ib.GID][2][6]byte)
	}
	w.ether[[2]ib.GID{o.Src, o.Dst}] = [2][6]byte{h.EtherDst, h.EtherSrc}
	return r.Size > 0
}

// Send sends each frame of the runs.
func (w *way) Send(_ ib.Instant, runs []link.Run) (int, error) {
	for i := range runs {
		for f := range runs[i].Frames() {
			w.send(w.encode(&runs[i], f))
		}
	}
	return len(runs), nil
}

// encode returns frame i of r with all headers.
func (w *way) encode(r *link.Run, i int) []byte {
	ether := w.ether[[2]ib.GID{r.Src, r.Dst}]
	h := wire.Frame{EtherDst: ether[0], EtherSrc: ether[1], Outer: wire.Outer{Src: r.Src, Dst: r.Dst,
		SrcPort: r.SrcPort,
		DstPort: link.Port, TrafficClass: r.TrafficClass, HopLimit: r.HopLimit, FlowLabel: r.FlowLabel, ID: r.ID +
			uint16(i)}}
	payload := r.Frame(i)
	w.frame = append(w.frame[:0], make([]byte, vnetLen)...)
	w.frame = h.AppendHeaders(w.frame, len(payload))
	w.frame = append(w.frame, payload...)
	return w.frame
}

// send sends a frame by the other device. If the device does not accept it the frame is lost,
// as on a cable.
func (w *way) send(frame []byte) {
	if _, err := unix.Write(w.out, frame); err != nil {
		w.lost.Add(1)
	}
}

// spoil sends a frame with a wrong UDP checksum.
func (w *way) spoil(_ ib.Instant, r *link.Run) {
	frame := w.encode(r, 0)
	sum := frame[len(frame)-len(r.Buf)-wire.UDPLen+6:]
	binary.BigEndian.PutUint16(sum, 1)
	if new(wire.Frame).Decode(frame[vnetLen:]) == nil { // the checksum happens to be correct
		binary.BigEndian.PutUint16(sum, 2)
	}
	w.send(frame)
}

// Wait waits for frames, or for Wake.
func (w *way) Wait(d time.Duration, _ bool) error {
	fds := []unix.PollFd{{Fd: int32(w.in), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
	timeout := unix.NsecToTimespec(int64(d))
	_, err := unix.Ppoll(fds, &timeout, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}

func (w *way) Wake() {
	one := [8]byte{1}
	_, _ = unix.Write(w.wake, one[:])
}

func (w *way) Deadline() ib.Instant { return driver.Never }
func (w *way) Stats() link.Stats    { return link.Stats{} }
func (w *way) Close() error         { return nil }

func (w *way) Watch(int) error          { return errors.ErrUnsupported }
func (w *way) Join(ib.GID) error        { return errors.ErrUnsupported }
func (w *way) Leave(ib.GID) error       { return errors.ErrUnsupported }
func (w *way) AddLocal(ib.GID) error    { return errors.ErrUnsupported }
func (w *way) RemoveLocal(ib.GID) error { return errors.ErrUnsupported }
