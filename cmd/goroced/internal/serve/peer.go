package serve

import (
	"context"
	"net"
	"os"
	"sync"

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
	return p != nil && (p.UID == 0 || p.UID == uint32(os.Geteuid()))
}

// peerListener records the peer of each connection, and limits their number.
type peerListener struct {
	*net.UnixListener
	slots chan struct{}
}

// peerConn is a connection of a peerListener.
type peerConn struct {
	*net.UnixConn
	peer *Peer
	done func()
}

func (l *peerListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	free := sync.OnceFunc(func() { <-l.slots })
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			free()
			return nil, err
		}
		peer, err := peerOf(conn)
		if err != nil { // it has disconnected already
			_ = conn.Close()
			continue
		}
		return &peerConn{conn, peer, free}, nil
	}
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
