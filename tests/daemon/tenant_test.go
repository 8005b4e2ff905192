package daemon

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
)

// tenant is a client with the objects that QPs need. The test and its children use it.
type tenant struct {
	dev *client.Device
	gid ib.GID
	pd  ib.PD
	cq  ib.CQ
	srq ib.SRQ
	buf []byte
	mr  ib.MR
	qps []ib.QP

	sges int
}

// shape has the parameters of a tenant.
type shape struct {
	size    int // of its memory
	process bool
	srq     bool
	qps     int
	sges    int // SGEs of a request; 0 means 1
}

// depth is the length of each queue.
const depth = 32

const rights = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead

// newTenant connects to a daemon. Closing its device closes all of its objects.
func newTenant(socket string, s shape) (n *tenant, err error) {
	n = &tenant{sges: max(s.sges, 1)}
	if n.dev, err = client.Dial(context.Background(), client.Options{Socket: socket}); err != nil {
		return nil, err
	}
	return n, errors.Join(n.make(s), n.addQPs(s.qps))
}

func (n *tenant) make(s shape) (err error) {
	gids, err := n.dev.GIDs(1)
	if err != nil {
		return err
	}
	n.gid = gids[0].GID
	if n.pd, err = n.dev.AllocPD(); err != nil {
		return err
	}
	if n.cq, err = n.dev.CreateCQ(ib.CQInit{Entries: 1024}); err != nil {
		return err
	}
	if s.srq {
		if n.srq, err = n.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: depth, MaxSGE: 1}}); err != nil {
			return err
		}
	}
	if s.process {
		n.buf, err = unix.Mmap(-1, 0, s.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	} else {
		n.buf, err = client.Alloc(s.size)
	}
	if err != nil {
		return err
	}
	n.mr, err = n.pd.RegMR(ib.MRInit{Buf: n.buf, Access: rights})
	return err
}

// addQPs creates more queue pairs.
func (n *tenant) addQPs(count int) error {
	for range count {
		q, err := n.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: n.cq, RecvCQ: n.cq, SRQ: n.srq,
			Cap: ib.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: n.sges, MaxRecvSGE: 1}})
		if err != nil {
			return err
		}
		n.qps = append(n.qps, q)
	}
	return nil
}

// card returns the tenant's card for a peer.
func (n *tenant) card() card {
	c := card{GID: n.gid, Addr: n.mr.Addr(), Key: n.mr.RKey(), Len: n.mr.Len()}
	for _, q := range n.qps {
		c.QPNs = append(c.QPNs, q.Num())
	}
	return c
}

// timing determines when a requester fails: retries+1 times 4.096 us * 2^timeout.
type timing struct{ timeout, retries uint8 }

var (
	steadily = timing{18, 7} // more than 8 s
	soon     = timing{13, 6} // 235 ms
)

// connect connects each QP to the peer's QP of the same index.
func (n *tenant) connect(peer card, when timing) error {
	for i, q := range n.qps {
		if err := connectQP(q, peer.GID, peer.QPNs[i], when); err != nil {
			return fmt.Errorf("connect QP %d: %w", i, err)
		}
	}
	return nil
}

func connectQP(q ib.QP, gid ib.GID, qpn ib.QPN, when timing) error {
	attr := ib.QPAttr{PathMTU: ib.MTU4096, DestQPN: qpn, MaxRdAtomic: 4, MaxDestRdAtomic: 4, Timeout: when.timeout,
		RetryCnt: when.retries, RNRRetry: 7, MinRNRTimer: 12, AH: ib.AHAttr{DGID: gid, Port: 1}, Port: 1,
		Access: ib.RemoteWrite | ib.RemoteRead}
	return ib.ModifyTo(q, attr, ib.StateInit, ib.StateRTR, ib.StateRTS)
}

// sge returns a range of the tenant's memory as a scatter-gather list.
func (n *tenant) sge(off, length int) []ib.SGE {
	return []ib.SGE{n.mr.SGE(off, length)}
}

// next waits for completions.
func (n *tenant) next(ctx context.Context, wcs []ib.WC) (int, error) { return n.cq.Wait(ctx, wcs) }

// close ends the connection.
func (n *tenant) close() {
	_ = n.dev.Close()
	if client.Free(n.buf) != nil {
		_ = unix.Munmap(n.buf) // not allocated by client.Alloc
	}
}

// fill writes the pattern of a number. The patterns of two numbers differ in every word.
func fill(b []byte, number uint64) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
	for i := range words {
		words[i] = number<<20 + uint64(i)
	}
}

// check compares each byte with the pattern of a number.
func check(b []byte, number uint64) error {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
	for i, w := range words {
		if want := number<<20 + uint64(i); w != want {
			return fmt.Errorf("message %d: %#x at byte %d, want %#x", number, w, 8*i, want)
		}
	}
	return nil
}
