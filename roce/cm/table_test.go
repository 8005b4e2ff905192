package cm

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// The peer, whose messages the tests make.
const (
	peerID   = 0x77770001
	peerGUID = 0x0BAD_CAFE
	peerQPN  = 0x300
	ourQPN   = 0x100
	peerTID  = 0x1111_2222_3333
)

// lab is a manager with one connection, and a peer whose messages the test makes.
type lab struct {
	t   *testing.T
	m   *Manager
	now ib.Instant
	id  ID // 0 if there is none
}

var labPath = Path{Local: gidOf(0), Remote: gidOf(1)}

// labState says how to reach a state.
type labState struct {
	name  string
	reach func(l *lab)
}

// labs reaches each state, by calls of the consumer and messages of the peer.
var labs = []labState{
	{"unknown", func(l *lab) {}},
	{"REQ SENT", func(l *lab) { l.connect() }},
	{"MRA(REQ) RCVD", func(l *lab) { l.connect(); l.message("MRA") }},
	{"REQ RCVD", func(l *lab) { l.request() }},
	{"MRA(REQ) SENT", func(l *lab) { l.request(); l.input("Delay") }},
	{"REP SENT", func(l *lab) { l.request(); l.input("Accept") }},
	{"MRA(REP) RCVD", func(l *lab) { l.request(); l.input("Accept"); l.message("MRA(REP)") }},
	{"REP RCVD", func(l *lab) { l.connect(); l.message("REP") }},
	{"MRA(REP) SENT", func(l *lab) { l.connect(); l.message("REP"); l.input("Delay") }},
	{"ESTABLISHED active", func(l *lab) { l.connect(); l.message("REP"); l.input("Confirm") }},
	{"ESTABLISHED passive", func(l *lab) { l.request(); l.input("Accept"); l.message("RTU") }},
	{"DREQ SENT", func(l *lab) { l.connect(); l.message("REP"); l.input("Confirm"); l.input("Disconnect") }},
	{"TIMEWAIT", func(l *lab) { l.request(); l.input("Accept"); l.message("RTU"); l.message("DREQ") }},
	{"SIDR REQ SENT", func(l *lab) {
		id, err := l.m.Resolve(l.now, Resolve{Path: labPath, ServiceID: 1, GiveUp: driver.Never})
		l.id = id
		l.check(err)
	}},
	{"SIDR REQ RCVD", func(l *lab) { l.listen(true); l.message("SIDR_REQ"); l.takeID() }},
}

func newLab(t *testing.T, reach func(*lab)) *lab {
	l := &lab{t: t, m: New(Options{GUID: 5, Seed: seedOf(9)}), now: 1000 * second}
	reach(l)
	l.outcome(0)
	return l
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) listen(datagram bool) {
	if _, err := l.m.Listen(testService, netip.Addr{}, datagram); !errors.Is(err, ErrInUse) {
		l.check(err)
	}
}

func (l *lab) connect() {
	id, err := l.m.Connect(l.now, Connect{Params: Params{QPN: ourQPN, Service: ib.RC}, Path: labPath,
		ServiceID: testService, PathMTU: 1024, GiveUp: driver.Never})
	l.check(err)
	l.id = id
}

func (l *lab) request() {
	l.listen(false)
	l.message("REQ")
	l.takeID()
	for key := range l.m.listeners {
		delete(l.m.listeners, key) // what comes later is refused, not taken
	}
}

func (l *lab) takeID() {
	var e Event
	if !l.m.NextEvent(&e) {
		l.t.Fatalf("no event, want one")
	}
	l.id = e.ID
}

// messages are the messages that a peer may send to a connection, all with the correct IDs.
var messages = []string{"REQ", "MRA", "MRA(REP)", "REJ", "REJ(REP)", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ",
	"SIDR_REP"}

