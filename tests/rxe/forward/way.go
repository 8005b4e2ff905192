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

	received batch
	buffers  [batchLen][]byte         // of received
	next, n  int                      // frames [next, n) of received are still to be handled
	headers  wire.Frame               // headers of the latest frame
	ether    map[[2]ib.GID][2][6]byte // Ethernet destination and source, by addresses

	sending  batch
	prefixes [batchLen][]byte // what precedes the payload in sending
}

func (w *way) Caps() link.Caps {
	return link.Caps{Name: "forward", MTU: maxFrame, RunFrames: 1, RunBytes: maxFrame, ID: link.IDFree}
}

// Recv reads frames from the socket, forwards those that are not RoCEv2, and returns the rest.
func (w *way) Recv(_ ib.Instant, runs []link.Run) (int, error) {
	if w.next == w.n {
		if err := w.read(); err != nil {
			return 0, err
		}
	}
	n := 0
	for ; w.next < w.n && n < len(runs); w.next++ {
		frame := w.buffers[w.next][:w.received.messages[w.next].n]
		switch {
		case w.decode(frame, &runs[n]):
			n++
		case n > 0: // forward it after the runs before it
			return n, nil
		default:
			w.send(frame)
		}
	}
	return n, nil
}

// read receives the frames that wait in the socket.
func (w *way) read() error {
	for i := range w.buffers {
		if w.buffers[i] == nil {
			w.buffers[i] = make([]byte, maxFrame)
			w.received.set(i, w.buffers[i])
		}
	}
	for range batchLen {
		n, errno := w.received.call(unix.SYS_RECVMMSG, w.in, 0, batchLen)
		w.next, w.n = 0, n
		switch errno {
		case 0, unix.EAGAIN:
			return nil
		case unix.EINTR, unix.ENETDOWN, unix.EINVAL:
			// ENETDOWN is reported once; EINVAL is an offload that virtio_net_hdr cannot describe
		default:
			return fmt.Errorf("receive: %w", errno)
		}
	}
	return nil
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
	n := 0
	for i := range runs {
		for f := range runs[i].Frames() {
			w.prefixes[n] = w.encode(w.prefixes[n][:0], &runs[i], f)
			w.sending.set(n, w.prefixes[n], runs[i].Frame(f))
			if n++; n == batchLen {
				w.flush(n)
				n = 0
			}
		}
	}
	w.flush(n)
	return len(runs), nil
}

// flush sends the first n frames of sending by the other device. A frame that the device does not accept is lost, as on
// a cable.
func (w *way) flush(n int) {
	for i := 0; i < n; {
		sent, errno := w.sending.call(unix.SYS_SENDMMSG, w.out, i, n)
		i += sent
		if errno != 0 && errno != unix.EINTR {
			w.lost.Add(1)
			i++
		}
	}
}

// encode appends what precedes the payload of frame i of r.
func (w *way) encode(b []byte, r *link.Run, i int) []byte {
	ether := w.ether[[2]ib.GID{r.Src, r.Dst}]
	h := wire.Frame{EtherDst: ether[0], EtherSrc: ether[1], Outer: wire.Outer{Src: r.Src, Dst: r.Dst,
		SrcPort: r.SrcPort, DstPort: link.Port, TrafficClass: r.TrafficClass, HopLimit: r.HopLimit,
		FlowLabel: r.FlowLabel, ID: r.ID + uint16(i)}}
	return h.AppendHeaders(append(b, make([]byte, vnetLen)...), len(r.Frame(i)))
}

// send sends a frame by the other device.
func (w *way) send(frame []byte) {
	w.sending.set(0, frame)
	w.flush(1)
}

// spoil sends a frame with a wrong UDP checksum.
func (w *way) spoil(_ ib.Instant, r *link.Run) {
	frame := append(w.encode(nil, r, 0), r.Buf...)
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
