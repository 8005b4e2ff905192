package afxdp

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/packet"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

// OpenShards opens a link for each shard of a device on the same addresses. shards is a power of two, and at most the
// number of the interface's queues. Each link serves some of the queues; all share the memory. The NIC decides which
// queue gets a packet, so a link also gets packets of other shards. What comes through the kernel is received by the
// first link.
func OpenShards(addrs []netip.Addr, o Options, shards int) ([]link.Link, error) {
	if shards < 1 || shards > link.MaxShards || shards&(shards-1) != 0 {
		return nil, driver.Refuse("open afxdp link", "shards", shards,
			fmt.Sprintf("1 to %d, a power of two", link.MaxShards), ib.ErrInvalid)
	}
	kernel, err := packet.Open(addrs, packet.Options{Name: "afxdp"})
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; %s", err, lacking())
		}
		return nil, err
	}
	b := &base{kernel: kernel}
	conns, err := b.open(&o, shards)
	if err != nil {
		b.free(nil)
		return nil, fmt.Errorf("afxdp link: %w", err)
	}
	links := make([]link.Link, len(conns))
	for i, c := range conns {
		links[i] = c
	}
	return links, nil
}

// share distributes the queues among the links, with their frames. The first senders of the queues can also send.
func (b *base) share(queues []*queue, senders, shards int) (conns []*conn, err error) {
	defer func() {
		if err != nil {
			for _, c := range conns {
				c.closeOwnWaiter()
			}
		}
	}()
	for i := range shards {
		c := &conn{base: b, main: i == 0}
		var fds []int
		for id := i; id < len(queues); id += shards {
			c.queues = append(c.queues, queues[id])
			fds = append(fds, queues[id].fd)
			if id < senders {
				c.senders++
			}
		}
		if c.main {
			c.wait, err = b.kernel, b.kernel.Beside(fds)
		} else {
			c.wait, err = newOwnWaiter(fds)
		}
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
	}
	for _, q := range queues {
		if err := b.program.serve(q.id, q.fd); err != nil {
			return conns, err
		}
	}
	b.users.Store(int32(shards))
	return conns, nil
}

// waiter waits for the sockets of a link.
type waiter interface {
	Wait(d time.Duration, writable bool) error
	Wake()
	Watch(fd int) error
	Shut() // ends all Waits, and returns when they have returned
}

// ownWaiter is the waiter of a link that receives nothing through the kernel.
type ownWaiter struct {
	mu sync.Mutex // held during Wait
	*sock.Poller
}

func newOwnWaiter(fds []int) (*ownWaiter, error) {
	p, err := sock.NewPoller(fds)
	return &ownWaiter{Poller: p}, err
}

func (s *ownWaiter) Wait(d time.Duration, writable bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Poller.Wait(d, writable)
}

func (s *ownWaiter) Watch(fd int) error {
	s.Poller.Add(fd)
	return nil
}

func (s *ownWaiter) Shut() {
	s.Poller.Shut()
	s.mu.Lock()
	defer s.mu.Unlock()
}

func (c *conn) closeOwnWaiter() {
	if s, ok := c.wait.(*ownWaiter); ok {
		s.Close()
	}
}
