package server

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// walkQP is a QP that is connected to a peer, and its requests.
type walkQP struct {
	*thing
	ib.QP
	owner        *walkClient
	typ          ib.QPType
	pd           *thing
	xrcd         *thing   // of an XRC target
	srq          *walkSRQ // nil if it has receives of its own
	peer         *walkQP
	ended        bool // closed, or reset
	sends, recvs []*post
	last         int  // number of the latest message that was received
	broken       bool // in ERR
}

// post is a request.
type post struct {
	id      uint64
	verb    ib.WROpcode // unused for receives
	recv    bool
	qp      *walkQP  // nil for receives of an SRQ
	srq     *walkSRQ // of the peer, for XRC
	slots   []*slot  // for data that comes: of this client, or of the peer of a WRITE
	sizes   []int    // of a READ or atomic: how much of each slot it fills
	message *walkMessage
	done    bool
	ignored bool // its QP or SRQ is closed, or its QP reset
	reused  bool // a receive of UC: a message of which a part was lost may have used it before

	arena  *arena   // of the peer, that it names
	region ib.Key   // of the arena then
	via    *opening // by which it is named; nil if it is by the region
	stray  bool     // it names memory by a key that does not open it

	start func()        // called when it is posted; nil for nothing
	end   func(ok bool) // called when it has completed, or never will; nil for nothing
}

// walkMessage is the data of a request. SEND and WRITE have its number as immediate data.
type walkMessage struct {
	num        int
	data       []byte
	to         *walkQP
	written    []*slot  // by a WRITE
	ends       *opening // by a SEND that invalidates it
	by         *post
	from       ib.QPN // of UD, where data of its sender may be gone when it comes
	source     ib.GID
	stray      bool // it must not arrive
	acked, got bool
}

// fetches reports whether a request brings data into slots of this client.
func (p *post) fetches() bool {
	return p.verb == ib.WRRead || p.verb == ib.WRCompareSwap || p.verb == ib.WRFetchAdd
}

// peerPD returns the PD in which the peer checks keys: of XRC it is the SRQ's.
func (p *post) peerPD() *thing {
	if p.srq != nil {
		return p.srq.pd
	}
	return p.qp.peer.pd
}

// String describes a request in the messages of a failed test.
func (p *post) String() string {
	s := fmt.Sprint("request ", p.id, ", ")
	if p.qp != nil {
		s += p.qp.typ.String() + " "
	}
	if p.recv {
		return s + "receive"
	}
	return s + p.verb.String()
}

// writes reports whether a request is a WRITE.
func (p *post) writes() bool { return p.verb == ib.WRWrite || p.verb == ib.WRWriteImm }

// reliable reports whether a QP learns what its peer has received.
func (q *walkQP) reliable() bool { return q.typ != ib.UC && q.typ != ib.UD }

// abandon notes that requests will not complete, and that their memory is not used any more.
func abandon(list []*post) {
	for _, p := range list {
		p.ignored = true
		if p.recv || p.fetches() {
			p.free()
		}
		if p.end != nil {
			p.end(false)
		}
	}
}

func (q *walkQP) abandon() {
	q.ended = true
	abandon(q.sends)
	abandon(q.recvs)
	q.sends, q.recvs = nil, nil
}

// free ends the use of slots, unless the client has revoked them before.
func (p *post) free() {
	for _, s := range p.slots {
		if s.of == p {
			s.free()
		}
	}
}

func (w *walkWorld) newPost(p post) *post {
	p.id = uint64(len(w.posts))
	w.posts = append(w.posts, &p)
	return &p
}

// waits reports whether there are requests to send that have not completed.
func (c *walkClient) waits() bool {
	return slices.ContainsFunc(c.qps, func(q *walkQP) bool { return len(q.sends) > 0 })
}

const walkDepth = 16

