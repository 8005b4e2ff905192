package daemon

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// pages makes the daemon read and write memory of the attacker's process whose pages, huge pages
// if possible, the kernel must allocate each time, while other threads change the process's mappings.
func (a *attacker) pages(rounds int) {
	const size, hugePage = 64 << 20, 2 << 20
	n, err := newTenant(a.Socket, shape{size: size, process: true, qps: 2})
	must(err)
	defer n.close()
	_ = unix.Madvise(n.buf, unix.MADV_HUGEPAGE) // fails on kernels without huge pages
	self := n.card()
	slices.Reverse(self.QPNs)
	must(n.connect(self, steadily))

	end, ended := make(chan struct{}), make(chan struct{})
	defer func() { // before n.close unmaps the memory
		close(end)
		<-ended
	}()
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			must(unix.Madvise(n.buf, unix.MADV_DONTNEED))
			more, err := unix.Mmap(-1, 0, hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			must(err)
			must(unix.Munmap(more))
		}
	}()
	var wcs [depth]ib.WC
	for posted, done := 0, 0; done < rounds; {
		for ; posted < rounds && posted-done < depth; posted++ {
			at := func() int { return a.rng.IntN(size/hugePage) * hugePage }
			_, err := n.qps[0].PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: n.sge(at(), 64),
				RemoteAddr: n.mr.Addr() + uint64(at()), RKey: n.mr.RKey()}})
			must(err)
		}
		got, err := n.next(context.Background(), wcs[:])
		must(err)
		for _, wc := range wcs[:got] {
			must(wc.Err())
		}
		done += got
		a.Counts["written"] += got
	}
}
