package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/roce/neigh"
)

// OpenShards opens as many links on the same addresses as a device has shards, a
// power of two. Each has sockets of its own, and gets the frames for the QPs that
// link.ShardOf gives to it, in the order in which the links are returned: the kernel
// looks at the first frame of what it delivers as one.
func OpenShards(addrs []netip.Addr, o Options, shards int) ([]link.Link, error) {
	if len(addrs) == 0 {
		return nil, errors.New("udp link: no address given")
	}
	if shards < 1 || shards > link.MaxShards || shards&(shards-1) != 0 {
		return nil, &ib.AttrError{Op: "open udp link", Attr: "shards", Value: shards,
			Allowed: fmt.Sprintf("1 to %d, a power of two", link.MaxShards), Err: ib.ErrInvalid}
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
	owner, err := claimPorts(addrs, shards)
	defer owner.release()
	if err != nil {
		return nil, err
	}
	var links []link.Link
	var conns []*conn
	for range shards {
		c := &conn{recvBuffer: o.RecvBuffer, ns: neigh.CurrentNamespace(), claim: owner}
		owner.users.Add(1)
		links, conns = append(links, c), append(conns, c)
		if err = c.open(addrs, o); err != nil {
			break
		}
	}
	if err == nil && shards > 1 {
		err = conns[0].steer(shards)
	}
	if err == nil {
		return links, nil
	}
	for _, c := range conns {
		c.free()
	}
	return nil, err
}

// claim is the right to the port at the addresses. Its users are the links, and
// whoever opens them.
type claim struct {
	shards int
	users  atomic.Int32
	locks  []*port.Lock
}

// claimPorts locks the port at each address. Sockets that share it let any other
// socket of the same user in: the locks are what keeps other drivers out.
func claimPorts(addrs []netip.Addr, shards int) (*claim, error) {
	c := &claim{shards: shards}
	c.users.Store(1)
	for _, a := range addrs {
		lock, err := port.Claim(a.WithZone(""))
		if err != nil {
			return c, err
		}
		c.locks = append(c.locks, lock)
	}
	return c, nil
}

// release takes one user away, and gives the port back with the last.
func (c *claim) release() {
	if c.users.Add(-1) > 0 {
		return
	}
	for _, l := range c.locks {
		l.Release()
	}
}

// steer tells the kernel, for each address, which socket of those that share the
// port gets a packet: as many as there are shards, in the order of their binding.
func (c *conn) steer(shards int) error {
	program, err := bpf.Assemble(shardOf(shards))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	for _, s := range c.socks {
		err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
		if err != nil {
			return fmt.Errorf("%v: share the port among %d shards: %w (%w)", s.local.Addr(), shards,
				os.NewSyscallError("setsockopt SO_ATTACH_REUSEPORT_CBPF", err), errors.ErrUnsupported)
		}
	}
	return nil
}

// shardOf is link.FrameShard as a program. Offsets count from the UDP payload, the
// frame.
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