func (c *walkClient) makeQP(typ ib.QPType) *walkQP {
	q := &walkQP{owner: c, typ: typ, pd: c.need(abi.KindPD), last: -1}
	send, recv := c.need(abi.KindCQ), c.need(abi.KindCQ)
	if q.pd == nil || send == nil || recv == nil {
		return nil
	}
	init := ib.QPInit{Type: typ, SendCQ: send.value.(ib.CQ), RecvCQ: recv.value.(ib.CQ), SigAll: true,
		Cap: ib.QPCap{MaxSendWR: walkDepth, MaxRecvWR: walkDepth, MaxSendSGE: 4, MaxRecvSGE: 3}}
	uses := []*thing{q.pd, send, recv}
	switch {
	case typ == ib.XRCTGT:
		if q.xrcd = c.need(abi.KindXRCD); q.xrcd == nil {
			return nil
		}
		init, uses = ib.QPInit{Type: typ, XRCD: q.xrcd.value.(ib.XRCD)}, []*thing{q.pd, q.xrcd}
	case typ == ib.XRCINI:
		init.RecvCQ, init.Cap.MaxRecvWR, uses = nil, 0, uses[:2]
	default:
		for _, s := range c.srqs {
			if s.xrcd == nil && s.pd == q.pd && c.one(2) {
				q.srq, init.SRQ, uses = s, s.s, append(uses, s.thing)
				break
			}
		}
	}
	made, err := q.pd.value.(ib.PD).CreateQP(init)
	if !c.granted("create QP", err) {
		return nil
	}
	q.QP, q.thing = made, c.add(abi.KindQP, made, uses...)
	c.qps = append(c.qps, q)
	q.after = func() {
		q.abandon()
		c.qps = slices.DeleteFunc(c.qps, func(o *walkQP) bool { return o == q })
	}
	return q
}

// connect connects new QPs of two clients, or of one.
func (w *walkWorld) connect() {
	a, b := w.client(), w.client()
	if a == nil {
		return
	}
	types := [][2]ib.QPType{{ib.RC, ib.RC}, {ib.RC, ib.RC}, {ib.UC, ib.UC}, {ib.UD, ib.UD}, {ib.XRCINI, ib.XRCTGT},
		{ib.XRCINI, ib.XRCTGT}}[w.n(6)]
	for _, c := range []*walkClient{a, b} {
		i := slices.IndexFunc(c.qps, func(q *walkQP) bool { return q.broken || q.ended })
		if i >= 0 && c.one(2) {
			c.closeThing(c.qps[i].thing)
		}
	}
	x := a.makeQP(types[0])
	y := b.makeQP(types[1])
	if x == nil || y == nil {
		return
	}
	x.peer, y.peer = y, x
	x.up()
	y.up()
	for range w.n(6) {
		a.postRecv()
		b.postRecv()
	}
}

