package script

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// badKey is a key of no region.
const badKey ib.Key = 0xBAD

// post posts a work request. Its buffer is a new area: "send1", "read1" and so on,
// with the bytes of the message if it is sent, else filled with untouched.
func (r *runner) post(e *endpoint, a *args) error {
	k, err := findKind(a.next())
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(a.next(), 10, 32)
	if err != nil {
		return fmt.Errorf("a request needs a number")
	}
	if k.recv {
		if q := e.sharedQueue(a); q != nil {
			return r.postShared(e, a, k, id, q)
		}
	}
	takes := canPost(e.qp.State(), k.recv)
	switch refused := a.flag("refused"); {
	case refused && takes:
		return fmt.Errorf("state %v takes it", e.qp.State())
	case refused:
		a.num("len", 0, 32)
		return nil
	case !takes:
		return fmt.Errorf("state %v refuses it", e.qp.State())
	}
	inline := a.flag("inline")
	sgl, err := r.buffer(e, a, k, id, e.pd)
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

// sharedQueue returns the SRQ that a receive is for; nil if it is for the QP's
// own queue.
func (e *endpoint) sharedQueue(a *args) *srq {
	q := e.srq(uint32(a.num("srq", 0, 24)))
	if q != nil && q.num == 0 && e.cfg.shared == 0 {
		return nil
	}
	return q
}

// postShared posts a receive to an SRQ, which rings no doorbell.
func (r *runner) postShared(e *endpoint, a *args, k kind, id uint64, q *srq) error {
	sgl, err := r.buffer(e, a, k, id, q.pd)
	if err != nil {
		return err
	}
	err = q.app.Push(&ib.RecvWR{ID: id, SGL: sgl})
	q.app.Publish()
	return err
}

// buffer makes the buffer of a request.
func (r *runner) buffer(e *endpoint, a *args, k kind, id uint64, pd *mr.PD) ([]ib.SGE, error) {
	size := uint64(0)
	if !k.bare {
		size = a.num("len", k.size, 32)
	}
	mem, err := r.newArea(bufferName(r, e, k.word, id), int(size))
	if err != nil || k.bare {
		return nil, err
	}
	if err := e.register(mem, ib.LocalWrite, a.flag("late"), pd); err != nil {
		return nil, err
	}
	n := int(a.num("sges", 1, 8))
	if n < 1 || n > mem.size && size > 0 {
		return nil, fmt.Errorf("%d SGEs for %d bytes", n, size)
	}
	mem.cut(n)
	for i := range mem.mem {
		mem.mem[i] = untouched
	}
	if k.outgoing() {
		name := strconv.FormatUint(id, 10)
		r.messages[name] = mem.size
		mem.message(mem.mem, slice{name, 0, mem.size}.bytes())
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

// bufferName returns the name of a request's buffer. With two QPs it begins with the
// name of the QP, or for receives with that of the host.
func bufferName(r *runner, e *endpoint, word string, id uint64) string {
	name := fmt.Sprintf("%s%d", word, id)
	switch {
	case len(r.ends) == 1:
		return name
	case word == "recv":
		return e.host.name + "-" + name
	}
	return e.name + "-" + name
}

// pushSend fills in the rest of a send request and pushes it into the ring.
func (r *runner) pushSend(e *endpoint, a *args, k kind, wr ib.SendWR, inline bool) error {
	var err error
	switch k.post {
	case ib.WRBindMW:
		err = r.bind(a, &wr)
	case ib.WRFlush:
		err = r.flush(a, &wr)
	}
	if err == nil {
		err = r.variant(a, k, &wr)
	}
	if err == nil {
		err = r.destination(e, a, &wr)
	}
	if err != nil {
		return err
	}
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

// variant takes the immediate or the key to invalidate, which change the opcode of a
// SEND or WRITE.
func (r *runner) variant(a *args, k kind, wr *ib.SendWR) error {
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
		wr.InvalidateKey = mem.key
		if k.post == ib.WRSend {
			wr.Opcode = ib.WRSendInv
		}
	}
	return nil
}

// destination takes the peer's memory and SRQ, and the destination of a datagram.
func (r *runner) destination(e *endpoint, a *args, wr *ib.SendWR) error {
	if v, ok := a.value("to"); ok {
		mem, off, err := r.address(v)
		if err != nil {
			return err
		}
		wr.RemoteAddr, wr.RKey = mem.addr+uint64(off), mem.key
	}
	wr.RKey = ib.Key(a.num("rkey", uint64(wr.RKey), 32))
	wr.RemoteSRQ = uint32(a.num("srq", 0, 24))
	wr.AH = ib.AHNum(a.num("ah", 0, 32))
	wr.RemoteQPN = ib.QPN(a.num("dest", uint64(e.peer), 24))
	wr.RemoteQKey = uint32(a.num("qkey", 0, 32))
	return nil
}

// flush fills in a FLUSH request.
func (r *runner) flush(a *args, wr *ib.SendWR) error {
	level, extent, err := takeFlush(a)
	wr.Flush = ib.Flush{Length: uint32(a.num("len", 0, 32)), Level: level, Extent: extent}
	return err
}

var flushLevels = map[string]ib.FlushLevel{"global": ib.FlushGlobally, "persistent": ib.FlushPersistently}

// takeFlush takes the level and the extent of a FLUSH.
func takeFlush(a *args) (level ib.FlushLevel, extent ib.FlushExtent, err error) {
	if v, ok := a.value("level"); ok {
		for name := range strings.SplitSeq(v, ",") {
			bit, ok := flushLevels[name]
			if !ok {
				return 0, 0, fmt.Errorf("%q is no level: global, persistent or both", name)
			}
			level |= bit
		}
	}
	switch v, _ := a.value("extent"); v {
	case "", "range":
	case "region":
		extent = ib.FlushRegion
	default:
		return 0, 0, fmt.Errorf("%q is no extent: range or region", v)
	}
	return level, extent, nil
}
