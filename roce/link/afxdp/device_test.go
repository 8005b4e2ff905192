package afxdp

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// window is how many requests an end can have in flight.
const window = 128

// end is a device on a link, with a queue pair and memory.
type end struct {
	dev roce.Device
	cq  ib.CQ
	qp  ib.QP
	mr  ib.MR
	buf []byte

	timeout uint8 // ib.QPAttr.Timeout
}

func newEnd(t testing.TB, l link.Link, size int) *end {
	t.Helper()
	return newEndWith(t, l, size, roce.Options{})
}

func newEndWith(t testing.TB, l link.Link, size int, o roce.Options) *end {
	t.Helper()
	dev, err := roce.Open(wrap.Seal(wrap.Loopback(l)), o)
	must(t, err)
	t.Cleanup(func() { _ = dev.Close() })
	return newEndOn(t, dev, size)
}

// newEndOn makes an end of a device.
func newEndOn(t testing.TB, dev roce.Device, size int) *end {
	t.Helper()
	pd, err := dev.AllocPD()
	must(t, err)
	e := &end{dev: dev, buf: make([]byte, size), timeout: 19}
	e.cq, err = dev.CreateCQ(ib.CQInit{Entries: 2 * window})
	must(t, err)
	e.mr, err = pd.RegMR(ib.MRInit{Buf: e.buf, Access: ib.LocalWrite | ib.RemoteWrite})
	must(t, err)
	e.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq, SigAll: true,
		Cap: ib.QPCap{MaxSendWR: window, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(t, err)
	return e
}

// pathMTU is what the ports of both ends allow.
func (e *end) pathMTU(t testing.TB, peer *end) ib.MTU {
	t.Helper()
	here, err := e.dev.QueryPort(1)
	must(t, err)
	there, err := peer.dev.QueryPort(1)
	must(t, err)
	return min(here.ActiveMTU, there.ActiveMTU)
}

// connect takes e's queue pair to RTS with the peer's, by addresses of that index.
func (e *end) connect(t testing.TB, peer *end, gid int) {
	t.Helper()
	attr := ib.QPAttr{Port: 1, Access: ib.QPAccessMask,
		AH:      ib.AHAttr{DGID: peer.dev.Link().Local[gid], SGIDIndex: gid},
		PathMTU: e.pathMTU(t, peer), DestQPN: peer.qp.Num(), MinRNRTimer: 12, Timeout: e.timeout, RetryCnt: 7,
		RNRRetry: 7}
	must(t, ib.ModifyTo(e.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

func must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// sge names the first n bytes of e's memory.
func (e *end) sge(n int) []ib.SGE {
	return []ib.SGE{{Addr: e.mr.Addr(), Length: uint32(n), LKey: e.mr.LKey()}}
}

func (e *end) post(t testing.TB, n int) {
	t.Helper()
	_, err := e.qp.PostRecv([]ib.RecvWR{{SGL: e.sge(n)}})
	must(t, err)
}

// wait returns when e has so many more completions.
func (e *end) wait(t testing.TB, n int) {
	t.Helper()
	var wc [1]ib.WC
	for end := time.Now().Add(patience); n > 0; {
		got, err := e.cq.Poll(wc[:])
		must(t, err)
		if got == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				t.Fatalf("%d completions are missing; %+v", n, e.dev.Stats())
			}
			continue
		}
		must(t, wc[0].Err())
		n--
	}
}

// TestPingPong plays RC SENDs of all sizes between devices, over both IP versions,
// and checks the data.
func TestPingPong(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b linktest.Opener
		mtu  int
		path ib.MTU
		full bool // only with GOROCE_FULL=1: other rows show most of it
	}{
		{"native", native, native, 1500, ib.MTU1024, false},
		{"native, jumbo", native, native, 9000, ib.MTU4096, true},
		{"generic, jumbo", generic, generic, 9000, ib.MTU4096, false},
		{"one chunk", with(Options{oneChunk: true, Generic: true}), with(Options{oneChunk: true, Generic: true}), 9000,
			ib.MTU2048, true},
		{"native with UDP", native, plain, 1500, ib.MTU1024, true},
		{"UDP with native, jumbo", plain, native, 9000, ib.MTU4096, false},
		{"generic with UDP", generic, plain, 1500, ib.MTU1024, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.full {
				require.FullRun(t, "other rows show most of it, too")
			}
			if strings.Contains(tt.name, "UDP") && tt.name != "native with UDP" && !knowsSeveral() {
				require.Missing(t, "several frames in one piece need Linux 6.2")
			}
			na, nb := linktest.NewVeth(t, tt.mtu)
			a := newEnd(t, linktest.OpenIn(t, na, tt.a, na.Addr4, na.Addr6), 1<<17)
			b := newEnd(t, linktest.OpenIn(t, nb, tt.b, nb.Addr4, nb.Addr6), 1<<17)
			if path := a.pathMTU(t, b); path != tt.path && knowsSeveral() {
				t.Errorf("path MTU %v, want %v", path, tt.path)
			}
			for gid := range 2 {
				if gid > 0 {
					renew(t, a)
					renew(t, b)
				}
				a.connect(t, b, gid)
				b.connect(t, a, gid)
				for _, size := range []int{1, 1024, 4096, 5000, 1 << 17} {
					for i := range 20 {
						message(t, a, b, size, byte(i))
						message(t, b, a, size, byte(i+100))
					}
				}
			}
		})
	}
}

// renew takes e's queue pair back to the start.
func renew(t *testing.T, e *end) {
	t.Helper()
	must(t, e.qp.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState))
}

// message sends a message from a to b.
func message(t *testing.T, a, b *end, size int, seed byte) {
	t.Helper()
	for i := range size {
		a.buf[i] = seed + byte(i) + byte(i>>8)
	}
	clear(b.buf[:size])
	b.post(t, size)
	_, err := a.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: a.sge(size)}})
	must(t, err)
	b.wait(t, 1)
	a.wait(t, 1)
	if !bytes.Equal(a.buf[:size], b.buf[:size]) {
		t.Fatalf("a message of %d bytes differs", size)
	}
}

// A device closes while its peer writes to it all the time; the peer finds out.
func TestCloseDeviceUnderTraffic(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a := newEnd(t, linktest.OpenIn(t, na, native, na.Addr4), 1<<16)
	b := newEnd(t, linktest.OpenIn(t, nb, native, nb.Addr4), 1<<16)
	a.timeout = 14
	a.connect(t, b, 0)
	b.connect(t, a, 0)
	wr := ib.SendWR{Opcode: ib.WRWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), SGL: a.sge(1 << 16)}
	var wc [1]ib.WC
	for done, end := 0, time.Now().Add(3*patience); ; {
		if _, err := a.qp.PostSend([]ib.SendWR{wr}); err != nil && !errors.Is(err, ib.ErrQueueFull) {
			t.Fatal(err)
		}
		n, err := a.cq.Poll(wc[:])
		must(t, err)
		if n == 1 && wc[0].Status != ib.WCSuccess {
			if done < 100 || wc[0].Status != ib.WCRetryExcErr {
				t.Errorf("after %d WRITEs: %v; want at least 100 and %v", done, wc[0].Err(), ib.WCRetryExcErr)
			}
			return
		}
		if done += n; n == 1 && done == 100 {
			must(t, b.dev.Close())
		}
		if time.Now().After(end) {
			t.Fatalf("the peer is gone, but not for the sender: %+v", a.dev.Stats())
		}
	}
}
