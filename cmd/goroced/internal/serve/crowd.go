package serve

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// crowd bounds the connections of a server, and the requests under way. One too many takes the place of the connection
// that has begun no request for the longest time: connections on which nobody asks keep nobody out.
type crowd struct {
	most int

	mu    sync.Mutex
	order list.List // of net.Conn; the one whose latest request is oldest comes first
	at    map[net.Conn]*list.Element
}

func newCrowd(most int) *crowd { return &crowd{most: most, at: map[net.Conn]*list.Element{}} }

// note is for http.Server.ConnState.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[conn]
	switch state {
	case http.StateNew:
		c.at[conn] = c.order.PushBack(conn)
		if c.order.Len() > c.most {
			oldest := c.order.Remove(c.order.Front()).(net.Conn)
			delete(c.at, oldest)
			_ = oldest.Close()
		}
	case http.StateActive:
		if e != nil {
			c.order.MoveToBack(e)
		}
	case http.StateClosed, http.StateHijacked:
		if e != nil {
			c.order.Remove(e)
			delete(c.at, conn)
		}
	}
}

// limit lets so many requests be under way as connections. A handler goes on for a while when its connection is closed.
func (c *crowd) limit(h http.Handler) http.Handler {
	running := make(chan struct{}, c.most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
			h.ServeHTTP(w, r)
		default:
			http.Error(w, "too many requests are under way", http.StatusServiceUnavailable)
		}
	})
}

// local refuses requests that name another host than this one by its address. A page of the web whose name's owner lets
// it point to a loopback address (DNS rebinding) could otherwise read the answers in a browser of this machine. A
// request that names no host is none of a browser.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host) {
			http.Error(w, "the Host header must name this machine by a loopback address, or as localhost",
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func isLocal(hostPort string) bool {
	name := hostPort
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		name = host
	}
	if name == "" || name == "localhost" {
		return true
	}
	if n := len(name); name[0] == '[' && name[n-1] == ']' {
		name = name[1 : n-1]
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Unmap().IsLoopback()
}
