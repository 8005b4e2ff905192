package device_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestEveryOperation moves data with each RC operation between two devices.
func TestEveryOperation(t *testing.T) {
	for _, mtu := range []ib.MTU{ib.MTU256, ib.MTU512, ib.MTU1024, ib.MTU2048, ib.MTU4096} {
		w := newWorld(t, 1, 1<<20, plain)
		w.connect(mtu, nil)
		const n = 300_001
		fill(w.a.buf, 1)

		w.recv(w.b, ib.RecvWR{ID: 7, SGL: w.b.sge(0, n)})
		w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRSendImm, SGL: w.a.sge(0, n), Imm: 42})
		if wc := w.poll(w.b); wc.Err() != nil || wc.ID != 7 || wc.ByteLen != n || wc.Imm != 42 ||
			wc.Flags&ib.WCWithImm == 0 {
			t.Errorf("MTU %d: SEND: got completion %+v, want request 7, %d bytes, immediate 42", mtu, wc, n)
		}
		w.wantDone(w.a, 1)
		if !bytes.Equal(w.a.buf[:n], w.b.buf[:n]) {
			t.Errorf("MTU %d: SEND: data differ", mtu)
		}

		clear(w.b.buf)
		w.send(w.a, ib.SendWR{ID: 2, Opcode: ib.WRWrite, SGL: w.a.sge(5, n), RemoteAddr: w.b.mr.Addr() + 3,
			RKey: w.b.mr.RKey()})
		w.wantDone(w.a, 2)
		if !bytes.Equal(w.a.buf[5:5+n], w.b.buf[3:3+n]) {
			t.Errorf("MTU %d: WRITE: data differ", mtu)
		}

		clear(w.a.buf)
		fill(w.b.buf, 9)
		w.send(w.a, ib.SendWR{ID: 3, Opcode: ib.WRRead, SGL: w.a.sge(1, n), RemoteAddr: w.b.mr.Addr() + 8,
			RKey: w.b.mr.RKey()})
		w.wantDone(w.a, 3)
		if !bytes.Equal(w.a.buf[1:1+n], w.b.buf[8:8+n]) {
			t.Errorf("MTU %d: READ: data differ", mtu)
		}

		binary.NativeEndian.PutUint64(w.b.buf[16:], 100)
		w.send(w.a, ib.SendWR{ID: 4, Opcode: ib.WRFetchAdd, SGL: w.a.sge(64, 8), RemoteAddr: w.b.mr.Addr() + 16,
			RKey: w.b.mr.RKey(), Swap: 11})
		w.send(w.a, ib.SendWR{ID: 5, Opcode: ib.WRCompareSwap, SGL: w.a.sge(72, 8), RemoteAddr: w.b.mr.Addr() + 16,
			RKey: w.b.mr.RKey(), Compare: 111, Swap: 5})
		w.wantDone(w.a, 4)
		w.wantDone(w.a, 5)
		if old := binary.NativeEndian.Uint64(w.a.buf[64:]); old != 100 {
			t.Errorf("MTU %d: FETCH & ADD returned %d, want 100", mtu, old)
		}
		if old := binary.NativeEndian.Uint64(w.a.buf[72:]); old != 111 {
			t.Errorf("MTU %d: COMPARE & SWAP returned %d, want 111", mtu, old)
		}
		if now := binary.NativeEndian.Uint64(w.b.buf[16:]); now != 5 {
			t.Errorf("MTU %d: memory holds %d after COMPARE & SWAP, want 5", mtu, now)
		}
	}
}

func (w *world) wantDone(h *host, id uint64) {
	w.t.Helper()
	if wc := w.poll(h); wc.Err() != nil || wc.ID != id {
		w.t.Fatalf("completion %+v, want success of request %d", wc, id)
	}
}
