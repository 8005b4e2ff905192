package rsocket

import (
	"context"
	"encoding/binary"
	"testing"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/simtest"
)

// raw is a peer that the test implements, message by message.
type raw struct {
	t     testing.TB
	h     *half
	conn  *Conn
	their record // conn's
	inbox []ib.WC
}

// newRaw connects a Conn to a raw peer, whose record the test may change. The raw peer has received the Conn's first
// message, the second half of the Conn's buffer.
func newRaw(t testing.TB, n *simtest.Net, o Options, change func(*record)) *raw {
	t.Helper()
	devA, devB := on(n)(t)
	a, b := newHalf(t, devA, o), newHalf(t, devB, Options{MapSlots: 1})
	a.bringUp(t, b)
	b.bringUp(t, a)
	mine := b.ep.record()
	if change != nil {
		change(&mine)
	}
	r := &raw{t: t, h: b, their: a.ep.record()}
	r.conn = newConn(a.ep, a.qp, &hand{qp: a.qp, done: make(chan struct{})}, mine, addrOf(devA), addrOf(devB))
	t.Cleanup(func() {
		r.conn.Close()
		b.qp.Close()
		b.ep.close()
		<-r.conn.Done()
	})
	r.want(msgCredits, uint32(a.ep.o.ReceiveQueue))
	return r
}

// write RDMA WRITEs payload to memory of the Conn with a message.
func (r *raw) write(addr uint64, key ib.Key, payload []byte, t msgType, value uint32) {
	r.t.Helper()
	n := copy(r.h.ep.send, payload)
	wr := ib.SendWR{Opcode: ib.WRWriteImm, Imm: message(t, value), RemoteAddr: addr, RKey: key}
	if n > 0 {
		wr.SGL = []ib.SGE{{Addr: r.h.ep.sendMR.Addr(), Length: uint32(n), LKey: r.h.ep.sendMR.LKey()}}
	}
	if _, err := r.h.qp.PostSend([]ib.SendWR{wr}); err != nil {
		r.t.Fatal(err)
	}
	wc := r.next(isSend)
	if err := wc.Err(); err != nil {
		r.t.Fatal(err)
	}
}

// say sends a message without a payload.
func (r *raw) say(t msgType, value uint32) {
	r.t.Helper()
	r.write(0, 0, nil, t, value)
}

// entry writes an entry of the Conn's target SGL, in its byte order.
func (r *raw) entry(i int, s sge, limit uint32) {
	r.t.Helper()
	r.write(r.their.sgl.addr+uint64(i)*sgeLen, r.their.sgl.key, s.append(nil, r.their.byteOrder()), msgCredits, limit)
}

func isSend(wc *ib.WC) bool    { return !isReceive(wc) }
func isReceive(wc *ib.WC) bool { return wc.ID>>56 == uint64(received) }

// next waits for the next completion that pick accepts.
func (r *raw) next(pick func(*ib.WC) bool) ib.WC {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		for i := range r.inbox {
			if wc := r.inbox[i]; pick(&wc) {
				r.inbox = append(r.inbox[:i], r.inbox[i+1:]...)
				return wc
			}
		}
		if !r.poll() {
			if err := r.h.ep.cq.Arm(false); err != nil {
				r.t.Fatal(err)
			}
			if !r.poll() {
				if _, err := r.h.ep.ch.Wait(ctx); err != nil {
					r.t.Fatalf("no completion at the raw peer: %v", err)
				}
			}
		}
	}
}

func (r *raw) poll() bool {
	r.t.Helper()
	var wcs [16]ib.WC
	n, err := r.h.ep.cq.Poll(wcs[:])
	if err != nil {
		r.t.Fatal(err)
	}
	r.inbox = append(r.inbox, wcs[:n]...)
	return n > 0
}

// want receives the Conn's next message, which must be this one, and returns the length of its payload.
func (r *raw) want(t msgType, value uint32) int {
	r.t.Helper()
	wc := r.next(isReceive)
	if err := wc.Err(); err != nil {
		r.t.Fatalf("want message %d %d: %v", t, value, err)
	}
	if gotT, got := splitMessage(wc.Imm); gotT != t || got != value {
		r.t.Fatalf("message %d %d, want %d %d", gotT, got, t, value)
	}
	if _, err := r.h.qp.PostRecv([]ib.RecvWR{{ID: workID(received, 0)}}); err != nil {
		r.t.Fatal(err)
	}
	return int(wc.ByteLen)
}

// quiet fails if the Conn sends a message before it has answered an empty WRITE; anything that it could send by itself
// would have arrived by then.
func (r *raw) quiet() {
	r.t.Helper()
	r.say(msgControl, ctrlKeepAlive)
	r.poll()
	for _, wc := range r.inbox {
		t, value := splitMessage(wc.Imm)
		r.t.Fatalf("message %d %d, want none", t, value)
	}
}

// table returns the raw peer's own target SGL and iomap as bytes.
func (r *raw) table() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&r.h.ep.table[0])), len(r.h.ep.table)*8)
}

// other is the byte order that differs from this host's.
var other = map[bool]binary.ByteOrder{true: binary.LittleEndian, false: binary.BigEndian}[hostBigEndian]