// up connects a QP to its peer, or lets it take datagrams.
func (q *walkQP) up() {
	c := q.owner
	timeout := uint8(10) // 4 ms, of virtual time
	if c.live {
		timeout = 13
	}
	attr := ib.QPAttr{Port: 1, Access: ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic, QKey: walkQKey,
		AH:      ib.AHAttr{DGID: c.gids[q.peer.owner.side]},
		PathMTU: c.mtu, DestQPN: q.peer.Num(), MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 14, Timeout: timeout,
		RetryCnt: 4, RNRRetry: 6}
	must(c.t, ib.ModifyTo(q, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

// modify ends the work of a QP: its requests are flushed, or disappear.
func (c *walkClient) modify() {
	if len(c.qps) == 0 {
		return
	}
	q, state := c.qps[c.n(len(c.qps))], ib.StateErr
	c.poll()
	if c.one(2) {
		state = ib.StateReset
	}
	must(c.t, q.Modify(ib.QPAttr{State: state}, ib.AttrState))
	if state == ib.StateReset {
		q.abandon()
	}
}

// someQP returns a QP that fits and is connected, or was; nil if there is none. One that is in ERR
// is chosen less often.
func (c *walkClient) someQP(fits func(*walkQP) bool) *walkQP {
	broken := c.one(8)
	list := slices.DeleteFunc(slices.Clone(c.qps), func(q *walkQP) bool {
		return q.ended || q.peer == nil || q.broken && !broken || !fits(q)
	})
	if len(list) == 0 {
		return nil
	}
	return list[c.n(len(list))]
}

// postRecv posts a receive to a QP or to an SRQ.
func (c *walkClient) postRecv() {
	if len(c.srqs) > 0 && c.one(2) {
		s := c.srqs[c.n(len(c.srqs))]
		if p, wr := c.recv(nil, s.pd); p != nil {
			n, err := s.s.PostRecv([]ib.RecvWR{wr})
			c.posted(p, n, err)
			s.recvs = append(s.recvs, p)
		}
		return
	}
	q := c.someQP(func(q *walkQP) bool { return q.srq == nil && q.typ != ib.XRCINI && q.typ != ib.XRCTGT })
	if q == nil {
		return
	}
	if p, wr := c.recv(q, q.pd); p != nil {
		n, err := q.PostRecv([]ib.RecvWR{wr})
		if c.posted(p, n, err) {
			q.recvs = append(q.recvs, p)
		}
	}
}

// recv makes a receive into slots; nil if none are free.
func (c *walkClient) recv(q *walkQP, pd *thing) (p *post, wr ib.RecvWR) {
	p = c.newPost(post{recv: true, qp: q})
	p.slots = c.takeOf(recvSlots, p, c.registered(pd), 1+c.n(3))
	for _, s := range p.slots {
		wr.SGL = append(wr.SGL, s.sge())
	}
	wr.ID = p.id
	if len(p.slots) == 0 {
		return nil, wr
	}
	return p, wr
}

// posted notes whether a request was posted. A queue may be full.
func (c *walkClient) posted(p *post, n int, err error) bool {
	if n == 1 {
		return true
	}
	if err == nil {
		c.t.Error("nothing was posted, and there is no error")
	}
	p.done = true
	p.free()
	return false
}

// walkVerbs are what QPs of each type post, the more often the more often they are listed.
var walkVerbs = map[ib.QPType][]ib.WROpcode{
	ib.UD:     {ib.WRSendImm},
	ib.UC:     {ib.WRSendImm, ib.WRWriteImm, ib.WRWrite},
	ib.XRCINI: reliableVerbs,
	ib.RC:     append(reliableVerbs[:len(reliableVerbs):len(reliableVerbs)], ib.WRSendInv),
}

var reliableVerbs = []ib.WROpcode{ib.WRSendImm, ib.WRSendImm, ib.WRWriteImm, ib.WRWrite, ib.WRWrite, ib.WRRead,
	ib.WRRead, ib.WRCompareSwap, ib.WRFetchAdd, ib.WRAtomicWrite}

// postSend posts a SEND, WRITE, READ or atomic.
func (c *walkClient) postSend() {
	q := c.someQP(func(q *walkQP) bool { return q.typ != ib.XRCTGT })
	if q == nil {
		return
	}
	verbs := walkVerbs[q.typ]
	wr := ib.SendWR{ID: uint64(len(c.posts)), Opcode: verbs[c.n(len(verbs))], Imm: uint32(len(c.messages))}
	var srq *walkSRQ
	if q.typ == ib.XRCINI {
		if srq = q.peer.owner.someSRQ(q.peer.xrcd); srq != nil {
			wr.RemoteSRQ = srq.s.Num()
		} else if !c.one(30) {
			return
		}
	}
	p := c.newPost(post{qp: q, srq: srq, verb: wr.Opcode})
	if !c.fill(p, &wr) {
		p.done = true
		p.free()
		return
	}
	n, err := q.PostSend([]ib.SendWR{wr})
	if !c.posted(p, n, err) {
		return
	}
	q.sends = append(q.sends, p)
	if p.start != nil {
		p.start()
	}
}

// fill fills in a request. It returns false if this cannot be done now.
func (c *walkClient) fill(p *post, wr *ib.SendWR) bool {
	switch {
	case p.qp.typ == ib.UD:
		return c.fillDatagram(p, wr)
	case p.verb == ib.WRSendInv:
		return c.fillInvalidate(p, wr)
	case p.verb == ib.WRSendImm:
		return c.fillSend(p, wr)
	case p.writes():
		return c.fillWrite(p, wr)
	case p.verb == ib.WRRead:
		return c.fillRead(p, wr)
	}
	return c.fillAtomic(p, wr)
}

// someSRQ returns an SRQ in an XRC domain; nil if there is none.
func (c *walkClient) someSRQ(xrcd *thing) *walkSRQ {
	list := slices.DeleteFunc(slices.Clone(c.srqs), func(s *walkSRQ) bool { return s.xrcd != xrcd })
	if len(list) == 0 {
		return nil
	}
	return list[c.n(len(list))]
}

// fillSend fills in the data of a SEND.
func (c *walkClient) fillSend(p *post, wr *ib.SendWR) bool {
	most := slotBytes
	if c.one(16) {
		most = 3 * slotBytes // the receive may be too short
	}
	return c.fillData(p, wr, most)
}

// fillData fills in up to n bytes of data to send.
func (c *walkClient) fillData(p *post, wr *ib.SendWR, n int) bool {
	m := &walkMessage{num: len(c.messages), to: p.qp.peer, by: p}
	if wr.SGL, m.data = c.gather(p.qp.pd, n); wr.SGL == nil {
		return false
	}
	p.message = m
	c.messages = append(c.messages, m)
	return true
}

// fillWrite fills in the data and the destination of a WRITE.
func (c *walkClient) fillWrite(p *post, wr *ib.SendWR) bool {
	if !c.fillData(p, wr, slotBytes) {
		return false
	}
	m := p.message
	if len(m.data) > 0 && c.one(12) {
		m.stray = c.strayTarget(p, wr)
		return m.stray
	}
	if p.slots = c.take(p, c.aims(p, ib.RemoteWrite), 1); len(p.slots) == 0 {
		return false
	}
	s := p.slots[0]
	wr.RemoteAddr, wr.RKey = c.target(p, s.arena, s.at, len(m.data), ib.RemoteWrite)
	m.written = p.slots
	return true
}

// fillRead fills in a READ of data of the peer.
func (c *walkClient) fillRead(p *post, wr *ib.SendWR) bool {
	list := c.aims(p, ib.RemoteRead)
	p.slots = c.take(p, c.registered(p.qp.pd), 1+c.n(3))
	if !p.qp.reliable() || len(list) == 0 || len(p.slots) == 0 {
		return false
	}
	a, size := list[c.n(len(list))], 0
	for _, s := range p.slots {
		e := s.sge()
		e.Length = uint32(c.n(slotBytes + 1))
		wr.SGL, size = append(wr.SGL, e), size+int(e.Length)
		p.sizes = append(p.sizes, int(e.Length))
	}
	at := c.n(arenaSource - size + 1)
	wr.RemoteAddr, wr.RKey = c.target(p, a, arenaEdge+at, size, ib.RemoteRead)
	p.message = &walkMessage{data: a.source()[at:][:size], by: p}
	return true
}

// poll takes the client's completions.
func (c *walkClient) poll() {
	var wcs [16]ib.WC
	for _, cq := range c.all(abi.KindCQ) {
		for n := len(wcs); n == len(wcs); {
			var err error
			n, err = cq.value.(ib.CQ).Poll(wcs[:])
			must(c.t, err)
			if n > 0 && cq.event == eventArmed {
				cq.event = eventRaised
			}
			for i := range wcs[:n] {
				c.completed(&wcs[i])
			}
		}
	}
}

func (c *walkClient) completed(wc *ib.WC) {
	if wc.ID >= uint64(len(c.posts)) || c.posts[wc.ID].done {
		c.t.Errorf("a completion of no request, or the second one: %+v", *wc)
		return
	}
	p := c.posts[wc.ID]
	if p.ignored {
		if !c.live { // else it may have completed between poll and the verb that ended it
			c.t.Errorf("a completion of a queue that is closed or reset: %+v", *wc)
		}
		return
	}
	p.done = true
	if q := p.qp; q != nil {
		q.broken = q.broken || wc.Status != ib.WCSuccess
		isP := func(o *post) bool { return o == p }
		q.sends, q.recvs = slices.DeleteFunc(q.sends, isP), slices.DeleteFunc(q.recvs, isP)
	}
	if p.end != nil {
		p.end(wc.Status == ib.WCSuccess)
	}
	switch {
	case wc.Status != ib.WCSuccess:
		c.failed(p, wc)
	case p.recv:
		c.received(p, wc)
	case p.stray && p.qp.reliable():
		c.t.Errorf("%v: a WRITE by a key that opens nothing succeeds", p)
	case p.fetches():
		c.totals.read++
		c.landed(p, p.slots, p.sizes, p.message.data)
		p.free()
	case p.message != nil && p.qp.reliable():
		p.message.acked = true
		c.written(p)
	}
}

// failed takes the completion of a request that has failed.
func (c *walkClient) failed(p *post, wc *ib.WC) {
	c.totals.failed++
	if wc.Status == ib.WCRemAccessErr {
		c.checkRefusal(p)
	}
	if p.stray && wc.Status == ib.WCRemAccessErr {
		c.totals.denied++
	}
	if p.recv || p.fetches() { // packets of a WRITE may still be on their way
		p.free()
	}
}

// written checks the data of a WRITE that the peer has acknowledged.
func (c *walkClient) written(p *post) {
	if !p.writes() {
		return
	}
	c.landed(p, p.slots, []int{len(p.message.data)}, p.message.data)
	if p.verb == ib.WRWrite {
		p.message.got = true
		c.totals.written++
		p.free()
	}
}

// received checks the message that a receive has taken.
func (c *walkClient) received(p *post, wc *ib.WC) {
	c.totals.received++
	defer p.free()
	m := c.messageOf(wc)
	if m == nil {
		c.t.Errorf("a message that nobody has sent: %+v", *wc)
		return
	}
	switch q := m.to; {
	case q.owner != c || q.Num() != wc.QPN:
		c.t.Errorf("message %d comes to the wrong QP: %+v, want QP %v", m.num, *wc, q.Num())
	case m.stray:
		c.t.Errorf("message %d comes in spite of a wrong key: %+v", m.num, *wc)
	case m.got && q.reliable(): // where the network may repeat a message (IBTA 9.8.2.2)
		c.t.Errorf("message %d comes twice: %+v", m.num, *wc)
	case q.typ == ib.RC && m.num < q.last:
		c.t.Errorf("message %d comes after message %d, want it before", m.num, q.last)
	}
	m.got, m.to.last, p.reused = true, m.num, m.to.typ == ib.UC
	if wc.Opcode == ib.WCRecvImm {
		c.landed(m.by, m.written, []int{len(m.data)}, m.data)
		if m.to.typ != ib.UC { // else a copy of the message may still come
			m.by.free()
		}
		c.landed(p, p.slots, nil, nil)
		return
	}
	if m.to.typ == ib.UD {
		c.datagram(p, wc, m)
		return
	}
	if m.ends != nil {
		c.invalidated(m.ends, true)
	}
	if int(wc.ByteLen) != len(m.data) {
		c.t.Errorf("message %d has %d bytes, want %d", m.num, wc.ByteLen, len(m.data))
	}
	c.landed(p, p.slots, nil, m.data)
}

// messageOf returns the message that a receive has taken; nil if nobody has sent it.
func (c *walkClient) messageOf(wc *ib.WC) *walkMessage {
	if wc.Flags&ib.WCWithImm != 0 && int(wc.Imm) < len(c.messages) {
		return c.messages[wc.Imm]
	}
	for _, m := range c.messages {
		if m.ends != nil && wc.Flags&ib.WCWithInv != 0 && m.ends.key == wc.InvalidatedKey && m.to.Num() == wc.QPN {
			return m
		}
	}
	return nil
}

// missed reports whether a message was acknowledged, but not received, although it should be.
func (m *walkMessage) missed() bool {
	q := m.to
	if !m.acked || m.got || q.ended || q.owner.gone {
		return false
	}
	return q.typ != ib.XRCTGT || slices.Contains(q.owner.srqs, m.by.srq) // else its completions have gone with the SRQ
}

// landed checks that the slots hold the data of a request, and nothing else. sizes tell how much
// of each slot may be filled, all of it if they are nil.
func (c *walkClient) landed(p *post, slots []*slot, sizes []int, data []byte) {
	for i, s := range slots {
		size := slotBytes
		if sizes != nil {
			size = sizes[i]
		}
		n := min(size, len(data))
		rest := s.bytes()[n:]
		if p.reused {
			rest = nil
		}
		if s.of == p && (!bytes.Equal(s.bytes()[:n], data[:n]) || !isUnwritten(rest)) {
			c.t.Errorf("%v: %d bytes of arena %d from %d on are not those that were sent", p, n, s.arena.num, s.at)
		}
		data = data[n:]
	}
}