// message passes a message of the peer to the manager, after change.
func (l *lab) message(name string, change ...func(mad []byte) []byte) {
	l.t.Helper()
	us := uint32(l.id)
	if l.id == 0 {
		us = 0x12341234 // nobody's
	}
	var attr wire.CMAttr
	var b body
	switch name {
	case "REQ", "stale REQ":
		private := make([]byte, wire.REQPrivateLen)
		(&wire.CMHeader{Src: labPath.Remote, Dst: labPath.Local}).Put(private)
		req := &wire.REQ{LocalID: peerID, ServiceID: testService, CAGUID: peerGUID, QPN: peerQPN,
			RemoteResponseTimeout: 20, MaxCMRetries: 15,
			PathMTU: 1024, Primary: wire.CMPath{LocalGID: labPath.Remote, RemoteGID: labPath.Local, AckTimeout: 14},
			PrivateData: private}
		if name == "stale REQ" {
			req.LocalID++
		}
		attr, b = wire.AttrREQ, req
	case "MRA":
		attr, b = wire.AttrMRA, &wire.MRA{LocalID: peerID, RemoteID: us, Message: wire.MessageREQ, ServiceTimeout: 18}
	case "MRA(REP)":
		attr, b = wire.AttrMRA, &wire.MRA{LocalID: peerID, RemoteID: us, Message: wire.MessageREP, ServiceTimeout: 18}
	case "REJ":
		attr, b = wire.AttrREJ, &wire.REJ{RemoteID: us, Message: wire.MessageREQ, Reason: ib.RejectConsumer}
	case "REJ(REP)":
		attr, b = wire.AttrREJ, &wire.REJ{LocalID: peerID, RemoteID: us, Message: wire.MessageREP,
			Reason: ib.RejectConsumer}
	case "REJ(timeout)":
		guid := binary.BigEndian.AppendUint64(nil, peerGUID)
		attr, b = wire.AttrREJ, &wire.REJ{LocalID: peerID, Message: wire.MessageOther, Reason: ib.RejectTimeout,
			Info: guid}
	case "REP":
		attr, b = wire.AttrREP, &wire.REP{LocalID: peerID, RemoteID: us, QPN: peerQPN, CAGUID: peerGUID}
	case "RTU":
		attr, b = wire.AttrRTU, &wire.RTU{LocalID: peerID, RemoteID: us}
	case "DREQ":
		attr, b = wire.AttrDREQ, &wire.DREQ{LocalID: peerID, RemoteID: us, RemoteQPN: ourQPN}
	case "DREP":
		attr, b = wire.AttrDREP, &wire.DREP{LocalID: peerID, RemoteID: us}
	case "SIDR_REQ":
		private := make([]byte, wire.SIDRREQPrivateLen)
		(&wire.CMHeader{Src: labPath.Remote, Dst: labPath.Local}).Put(private)
		attr, b = wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: peerID, ServiceID: testService, PrivateData: private}
	case "SIDR_REP":
		attr, b = wire.AttrSIDRREP, &wire.SIDRREP{RequestID: us, QPN: 9, QKey: 8}
	default:
		l.t.Fatalf("no message %q", name)
	}
	var mad [wire.MADLen]byte
	format(&mad, attr, peerTID, b)
	datagram := mad[:]
	for _, f := range change {
		datagram = f(datagram)
	}
	l.m.Handle(l.now, labPath, datagram)
}

// inputs are the consumer's calls, deadlines, and events of other connections.
var inputs = []string{"Accept", "Answer", "Reject", "Delay", "Confirm", "DataArrived", "Disconnect", "Release",
	"Expired", "Unanswered", "Stale"}

func (l *lab) input(name string) error {
	c := l.m.conns[l.id]
	switch name {
	case "Accept":
		_, err := l.m.Accept(l.now, l.id, Params{QPN: ourQPN})
		return err
	case "Answer":
		return l.m.Answer(l.now, l.id, Answer{QPN: 4})
	case "Reject":
		return l.m.Reject(l.now, l.id, ib.RejectConsumer, nil, nil)
	case "Delay":
		return l.m.Delay(l.now, l.id, second)
	case "Confirm":
		return l.m.Confirm(l.now, l.id, nil)
	case "DataArrived":
		l.m.DataArrived(l.now, l.id)
	case "Disconnect":
		return l.m.Disconnect(l.now, l.id, nil)
	case "Release":
		l.m.Release(l.now, l.id)
	case "Unanswered":
		if c != nil && c.lastAttr != 0 {
			c.sent = 100
		}
		fallthrough
	case "Expired":
		if d := l.m.Deadline(); d != driver.Never {
			l.m.Timeout(d - 1) // a timeout before its time is none
			l.m.Timeout(d)
		}
	case "Stale":
		l.message("stale REQ")
	}
	return nil
}

