package explain

import (
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// handshake shows two connection managers of package roce/cm.
var handshake = lesson{
	name:  "cm-handshake",
	title: "REQ, REP, RTU: how rdma_cm connects two queue pairs",
	group: "connecting",
	rule:  "IBTA",
	why: []string{
		"Two queue pairs can talk when each knows of the other the address, the QP number and the first PSN. With " +
			"rdma_cm, the connection managers (CM) of both hosts tell each other by datagrams to QP 1 of the port, " +
			"three of them: REQ, REP, RTU (IBTA chapter 12). A service ID says whom to connect to; rdma_cm makes it " +
			"of a port space (TCP, UDP) and a port.",
		"The REQ has what the server's QP must be set to, so the server can receive (RTR) when it sends the REP; the " +
			"REP has the same for the client, which goes to RTR and RTS. The RTU tells the server that it may send. " +
			"Either side ends the connection by a DREQ. Its QP number stays out of use for a while afterwards " +
			"(timewait), until no packet of the connection can be on the way any more.",
	},
	show: showHandshake,
}

// cmWorld is two connection managers in virtual time, whose messages are drawn.
type cmWorld struct {
	p      *page
	now    ib.Instant
	left   *cm.Manager
	right  *cm.Manager
	lose   wire.CMAttr // the next message of this kind is lost; 0 loses none
	events [2][]cm.Event
}

const (
	cmPort   = 7471
	cmFlight = 20_000 // nanoseconds that a message takes
)

// cmGID is the address of the left (0) or the right manager.
func cmGID(i byte) ib.GID { return ib.GIDFromAddr(netip.AddrFrom4([4]byte{192, 0, 2, 1 + i})) }

func newCMWorld(p *page) *cmWorld {
	p.begin("client 192.0.2.1", "server 192.0.2.2")
	return &cmWorld{p: p, left: cm.New(cm.Options{GUID: 1, Seed: [32]byte{1}}),
		right: cm.New(cm.Options{GUID: 2, Seed: [32]byte{2}})}
}

// settle carries messages until there are none, and collects events.
func (w *cmWorld) settle() {
	for carried := true; carried; {
		carried = false
		for i, m := range []*cm.Manager{w.left, w.right} {
			var msg cm.Message
			for m.NextMessage(&msg) {
				w.carry(i == 0, &msg)
				carried = true
			}
			var e cm.Event
			for m.NextEvent(&e) {
				w.events[i] = append(w.events[i], e)
			}
		}
	}
}

// carry draws a message and delivers it, unless it is to be lost.
func (w *cmWorld) carry(fromLeft bool, msg *cm.Message) {
	var h wire.MADHeader
	h.Decode(&msg.MAD)
	name, says := decode.MADText(&msg.MAD)
	lost := h.Attr == w.lose
	arrow := w.p.ladder.Packet(w.now, fromLeft, name)
	arrow.Lost, arrow.Note = lost, says
	w.now += cmFlight
	if lost {
		w.lose = 0
		return
	}
	to := w.left
	if fromLeft {
		to = w.right
	}
	to.Handle(w.now, cm.Path{Local: msg.Path.Remote, Remote: msg.Path.Local, HopLimit: 64}, msg.MAD[:])
}

// event takes the next event of the left or the right manager, and draws it.
func (w *cmWorld) event(left bool, kind cm.EventKind) (cm.Event, error) {
	i := 1
	if left {
		i = 0
	}
	w.settle()
	if len(w.events[i]) == 0 || w.events[i][0].Kind != kind {
		return cm.Event{}, fmt.Errorf("the connection manager has %v, not event %v", w.events[i], kind)
	}
	e := w.events[i][0]
	w.events[i] = w.events[i][1:]
	text := "event: " + kind.String()
	if kind == cm.Request || kind == cm.Replied {
		text += fmt.Sprintf(" of QP %#x, path MTU %d", uint32(e.Conn.RemoteQPN), e.Conn.PathMTU)
	}
	if kind == cm.Rejected {
		text += fmt.Sprintf(": %v", e.Reason)
	}
	w.p.ladder.Local(w.now, left, text)
	return e, nil
}

// connect asks for a connection, as rdma_connect does.
func (w *cmWorld) connect() (cm.ID, error) {
	w.p.ladder.Local(w.now, true, fmt.Sprintf("connect QP 0x11 to port %d", cmPort))
	return w.left.Connect(w.now, cm.Connect{
		Params: cm.Params{QPN: 0x11, Service: ib.RC, ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7,
			RNRRetry: 7},
		Path: cm.Path{Local: cmGID(0), Remote: cmGID(1)}, ServiceID: ib.PortSpaceTCP.ServiceID(cmPort),
		SrcPort: 40000, PathMTU: ib.MTU1024, AckTimeout: 14, GiveUp: driver.Never,
	})
}

// accept answers a request, as rdma_accept does, up to the event Established.
func (w *cmWorld) accept() (server cm.ID, err error) {
	req, err := w.event(false, cm.Request)
	if err != nil {
		return 0, err
	}
	w.p.ladder.Local(w.now, false, "QP 0x22 to RTR; accept")
	_, err = w.right.Accept(w.now, req.ID, cm.Params{QPN: 0x22, Service: ib.RC, ResponderResources: 4,
		InitiatorDepth: 4, RNRRetry: 7})
	return req.ID, err
}

// confirm ends the handshake.
func (w *cmWorld) confirm(client cm.ID) error {
	if _, err := w.event(true, cm.Replied); err != nil {
		return err
	}
	w.p.ladder.Local(w.now, true, "QP 0x11 to RTR, RTS; confirm")
	if err := w.left.Confirm(w.now, client, nil); err != nil {
		return err
	}
	_, err := w.event(false, cm.Established)
	return err
}

// pass passes time until something has happened.
func (w *cmWorld) pass() {
	before := w.now
	for w.settle(); w.now == before || len(w.events[0]) == 0; w.settle() {
		next := min(w.left.Deadline(), w.right.Deadline())
		if next == driver.Never {
			return
		}
		w.now = max(w.now, next)
		w.left.Timeout(w.now)
		w.right.Timeout(w.now)
	}
}

func showHandshake(p *page) error {
	for _, scene := range []struct {
		text string
		show func(w *cmWorld) error
	}{
		{"A connection, from beginning to end:", connectAndEnd},
		{"If nobody listens to the port, the REQ is answered by a REJ, with the reason:", refused},
		{"The datagrams can be lost. Who waits for an answer sends again, first soon and then ever more rarely. Here " +
			"the REP is lost: whichever of REQ and REP comes again, the connection manager that has it already knows " +
			"what to do.", lostREP},
	} {
		p.endScene()
		p.paragraph(scene.text)
		if err := scene.show(newCMWorld(p)); err != nil {
			return err
		}
	}
	p.endScene()
	return nil
}

func connectAndEnd(w *cmWorld) error {
	w.p.ladder.Local(w.now, false, fmt.Sprintf("listen on port %d", cmPort))
	if _, err := w.right.Listen(ib.PortSpaceTCP.ServiceID(cmPort), netip.Addr{}, false); err != nil {
		return err
	}
	client, err := w.connect()
	if err != nil {
		return err
	}
	if _, err := w.accept(); err != nil {
		return err
	}
	if err := w.confirm(client); err != nil {
		return err
	}
	w.p.ladder.Note("data go both ways, QP to QP, without the connection managers")
	w.p.ladder.Local(w.now, true, "disconnect")
	if err := w.left.Disconnect(w.now, client, nil); err != nil {
		return err
	}
	if _, err := w.event(false, cm.Disconnected); err != nil {
		return err
	}
	if _, err := w.event(true, cm.Disconnected); err != nil {
		return err
	}
	w.pass()
	_, err = w.event(true, cm.TimewaitExit)
	return err
}

func refused(w *cmWorld) error {
	if _, err := w.connect(); err != nil {
		return err
	}
	_, err := w.event(true, cm.Rejected)
	return err
}

func lostREP(w *cmWorld) error {
	w.lose = wire.AttrREP
	if _, err := w.right.Listen(ib.PortSpaceTCP.ServiceID(cmPort), netip.Addr{}, false); err != nil {
		return err
	}
	client, err := w.connect()
	if err != nil {
		return err
	}
	if _, err := w.accept(); err != nil {
		return err
	}
	w.settle()
	w.pass()
	return w.confirm(client)
}
