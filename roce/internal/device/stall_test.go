package device_test

import (
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestStall: a host that takes no turn for longer than its peer's retries last fails the peer's requests, and not its
// own, for which it counts no retries meanwhile. It says so afterwards. A host whose turns are not late says nothing.
func TestStall(t *testing.T) {
	const pause = 2 * time.Second
	var stalls [2][]time.Duration
	network := mem.NewNetwork()
	open := func(i int, gid ib.GID) *host {
		var l link.Link = network.OpenShards([]ib.GID{gid}, mem.Options{}, 1)[0]
		return openHost(t, wrap.Seal(l), device.Options{Manual: true, Seed: uint64(i) + 1, AckDelay: -1,
			OnStall: func(late time.Duration) { stalls[i] = append(stalls[i], late) }}, 4096)
	}
	w := &world{t: t, a: open(0, gidA), b: open(1, gidB)}
	w.connect(ib.MTU1024, func(a *ib.QPAttr) { a.Timeout, a.RetryCnt = 15, 6 }) // 134 ms, then 268 ms each
	post := func(h, peer *host) {
		t.Helper()
		wr := ib.SendWR{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: []ib.SGE{h.mr.SGE(0, 8)},
			RemoteAddr: peer.mr.Addr(), RKey: peer.mr.RKey()}
		if _, err := h.qp.PostSend([]ib.SendWR{wr}); err != nil {
			t.Fatal(err)
		}
	}
	result := func(h *host) ib.WCStatus {
		t.Helper()
		var wc [1]ib.WC
		if n, err := h.cq.Poll(wc[:]); n != 1 || err != nil {
			t.Fatalf("%d completions, %v; want 1", n, err)
		}
		return wc[0].Status
	}
	post(w.b, w.a)
	w.b.dev.Step(w.now) // B has a request under way, and stands still
	post(w.a, w.b)
	for w.now < ib.Instant(pause) {
		for w.a.dev.Step(w.now) {
		}
		at := w.a.dev.Deadline()
		if at == driver.Never {
			at = ib.Instant(pause)
		}
		w.now = min(max(at, w.now+1), ib.Instant(pause))
	}
	if got := result(w.a); got != ib.WCRetryExcErr {
		t.Errorf("a request to the host that stands still ends with %v, want %v", got, ib.WCRetryExcErr)
	}
	for w.b.dev.Step(w.now) {
	}
	if got := result(w.b); got != ib.WCSuccess {
		t.Errorf("its own request ends with %v, want %v", got, ib.WCSuccess)
	}
	if len(stalls[0]) != 0 || len(stalls[1]) != 1 || stalls[1][0] < pause-100*time.Millisecond || stalls[1][0] > pause {
		t.Errorf("stalls are reported as %v, want one of B of about %v", stalls, pause)
	}
}