// outcome describes the result: the counters that changed (except those of messages), "+MESSAGE" that was sent,
// "!Event", and ">STATE" if the state has changed.
func (l *lab) outcome(before state) string {
	var out []string
	counted := reflect.ValueOf(l.m.stats)
	for i := range counted.NumField() {
		if f := counted.Field(i); f.CanUint() && f.Uint() != 0 {
			out = append(out, counted.Type().Field(i).Name)
		}
	}
	l.m.stats = Stats{}
	var msg Message
	for l.m.NextMessage(&msg) {
		out = append(out, "+"+describe(&msg.MAD))
	}
	var e Event
	for l.m.NextEvent(&e) {
		out = append(out, "!"+e.Kind.String())
	}
	if s := l.state(); s != before {
		out = append(out, ">"+strings.ReplaceAll(s.String(), " ", "_"))
	}
	return strings.Join(out, " ")
}

func (l *lab) state() state {
	if c := l.m.conns[l.id]; c != nil {
		return c.state
	}
	return unknown
}

// describe returns the name of a message; for a REJ also its message and reason.
func describe(mad *[wire.MADLen]byte) string {
	attr := attrOf(mad)
	switch attr {
	case wire.AttrREJ:
		var r wire.REJ
		r.Decode(mad)
		return fmt.Sprintf("REJ(%v:%d)", r.Message, r.Reason)
	case wire.AttrMRA:
		var r wire.MRA
		r.Decode(mad)
		return fmt.Sprintf("MRA(%v)", r.Message)
	case wire.AttrSIDRREP:
		var r wire.SIDRREP
		r.Decode(mad)
		return fmt.Sprintf("SIDR_REP(%d)", r.Status)
	}
	return attr.String()
}

// TestTable tests every input in every state. testdata/table.txt has the expected outcomes.
func TestTable(t *testing.T) {
	want := readTable(t)
	for _, st := range labs {
		for _, what := range slices.Concat(messages, inputs) {
			l := newLab(t, st.reach)
			before := l.state()
			got := ""
			if slices.Contains(messages, what) {
				l.message(what)
			} else {
				switch err := l.input(what); {
				case errors.Is(err, ErrState):
					got = "ErrState"
				case errors.Is(err, ErrUnknownID):
					got = "ErrUnknownID"
				case err != nil:
					t.Errorf("%s, %s: %v, want no error", st.name, what, err)
				}
			}
			got = cmp.Or(got+l.outcome(before), "nothing")
			cell := [2]string{st.name, what}
			if w, ok := want[cell]; !ok || w != got {
				t.Errorf("%s, %s: %q, want %q", st.name, what, got, w)
			}
			delete(want, cell)
		}
	}
	for cell := range want {
		t.Errorf("testdata/table.txt has %q, which is not tested", cell)
	}
}

// readTable reads the expected outcome of each cell.
func readTable(t *testing.T) map[[2]string]string {
	file, err := os.ReadFile("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	table := map[[2]string]string{}
	state := ""
	for n, line := range strings.Split(string(file), "\n") {
		switch outcome, cells, ok := strings.Cut(strings.TrimPrefix(line, "\t"), ": "); {
		case line == "" || line[0] == '#':
		case line[0] != '\t':
			state = line
		case !ok:
			t.Fatalf("testdata/table.txt, line %d: no colon: %q", n+1, line)
		default:
			for _, what := range strings.Split(cells, ", ") {
				cell := [2]string{state, what}
				if _, twice := table[cell]; twice {
					t.Fatalf("testdata/table.txt, line %d: %q again", n+1, cell)
				}
				table[cell] = outcome
			}
		}
	}
	return table
}
