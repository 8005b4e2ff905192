package afxdp

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// TestKick replaces the AF_XDP socket by a unix socket with the same errors: while the device takes no more, frames
// wait and are offered again.
func TestKick(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	device := os.NewFile(uintptr(fds[1]), "device")
	defer device.Close()
	defer unix.Close(fds[0])
	tx, kernel := newTestRing[unix.XDPDesc](8, 0)
	*tx.flags = unix.XDP_RING_NEED_WAKEUP
	q := &queue{fd: fds[0], tx: *tx}
	var s link.Stats
	kick := func(what string, broken unix.Errno, waiting bool) {
		t.Helper()
		q.kick(&s)
		if q.broken != broken || q.waiting() != waiting {
			t.Errorf("%s: broken %v, waiting %v; want %v, %v", what, q.broken, q.waiting(), broken, waiting)
		}
	}
	kick("nothing to send", 0, false)
	if errno := call(unix.SYS_SENDTO, q.fd); errno != 0 {
		t.Fatal(errno)
	}
	for call(unix.SYS_SENDTO, q.fd) != unix.EAGAIN { // until it is full
	}
	for range 3 {
		q.tx.put(unix.XDPDesc{})
	}
	kick("the device takes none", 0, true)
	if n := kernel.ready(); n != 3 {
		t.Fatalf("the kernel sees %d frames, want 3", n)
	}
	kernel.release(1)
	kick("the device took one", 0, true)
	kernel.release(2)
	kick("the device took all", 0, false)
	q.tx.put(unix.XDPDesc{})
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	kick("the device is gone", unix.ECONNREFUSED, false)
	if q.state(&s) == 0 {
		t.Error("what is gone can be sent to")
	}
	if s != (link.Stats{}) {
		t.Errorf("stats %+v, want nothing lost", s)
	}
}

// TestChunksOfAFrame fills the RX ring chunk by chunk: a frame is received when its last chunk is there. Frames that
// are too long are dropped.
func TestChunksOfAFrame(t *testing.T) {
	kernel, rx := newTestRing[unix.XDPDesc](16, 0)
	fill, taken := newTestRing[uint64](16, 0)
	c := &conn{base: &base{mem: &umem{mem: make([]byte, 16*largeChunk), chunk: largeChunk}}}
	c.rx.init(&layout{chunk: largeChunk, mtu: 9000, several: true})
	q := &queue{mem: c.mem, rx: *rx, fill: *fill, zeroCopy: true}
	in := make([]link.Run, 4)
	receive := func(what string, want int) {
		t.Helper()
		kernel.publish()
		if n := c.receive(q, in, 0); n != want {
			t.Errorf("%s: %d frames, want %d", what, n, want)
		}
	}
	f := wire.Frame{Outer: wire.Outer{Src: v4(1), Dst: v4(2), DstPort: link.Port}}
	frame := append(f.AppendHeaders(nil, 8900), bytes.Repeat([]byte{1, 2, 3, 4, 5}, 8900/5)...)
	at := uint64(256)
	put := func(part []byte, last bool) {
		n := copy(c.mem.mem[at:], part)
		d := unix.XDPDesc{Addr: at, Len: uint32(n)}
		if !last {
			d.Options = unix.XDP_PKT_CONTD
		}
		kernel.put(d)
		at += largeChunk
	}
	put(frame[:3840], false)
	receive("one of three chunks", 0)
	put(frame[3840:7680], false)
	receive("two of three chunks", 0)
	put(frame[7680:], true)
	put(frame[100:3940], false) // of the next frame
	receive("three chunks", 1)
	if r := &in[0]; r.Dst != v4(2) || !bytes.Equal(r.Buf, frame[len(frame)-8900:]) {
		t.Errorf("%d bytes to %v, want the 8,900 sent to %v", len(r.Buf), r.Dst.Addr(), v4(2).Addr())
	}
	for range 3 {
		put(frame[:3840], false)
	}
	put(frame[:3840], true)
	receive("a frame of five chunks", 0)
	if c.stats.RxFrames != 1 || c.stats.RxDropped != 1 {
		t.Errorf("stats %+v, want one frame received and one dropped", c.stats)
	}
	receive("nothing more", 0)
	if n := taken.ready(); n != 8 {
		t.Errorf("%d chunks were given back, want all 8", n)
	}
}
