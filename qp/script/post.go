package script

import (
	"fmt"
	"strconv"

	"github.com/goroce/goroce/ib"
)

// badKey is a key that names nothing.
const badKey ib.Key = 0xBAD

// post posts a work request. Its buffer is an area of its own: "send1", "read1"
// and so on, with the bytes of the message, or untouched.
func (r *runner) post(e *endpoint, a *args) error {
	k, err := findKind(a.next())
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(a.next(), 10, 32)
	if err != nil {
		return fmt.Errorf("a request needs a number")
	}
	if a.flag("refused") {
		a.num("len", 0, 32)
		if canPost(e.qp.State(), k.recv) {
			return fmt.Errorf("state %v takes it", e.qp.State())
		}
		return nil
	}
	if !canPost(e.qp.State(), k.recv) {
		return fmt.Errorf("state %v refuses it", e.qp.State())
	}
	size := uint64(0)
	if k.post == ib.WRCompareSwap || k.post == ib.WRFetchAdd {
		size = 8
	}
	size = a.num("len", size, 32)
	inline := a.flag("inline")
	sgl, err := r.buffer(e, a, k, id, int(size))
	if err != nil {
		return err
	}
	if k.recv {
		err = e.rq.Push(&ib.RecvWR{ID: id, SGL: sgl})
		e.rq.Publish()
	} else {
		err = r.pushSend(e, a, k, ib.SendWR{ID: id, Opcode: k.post, SGL: sgl}, inline)
		e.sq.Publish()
	}
	if err != nil {
		return err
	}
	e.qp.Doorbell(r.now)
	e.input()
	return nil
}

// buffer makes the buffer of a request.
func (r *runner) buffer(e *endpoint, a *args, k kind, id uint64, size int) ([]ib.SGE, error) {
	mem, err := r.newArea(bufferName(r, e, k.word, id), size)
	if err != nil {
		return nil, err
	}
	if err := e.register(mem, ib.LocalWrite, a.flag("late"), e.pd); err != nil {
		return nil, err
	}
	n := int(a.num("sges", 1, 8))
	if n < 1 || n > size && size > 0 {
		return nil, fmt.Errorf("%d SGEs for %d bytes", n, size)
	}
	mem.cut(n)
	for i := range mem.mem {
		mem.mem[i] = untouched
	}
	if k.post == ib.WRSend || k.post == ib.WRWrite {
		if !k.recv {
			name := strconv.FormatUint(id, 10)
			r.messages[name] = size
			mem.message(mem.mem, slice{name, 0, size}.bytes())
		}
	}
	mem.want = append([]byte(nil), mem.mem...)
	sgl := mem.sgl()
	if v, ok := a.value("lkey"); ok {
		if v != "bad" {
			return nil, fmt.Errorf("lkey=bad is the only one to ask for")
		}
		sgl[len(sgl)-1].LKey = badKey
	}
	return sgl, nil
}

// bufferName names the buffer of a request. With two sides their names precede.
func bufferName(r *runner, e *endpoint, word string, id uint64) string {
	if len(r.ends) == 1 {
		return fmt.Sprintf("%s%d", word, id)
	}
	return fmt.Sprintf("%s-%s%d", e.name, word, id)
}

// pushSend completes a send request and puts it into the ring.
func (r *runner) pushSend(e *endpoint, a *args, k kind, wr ib.SendWR, inline bool) error {
	if v, ok := a.value("imm"); ok {
		n, err := strconv.ParseUint(v, 0, 32)
		if err != nil {
			return err
		}
		wr.Imm = uint32(n)
		wr.Opcode = map[ib.WROpcode]ib.WROpcode{ib.WRSend: ib.WRSendImm, ib.WRWrite: ib.WRWriteImm}[k.post]
	}
	if v, ok := a.value("inv"); ok {
		mem := r.areas[v]
		if mem == nil {
			return fmt.Errorf("there is no region %s", v)
		}
		wr.Opcode, wr.InvalidateKey = ib.WRSendInv, mem.key
	}
	if v, ok := a.value("to"); ok {
		mem, off, err := r.address(v)
		if err != nil {
			return err
		}
		wr.RemoteAddr, wr.RKey = mem.addr+uint64(off), mem.key
	}
	wr.RKey = ib.Key(a.num("rkey", uint64(wr.RKey), 32))
	wr.Compare = a.num("compare", 0, 64)
	wr.Swap = a.num("swap", a.num("add", 0, 64), 64)
	if !a.flag("unsignaled") {
		wr.Flags |= ib.SendSignaled
	}
	if a.flag("solicited") {
		wr.Flags |= ib.SendSolicited
	}
	if a.flag("fence") {
		wr.Flags |= ib.SendFence
	}
	if inline {
		mem := r.areas[bufferName(r, e, k.word, wr.ID)]
		wr.Flags |= ib.SendInline
		wr.SGL, wr.Inline = nil, append([]byte(nil), mem.mem...)
	}
	if a.err != nil {
		return a.err
	}
	return e.sq.Push(&wr)
}
