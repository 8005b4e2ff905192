package client

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/server"
)

// TestKindOfMemory checks that the daemon lists a region, and accounts for it, with its current
// memory. Listing does not wait for the client's requests.
func TestKindOfMemory(t *testing.T) {
	d := newDaemon(t, server.Options{OwnProcesses: true})
	n := d.newTenant(t, 4096)
	rings := d.server.Usage()[0].Amount["pinned"] - int64(len(n.buf))
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		for range 100 {
			d.server.MRs()
		}
	}()
	for _, c := range []struct {
		mask ib.ReregMask
		buf  []byte
		want string
	}{
		{0, nil, "memfd"},
		{ib.ReregTranslation, make([]byte, 8192), "process"},
		{ib.ReregAccess, nil, "process"},
		{ib.ReregTranslation, n.buf, "memfd"},
	} {
		if c.mask != 0 {
			n.must(n.mr.Rereg(c.mask, nil, ib.MRInit{Buf: c.buf, Access: ib.LocalWrite}))
		}
		held := int64(0)
		if c.want == "memfd" {
			held = int64(n.mr.Len())
		}
		if got := d.server.Usage()[0].Amount["pinned"] - rings; got != held {
			t.Errorf("re-registered with %v: %d bytes are counted, want %d", c.mask, got, held)
		}
		got := d.server.MRs()
		if len(got) != 1 || got[0].Kind != c.want || got[0].Length != n.mr.Len() {
			t.Errorf("re-registered with %v: %+v, want %s of %d bytes", c.mask, got, c.want, n.mr.Len())
		}
	}
}
