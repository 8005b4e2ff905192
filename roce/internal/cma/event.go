package cma

import (
	"cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// handle passes an event of the state machine to the ID of its connection.
func (p *Port) handle(ev *cm.Event) {
	p.mu.here().touched++
	switch ev.Kind {
	case cm.Request:
		p.request(ev)
		return
	case cm.Forgotten:
		p.over(ev.ID)
		return
	}
	id := p.conns[ev.ID]
	if id == nil {
		return
	}
	if f := handlers[ev.Kind]; f != nil {
		f(id, ev)
	}
}

// handlers has the handler of each kind of event of the state machine.
var handlers = [...]func(*ID, *cm.Event){
	cm.Replied: (*ID).replied, cm.Established: (*ID).established, cm.Rejected: (*ID).rejected,
	cm.Unreachable:  (*ID).unreachable,
	cm.Disconnected: (*ID).disconnected, cm.TimewaitExit: (*ID).timewaitExit, cm.Resolved: (*ID).resolved,
	cm.Dropped: (*ID).dropped,
}

// request makes a new ID for a peer's request, or rejects the request. It ignores a request beyond the listener's
// backlog, which the peer repeats: so it gets in when there is room, as with Linux's ucma_event_handler.
func (p *Port) request(ev *cm.Event) {
	l := p.listeners[ev.Listener]
	typ := ev.Conn.Service
	if ev.Datagram {
		typ = ib.UD
	}
	refuse := func(r ib.RejectReason) { _ = p.m.Reject(p.host.Now(), ev.ID, r, nil, nil) }
	switch {
	case l == nil || l.ch.gone:
		refuse(ib.RejectInvalidServiceID)
		return
	case l.waiting.Len() >= l.backlog:
		_ = p.m.Ignore(ev.ID)
		return
	}
	init := l.init
	init.Type = typ
	if p.take("request", l.ch.owner, connections) != nil {
		refuse(ib.RejectNoResources)
		return
	}
	id, err := l.ch.newID("request", init, p)
	if err != nil {
		p.hold(l.ch.owner, connections, -1)
		refuse(ib.RejectNoResources)
		return
	}
	id.conn, id.path, id.params, id.state = ev.ID, ev.Path, ev.Conn, stateConnecting
	id.agreed, id.zone = true, cmp.Or(l.zone, p.netif())
	id.listener, id.muted = l, l.quietRequests
	id.inBacklog = l.waiting.PushBack(id)
	p.conns[ev.ID] = id
	l.ch.owner.toHalf(id)
	id.local = addrOf(ev.Path.Local, l.local.Port())
	id.remote = addrOf(ev.Path.Remote, 0)
	if ev.HasHeader {
		id.local = addrOf(ev.Header.Dst, l.local.Port())
		id.remote = addrOf(ev.Header.Src, ev.Header.SrcPort)
	}
	out := ib.CMEvent{Type: ib.CMConnectRequest, Listener: l, Param: id.paramOf(ev)}
	if ev.Datagram {
		out.AH = id.addressVector()
	}
	id.ch.put(id, out)
}

// paramOf returns the peer's parameters in the form that rdma_cm reports to applications.
func (id *ID) paramOf(ev *cm.Event) ib.CMConnParam {
	c := &ev.Conn
	return ib.CMConnParam{QPN: c.RemoteQPN, QKey: ev.QKey, SRQ: ev.SRQ, ResponderResources: c.ResponderResources,
		InitiatorDepth: c.InitiatorDepth,
		RetryCount:     c.RetryCount, RNRRetry: c.RNRRetry, PrivateData: ev.PrivateData}
}

func (id *ID) replied(ev *cm.Event) {
	id.params, id.agreed = ev.Conn, true
	id.port.dials.remove(id)
	id.ch.put(id, ib.CMEvent{Type: ib.CMConnectResponse, Param: id.paramOf(ev)})
}

func (id *ID) established(ev *cm.Event) {
	id.params, id.state = ev.Conn, stateConnected
	id.ch.owner.notHalf(id)
	id.ch.put(id, ib.CMEvent{Type: ib.CMEstablished, Param: id.paramOf(ev)})
}

// rejected ends an attempt to connect. As in rdma_cm, the refusal of a datagram service is a CMUnreachable event with
// the status of the SIDR_REP.
func (id *ID) rejected(ev *cm.Event) {
	id.disown()
	out := ib.CMEvent{Type: ib.CMRejected, Status: int(ev.Reason), Info: ev.Info,
		Param: ib.CMConnParam{PrivateData: ev.PrivateData}}
	if ev.Datagram {
		out.Type, out.Status = ib.CMUnreachable, int(ev.Status)
	}
	id.lapse(out)
}

func (id *ID) unreachable(ev *cm.Event) {
	id.disown()
	status := -errnoTimedOut
	if id.cause != 0 {
		status = -id.cause
	}
	id.lapse(ib.CMEvent{Type: ib.CMUnreachable, Status: status, Tries: ev.Sent})
}

// disconnected queues CMDisconnected. The ID keeps its connection until timewaitExit.
func (id *ID) disconnected(ev *cm.Event) {
	id.state = stateOver
	id.ch.put(id, ib.CMEvent{Type: ib.CMDisconnected, Param: ib.CMConnParam{PrivateData: ev.PrivateData}})
}

func (id *ID) timewaitExit(*cm.Event) {
	id.disown()
	id.ch.put(id, ib.CMEvent{Type: ib.CMTimewaitExit})
}

// resolved handles the answer of a datagram service.
func (id *ID) resolved(ev *cm.Event) {
	id.disown()
	id.state = stateConnected
	id.ch.put(id, ib.CMEvent{Type: ib.CMEstablished, AH: id.addressVector(), Info: ev.Info, Param: id.paramOf(ev)})
}

// dropped ends a peer's request before a connection exists: the peer has withdrawn it, with a reason, or does not
// answer any more.
func (id *ID) dropped(ev *cm.Event) {
	id.disown()
	out := ib.CMEvent{Type: ib.CMUnreachable, Status: -errnoTimedOut}
	if ev.Reason != 0 {
		out.Type, out.Status = ib.CMRejected, int(ev.Reason)
	}
	id.lapse(out)
}
