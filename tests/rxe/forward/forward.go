// Package forward connects two network devices and simulates a bad network for RoCEv2
// packets between them. It applies the conditions of [wrap.FaultConfig], which tests of roce
// apply in virtual time, to peers that are not goroce.
//
// Frames that are not RoCEv2 (ARP, TCP and so on) pass unchanged and at once. Forwarded
// packets have a UDP checksum of 0, as rdma_rxe sends it, so that only the ICRC, which does
// not cover the checksum, detects damage. Runs that a sender left to segmentation offload
// are cut into packets, so that the conditions apply to each one.
package forward

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
)

// Forwarder carries packets between two devices, both ways.
type Forwarder struct {
	sockets [2]int
	ways    [2]*way
	faults  [2]*wrap.Faulter
	closing atomic.Bool
	ended   sync.WaitGroup

	mu  sync.Mutex
	err error // the reason why a way has ended
}

// Open connects two devices of the calling thread's network namespace, with the same
// conditions both ways. Nothing else may connect these devices. Open needs CAP_NET_RAW. Each
// way has its own seed, derived from that of c. OnSend and OnRecv of c are ignored; its
// functions are called by two goroutines.
func Open(a, b string, c wrap.FaultConfig) (*Forwarder, error) {
	f := &Forwarder{sockets: [2]int{-1, -1}}
	for i, name := range []string{a, b} {
		var err error
		if f.sockets[i], err = openSocket(name); err != nil {
			f.closeSockets()
			return nil, fmt.Errorf("forward %s to %s: device %s: %w", a, b, name, err)
		}
	}
	c.OnSend, c.OnRecv = true, false
	for i := range f.ways {
		wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			f.closeSockets()
			return nil, err
		}
		w := &way{in: f.sockets[i], out: f.sockets[1-i], wake: wake}
		f.ways[i] = w
		one := c
		one.Seed = 2*c.Seed + uint64(i)
		one.OnBadChecksum = w.spoil
		f.faults[i] = wrap.Network(w, one)
	}
	for i := range f.ways {
		f.ended.Go(func() { f.carry(f.faults[i], f.ways[i]) })
	}
	return f, nil
}

// openSocket returns a packet socket for all that arrives at a device.
func openSocket(name string) (int, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return -1, err
	}
	// Protocol 0 receives nothing until bind has chosen the device.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xFFFF, Ifindex: dev.Index}),
	)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) // root may exceed the system's limit
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

const socketBuffer = 16 << 20

// longestWait is how long a way waits at most before it polls again, in case a wake-up was
// missed.
const longestWait = time.Second

// carry runs one way. Its network's clock starts at 0 when carry begins.
func (f *Forwarder) carry(l *wrap.Faulter, w *way) {
	began := time.Now()
	clock := func() ib.Instant { return ib.Instant(time.Since(began)) }
	in := make([]link.Run, batchLen)
	for !f.closing.Load() {
		now := clock()
		n, err := l.Recv(now, in)
		for sent := 0; err == nil && sent < n; {
			var k int
			k, err = l.Send(now, in[sent:n])
			sent += k
		}
		if err == nil && n == 0 {
			wait := longestWait
			if due := l.Deadline(); due != driver.Never {
				wait = min(wait, max(0, time.Duration(due-clock())))
			}
			err = l.Wait(wait, false)
		}
		if err != nil {
			f.mu.Lock()
			f.err = errors.Join(f.err, err)
			f.mu.Unlock()
			return
		}
	}
}

// Counts returns the counts for RoCEv2 packets from the first device to the second, and from
// the second to the first.
func (f *Forwarder) Counts() (there, back wrap.FaultCounts) {
	return f.faults[0].Counts(), f.faults[1].Counts()
}

// Lost returns how many packets of all kinds the devices did not accept, or found no room when they arrived, both ways.
// It must not be called after Close.
func (f *Forwarder) Lost() (n uint64) {
	for _, w := range f.ways {
		if s, err := unix.GetsockoptTpacketStats(w.in, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			w.lost.Add(uint64(s.Drops)) // since the last call
		}
		n += w.lost.Load()
	}
	return n
}

// Close disconnects the devices, and drops delayed packets. The error says why a way had
// ended before.
func (f *Forwarder) Close() error {
	f.closing.Store(true)
	for _, w := range f.ways {
		w.Wake()
	}
	f.ended.Wait()
	f.closeSockets()
	return f.err
}

func (f *Forwarder) closeSockets() {
	for _, fd := range f.sockets {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	for _, w := range f.ways {
		if w != nil {
			unix.Close(w.wake)
		}
	}
}
