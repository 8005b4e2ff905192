package pingpong

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
)

// ErrExchange: the exchange of addresses over TCP has failed.
var ErrExchange = meet.ErrExchange

// address is the address of a queue pair.
type address struct {
	lid uint16 // 0 on Ethernet
	qpn ib.QPN
	psn ib.PSN // of the first packet that the queue pair sends
	gid ib.GID // zero if the C tool runs without -g
}

// The exchange over TCP is that of the C tools; two goroce ends tell each other their options before, see terms.go. The
// client sends its addresses, the server connects its queue pairs and sends its own addresses, the client answers when
// its queue pairs are connected. An address is the text
//
//	LID:QPN:PSN:GID
//
// of 4, 6, 6 and 32 hexadecimal digits, the GID in network order, and a NUL. The answer ends with a NUL, too. With SRQ
// there are always srqLines addresses; unused ones are zero.
const (
	addressLen = len("0000:000000:000000:00000000000000000000000000000000") + 1
	doneText   = "done\x00"
)

func (a *address) encode() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%s\x00", a.lid, uint32(a.qpn), uint32(a.psn), hex.EncodeToString(a.gid[:]))
}

// encodeAddresses returns the message with that number of lines.
func encodeAddresses(addrs []address, lines int) []byte {
	var msg []byte
	for i := range lines {
		var a address
		if i < len(addrs) {
			a = addrs[i]
		}
		msg = append(msg, a.encode()...)
	}
	return msg
}

// decodeAddresses decodes a message. It checks every field, and leaves out lines of zeros.
func decodeAddresses(msg []byte) (addrs []address, err error) {
	for ; len(msg) >= addressLen; msg = msg[addressLen:] {
		a, err := decodeAddress(msg[:addressLen])
		if err != nil {
			return nil, err
		}
		if a.qpn != 0 {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

// decodeAddress decodes one address.
func decodeAddress(msg []byte) (a address, err error) {
	text := strings.TrimRight(string(msg), "\x00")
	bad := func(why string) (address, error) {
		return address{}, fmt.Errorf("%w: the peer sent %q: %s", ErrExchange, text, why)
	}
	fields := strings.Split(text, ":")
	if len(fields) != 4 {
		return bad("not LID:QPN:PSN:GID")
	}
	lid, err1 := strconv.ParseUint(fields[0], 16, 16)
	qpn, err2 := strconv.ParseUint(fields[1], 16, 24)
	psn, err3 := strconv.ParseUint(fields[2], 16, 24)
	if err := errors.Join(err1, err2, err3); err != nil {
		return bad("a number is out of range")
	}
	gid, err := hex.DecodeString(fields[3])
	if err != nil || len(gid) != len(a.gid) {
		return bad("the GID is not of 32 hexadecimal digits")
	}
	return address{uint16(lid), ib.QPN(qpn), ib.PSN(psn), ib.GID(gid)}, nil
}

// String formats the address as the C tool does.
func (a *address) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s", a.lid, uint32(a.qpn), uint32(a.psn),
		gidText(a.gid))
}

// command returns the command line of the other end, with goroced or the C tool.
func (t *traits) command(args string) string {
	return fmt.Sprintf("`goroced pingpong --service %s%s`, or `%s -g INDEX%s`", t.name, args, t.tool, args)
}

// exchange exchanges addresses with the peer, after a client has sent its own. In between, the server calls ready to
// connect its queue pairs.
func exchange(conn *meet.Conn, o *Options, local []address, ready func([]address) error) (remote []address, err error) {
	conn.Limit(o.Timeout)
	t := o.Service.traits()
	server := o.Host == ""
	msg := make([]byte, t.lines*addressLen)
	if err := conn.Receive(msg); err != nil {
		return nil, t.suspect(err)
	}
	if remote, err = decodeAddresses(msg); err != nil {
		return nil, t.suspect(err)
	}
	if len(remote) != len(local) {
		return nil, fmt.Errorf("%w: the peer has %d queue pairs and this end %d; both need the same number (-q)",
			ErrExchange, len(remote), len(local))
	}
	if !server {
		return remote, conn.Send([]byte(doneText))
	}
	if err := ready(remote); err != nil {
		return nil, err
	}
	if err := conn.Send(encodeAddresses(local, t.lines)); err != nil {
		return nil, err
	}
	msg = make([]byte, len(doneText))
	err = conn.Receive(msg)
	if err == nil && string(msg) != doneText {
		err = fmt.Errorf("%w: the client sent %q, not %q", ErrExchange, msg, doneText)
	}
	if err != nil {
		return nil, t.suspect(err)
	}
	return remote, nil
}

// suspect adds the most likely cause to an error of the exchange.
func (t *traits) suspect(err error) error {
	return fmt.Errorf("%w; is the peer %s, or goroced with --service %s?", err, t.tool, t.name)
}

// toolRepeats is how long the C tools repeat a message that is not acknowledged: their ACK timeout is code 14, their
// retry count 7.
const toolRepeats = 8 * (4096 * time.Nanosecond << 14)

// farewell waits until the peer needs nothing from this end any more. A goroce peer sends a second "done" when its last
// message is acknowledged; until then our queue pair must exist, to repeat an ACK that was lost. The C tool has closed
// its end of the connection already; farewell waits for the time of two retransmissions by our timeout, but not longer
// than that tool repeats its message. Without acknowledgements (UC, UD) nobody waits for anybody.
func farewell(conn *meet.Conn, o *Options) {
	if o.Service.traits().qpType != ib.RC {
		return
	}
	conn.Limit(o.Timeout)
	_ = conn.Send([]byte(doneText)) // fails if the peer is the C tool, which has left
	if err := conn.Receive(make([]byte, len(doneText))); err != nil {
		time.Sleep(min(2*o.ackTimeout(), toolRepeats, o.Timeout))
	}
}
