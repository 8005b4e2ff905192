package pingpong

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/goroce/ib"
)

// ErrExchange: the ends could not tell one another their addresses over TCP.
var ErrExchange = errors.New("address exchange failed")

// address is what an end tells of its queue pair.
type address struct {
	lid uint16 // 0 on Ethernet
	qpn ib.QPN
	psn ib.PSN // of the first packet that it sends
	gid ib.GID // zero if the C tool was started without -g
}

// The meeting over TCP is the C tool's. The client sends its address, the server
// makes its queue pair ready and sends its own, the client answers that it is
// done. An address is the text
//
//	LID:QPN:PSN:GID
//
// of 4, 6, 6 and 32 hexadecimal digits, the GID in network order. All three
// messages have a NUL at the end, which is sent.
const (
	addressLen = len("0000:000000:000000:00000000000000000000000000000000") + 1
	doneText   = "done\x00"
)

func (a *address) encode() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%s\x00", a.lid, uint32(a.qpn), uint32(a.psn), hex.EncodeToString(a.gid[:]))
}

// decodeAddress reads an address, checking every field.
func decodeAddress(msg []byte) (a address, err error) {
	text := strings.TrimRight(string(msg), "\x00")
	bad := func(why string) (address, error) {
		return address{}, fmt.Errorf("%w: the peer sent %q: %s; is it an RC ping-pong?", ErrExchange, text, why)
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

// String is the address as the C tool prints it.
func (a *address) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s", a.lid, uint32(a.qpn), uint32(a.psn), gidText(a.gid))
}

// dial connects to the server.
func dial(ctx context.Context, o *Options) (net.Conn, error) {
	server := net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	d := net.Dialer{Timeout: o.Timeout}
	conn, err := d.DialContext(ctx, "tcp", server)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("connect to the server: %w; start it there first: `goroced pingpong`, or `ibv_rc_pingpong -g INDEX`", err)
	case err != nil:
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	return conn, nil
}

// accept waits for one client.
func accept(ctx context.Context, o *Options) (net.Conn, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(o.Port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("wait for a client: %w; end the other server or choose a port with -p", err)
	case err != nil:
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	conn, err := l.Accept()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	return conn, nil
}

// exchange tells the peer where we are and learns where it is. Between the two,
// the server makes its queue pair ready.
func exchange(conn net.Conn, o *Options, local *address, ready func(*address) error) (remote address, err error) {
	_ = conn.SetDeadline(time.Now().Add(o.Timeout))
	server := o.Host == ""
	if !server {
		if err := send(conn, local.encode()); err != nil {
			return remote, err
		}
	}
	msg, err := receive(conn, addressLen)
	if err != nil {
		return remote, err
	}
	if remote, err = decodeAddress(msg); err != nil {
		return remote, err
	}
	if !server {
		return remote, send(conn, []byte(doneText))
	}
	if err := ready(&remote); err != nil {
		return remote, err
	}
	if err := send(conn, local.encode()); err != nil {
		return remote, err
	}
	msg, err = receive(conn, len(doneText))
	if err == nil && string(msg) != doneText {
		err = fmt.Errorf("%w: the client sent %q, not %q", ErrExchange, msg, doneText)
	}
	return remote, err
}

func send(conn net.Conn, msg []byte) error {
	if _, err := conn.Write(msg); err != nil {
		return fmt.Errorf("%w: %w", ErrExchange, err)
	}
	return nil
}

func receive(conn net.Conn, n int) ([]byte, error) {
	msg := make([]byte, n)
	got, err := io.ReadFull(conn, msg)
	if err != nil {
		return nil, fmt.Errorf("%w: %d of %d bytes came from %v: %w; is it an RC ping-pong?", ErrExchange, got, n, conn.RemoteAddr(), err)
	}
	return msg, nil
}

// farewell waits until the peer has got all that it needs from us. A goroce peer
// says so by a second "done" when its last message is acknowledged; for as long
// as it has not, our queue pair must be there to repeat an ACK that was lost. The
// C tool has closed its end of the connection long ago, and sees nothing of this:
// it is given the time of two retransmissions.
func farewell(conn net.Conn, o *Options) {
	_ = conn.SetDeadline(time.Now().Add(o.Timeout))
	_, _ = conn.Write([]byte(doneText))
	if _, err := io.ReadFull(conn, make([]byte, len(doneText))); err != nil {
		time.Sleep(min(2*o.ackTimeout(), o.Timeout))
	}
}
