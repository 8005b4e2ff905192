package device_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
)

// wideFrame is what surely fits an IP packet of 1500 bytes.
const wideFrame = 1500 - 84

// connectWide connects two ports of MTU 1500 by QPs with a path MTU of 4096.
func connectWide(t *testing.T) *world {
	w := newWorld(t, 1, 1<<14, plain)
	fill(w.a.buf, 3)
	for _, h := range []*host{w.a, w.b} {
		h.dev.SetMTU(1500)
	}
	w.connect(ib.MTU4096, nil)
	return w
}

// TestWide: a QP may have a path MTU above the port's, as with rdma_rxe. Messages go as far as a frame does; a longer
// one fails, and says why.
func TestWide(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRSend, ib.WRWrite, ib.WRRead} {
		for _, n := range []int{0, 1, 1024, wideFrame, wideFrame + 1, 4096, 9000} {
			t.Run(fmt.Sprintf("%v/%d", op, n), func(t *testing.T) {
				w := connectWide(t)
				w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 1<<14)})
				w.send(w.a, ib.SendWR{ID: 1, Opcode: op, SGL: w.a.sge(0, n), RemoteAddr: w.b.mr.Addr(),
					RKey: w.b.mr.RKey()})
				wc := w.poll(w.a)
				if n <= wideFrame {
					if wc.Status != ib.WCSuccess || !bytes.Equal(w.a.buf[:n], w.b.buf[:n]) {
						t.Errorf("got %v, want success, and the bytes to arrive", wc.Status)
					}
					return
				}
				if wc.Status != ib.WCLocLenErr || ib.ReasonOf(wc.VendorErr) != ib.ReasonFrame {
					t.Errorf("got %v, %v; want %v, %v", wc.Status, ib.ReasonOf(wc.VendorErr), ib.WCLocLenErr,
						ib.ReasonFrame)
				}
				failed, _, err := w.a.qp.Failure()
				must(t, err)
				want := fmt.Sprintf("of %d bytes only %d fit a frame", n, wideFrame)
				if got := failed.Cause.String(); !strings.Contains(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

// TestWideResponse: a READ whose response does not fit a frame of the responder is refused.
func TestWideResponse(t *testing.T) {
	w := connectWide(t)
	w.a.dev.SetMTU(9000)
	w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRRead, SGL: w.a.sge(0, 4096), RemoteAddr: w.b.mr.Addr(),
		RKey: w.b.mr.RKey()})
	if wc := w.poll(w.a); wc.Status != ib.WCRemOpErr {
		t.Errorf("got %v, want %v", wc.Status, ib.WCRemOpErr)
	}
	_, refused, err := w.b.qp.Failure()
	must(t, err)
	if refused.Cause.Reason != ib.ReasonFrame {
		t.Errorf("got %v, want %v", refused.Cause, ib.ReasonFrame)
	}
}

// TestWideLater: a path MTU that was the port's stays what it is when the port's becomes less: the packets are repeated
// until the MTU is back, or no retry is left.
func TestWideLater(t *testing.T) {
	w := newWorld(t, 1, 1<<14, plain)
	fill(w.a.buf, 3)
	w.connect(ib.MTU4096, nil)
	w.a.dev.SetMTU(1500)
	w.write(0, 4096, nil)
	if wc := w.poll(w.a); wc.Status != ib.WCSuccess {
		t.Errorf("got %v, want success: the link carries it", wc.Status)
	}
}
