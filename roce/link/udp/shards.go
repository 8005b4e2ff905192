package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/roce/neigh"
)

// OpenShards opens a link for each shard of a device, a power of two, on the same addresses. Each has its own sockets
// and receives the frames for the QPs that link.ShardOf assigns to it, in the order of the returned links. For frames
// that the kernel has merged, the first one decides.
func OpenShards(addrs []netip.Addr, o Options, shards int) ([]link.Link, error) {
	if len(addrs) == 0 {
		return nil, errors.New("udp link: no address given")
	}
	if shards < 1 || shards > link.MaxShards || shards&(shards-1) != 0 {
		return nil, driver.Refuse("open udp link", "shards", shards,
			fmt.Sprintf("1 to %d, a power of two", link.MaxShards),
			ib.ErrInvalid)
	}
	if o.RecvBuffer == 0 {
		o.RecvBuffer = DefaultRecvBuffer
	}
	links, err := openShards(addrs, o, shards)
	if err != nil {
		return nil, fmt.Errorf("udp link: %w", err)
	}
	return links, nil
}

func openShards(addrs []netip.Addr, o Options, shards int) ([]link.Link, error) {
	owner := &claim{shards: shards, ports: make(map[ib.GID]*claimed)}
	var err error
	var links []link.Link
	var conns []*conn
	for shard := range shards {
		c := &conn{recvBuffer: o.RecvBuffer, onError: o.OnError, ns: neigh.CurrentNamespace(),
			opened: slices.Clone(addrs), shard: shard, claim: owner}
		links, conns = append(links, c), append(conns, c)
		if err = c.open(addrs, o); err != nil {
			break
		}
	}
	if err == nil {
		return links, nil
	}
	for _, c := range conns {
		c.free()
	}
	return nil, err
}

// claim counts the sockets that the links of one device have bound to the port, by address.
type claim struct {
	shards int
	mu     sync.Mutex
	ports  map[ib.GID]*claimed
}

// claimed counts the sockets that are bound to the port at one address.
type claimed struct {
	notice *port.Notice
	users  int // sockets of the links
}

// take adds a user of the port at a, which is bound.
func (c *claim) take(a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ports[ib.GIDFromAddr(a)]
	if p == nil {
		p = &claimed{notice: port.Announce(a)}
		c.ports[ib.GIDFromAddr(a)] = p
	}
	p.users++
}

// drop takes a user away.
func (c *claim) drop(g ib.GID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ports[g]
	if p.users--; p.users == 0 {
		p.notice.Withdraw()
		delete(c.ports, g)
	}
}

// steer makes the kernel choose the socket for a packet by its destination QP, among those
// that share the port with s: one for each shard, in the order in which they were bound.
func (s *socket) steer(shards int) error {
	program, err := bpf.Assemble(shardOf(shards))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	err = unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err != nil {
		return fmt.Errorf("%v: share the port among %d shards: %w (%w)", s.local.Addr(), shards,
			os.NewSyscallError("setsockopt SO_ATTACH_REUSEPORT_CBPF", err), errors.ErrUnsupported)
	}
	return nil
}

// shardOf is link.FrameShard as a BPF program. Offsets count from the UDP payload, the frame.
func shardOf(shards int) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4}, // reserved bits, and 24 bits of destination QP
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 1<<24 - 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ib.QPNGSI), SkipTrue: 2},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(shards - 1)},
		bpf.RetA{},
		bpf.RetConstant{Val: 0},
	}
}
