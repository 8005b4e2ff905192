package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as it was when it connected (SO_PEERCRED).
type Peer struct {
	PID      int
	UID, GID uint32
}

func peerOf(conn *net.UnixConn) (*Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	return &Peer{int(cred.Pid), cred.Uid, cred.Gid}, nil
}

type peerKey struct{}

// PeerOf returns the peer of a request on the admin socket; nil for other requests.
func PeerOf(ctx context.Context) *Peer {
	p, _ := ctx.Value(peerKey{}).(*Peer)
	return p
}

// Privileged reports whether a request on the admin socket is from root or the daemon's own user.
func Privileged(ctx context.Context) bool {
	p := PeerOf(ctx)
	return p != nil && p.privileged()
}

func (p *Peer) privileged() bool { return p.UID == 0 || p.UID == uint32(os.Geteuid()) }

// MaySee reports whether a request on the admin socket may see what is a user's own: it is
// that user's, root's or the daemon's own user's.
func MaySee(ctx context.Context, uid uint32) bool {
	p := PeerOf(ctx)
	return p != nil && (p.UID == uid || p.privileged())
}

// Bounds of connections to the admin socket. Users may not keep each other, nor root, from
// looking at the daemon: some are left for root and the daemon's own user.
const (
	maxAdmin      = 64
	maxOthers     = maxAdmin - 16 // of all users but those two
	maxAdminsUser = 8             // of one such user
)

// peerListener knows who connects, and takes a bounded number of connections from each.
type peerListener struct {
	*net.UnixListener
	peerOf func(*net.UnixConn) (*Peer, error) // peerOf, but in tests

	mu     sync.Mutex
	all    int
	others map[uint32]int // connections of users who are not privileged
	sum    int            // of others
}

func newPeerListener(l *net.UnixListener) *peerListener {
	return &peerListener{UnixListener: l, peerOf: peerOf, others: map[uint32]int{}}
}

// peerConn is a connection of a peerListener.
type peerConn struct {
	*net.UnixConn
	peer *Peer
	done func()
}

// Accept returns the next connection of a user who may have one more. Others hear that it is
// one too many, and nobody waits for them.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := l.peerOf(conn)
		switch {
		case err != nil: // it is gone
			_ = conn.Close()
		case !l.enter(peer):
			tooMany(conn)
		default:
			return &peerConn{conn, peer, sync.OnceFunc(func() { l.leave(peer) })}, nil
		}
	}
}

// enter counts a connection, if there is room for it.
func (l *peerListener) enter(p *Peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.all >= maxAdmin:
		return false
	case p.privileged():
	case l.sum >= maxOthers || l.others[p.UID] >= maxAdminsUser:
		return false
	default:
		l.others[p.UID]++
		l.sum++
	}
	l.all++
	return true
}

func (l *peerListener) leave(p *Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if p.privileged() {
		return
	}
	l.sum--
	if l.others[p.UID]--; l.others[p.UID] == 0 {
		delete(l.others, p.UID)
	}
}

// tooMany answers a connection that nobody serves. There is room for it in a new socket.
func tooMany(conn *net.UnixConn) {
	const body = `{"error":"too many connections to the admin socket; close some, or try again"}` + "\n"
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	_ = conn.Close()
}

func (c *peerConn) Close() error {
	defer c.done()
	return c.UnixConn.Close()
}

// withPeer implements http.Server.ConnContext.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*peerConn); ok {
		return context.WithValue(ctx, peerKey{}, c.peer)
	}
	return ctx
}
