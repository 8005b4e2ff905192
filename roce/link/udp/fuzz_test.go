package udp

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

// control appends a control message.
func control(b []byte, k sock.Kind, value uint32) []byte {
	b = binary.NativeEndian.AppendUint64(b, unix.SizeofCmsghdr+4)
	b = binary.NativeEndian.AppendUint32(b, uint32(k.Level))
	b = binary.NativeEndian.AppendUint32(b, uint32(k.Type))
	return binary.NativeEndian.AppendUint64(b, uint64(value))
}

// FuzzRecv receives arbitrary datagrams with arbitrary control messages. What is received must be a
// run as link.Run describes, within the datagram; everything else is counted as dropped. And the program that
// steers datagrams to shards must agree with link.FrameShard.
func FuzzRecv(f *testing.F) {
	datagram := make([]byte, 160)
	f.Add(datagram, []byte(nil), true)
	f.Add(datagram, control(control(nil, kindGRO, 64), kindTTL, 64), true)
	f.Add(datagram, control(control(control(nil, kindHopLimit, 9), kindTClass, 8), kindFlowInfo, 1<<20), false)
	f.Add(datagram, control(control(nil, kindGRO, 1<<31), kindDrops, 7), true)
	f.Add(datagram[:18], control(nil, kindTOS, 3), true)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _ = unix.Close(ends[0]), unix.Close(ends[1]) })
	c := &conn{}
	c.rx.init()
	steer, err := bpf.NewVM(shardOf(4))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, datagram, controls []byte, is4 bool) {
		if len(datagram) == 0 || len(datagram) > rxBuffer || len(controls) > rxControl {
			return
		}
		if _, err := unix.Write(ends[1], datagram); err != nil {
			t.Fatal(err)
		}
		if n, errno := c.rx.batch.Recv(ends[0], 0, 1); n != 1 {
			t.Fatal(errno)
		}
		copy(unsafe.Slice((*byte)(c.rx.batch.Control(0)), rxControl), controls)
		c.rx.batch.SetControlLen(0, len(controls))
		before := c.stats
		var r link.Run
		received := c.receive(&socket{is4: is4, local: ib.GID{15: 1}}, 0, &r)
		frames, dropped := c.stats.RxFrames-before.RxFrames, c.stats.RxDropped-before.RxDropped
		if received != (frames > 0) || !received && dropped == 0 {
			t.Fatalf("received %v, %d frames, %d dropped; want frames if received, else some dropped", received, frames,
				dropped)
		}
		if received && (frames != uint64(r.Frames()) || len(r.Buf) > len(datagram)) {
			t.Fatalf("%d frames counted, %d bytes in %d frames, want as many of at most %d bytes", frames, len(r.Buf),
				r.Frames(), len(datagram))
		}
		for i := range r.Frames() {
			frame := r.Frame(i)
			if len(frame) < runs.MinFrame || len(frame)%4 != 0 {
				t.Fatalf("frame %d has %d bytes, want a multiple of 4 from %d", i, len(frame), runs.MinFrame)
			}
			if shard, err := steer.Run(frame); err != nil || shard != link.FrameShard(frame, 4) {
				t.Fatalf("the kernel's shard is %d, %v; want the frame's, %d", shard, err, link.FrameShard(frame, 4))
			}
		}
	})
}
