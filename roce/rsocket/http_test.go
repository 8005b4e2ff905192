package rsocket

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// patterned is size bytes that depend on the offset.
func patterned(size int64) io.Reader { return io.LimitReader(&pattern{}, size) }

type pattern struct{ n uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		p.n = p.n*6364136223846793005 + 1442695040888963407
		b[i] = byte(p.n >> 56)
	}
	return len(b), nil
}

func digest(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}

// newWeb serves downloads, with their SHA-256 as a trailer, and answers uploads
// with theirs. It counts connections.
func newWeb(t *testing.T, s *site, conns *atomic.Int32) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{size}", func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.ParseInt(r.PathValue("size"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Trailer", "SHA-256")
		h := sha256.New()
		if _, err := io.Copy(w, io.TeeReader(patterned(size), h)); err != nil {
			t.Errorf("download: %v", err)
		}
		w.Header().Set("SHA-256", hex.EncodeToString(h.Sum(nil)))
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		sum, err := digest(r.Body)
		if err != nil {
			t.Errorf("upload: %v", err)
		}
		io.WriteString(w, sum)
	})
	server := &http.Server{Handler: mux}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(countAccepts{s.l, conns})
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
}

// TestHTTP moves a large body down and up, and small ones beside it; the connections are kept alive.
func TestHTTP(t *testing.T) {
	onNetworks(t, func(t *testing.T, open medium) { browse(t, open, 60_000) })
}

func browse(t *testing.T, open medium, size int64) {
	s := newSite(t, open, Options{})
	var accepted atomic.Int32
	newWeb(t, s, &accepted)
	dialer := Dialer{CM: s.a, Options: Options{AckTimeout: 16}}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxConnsPerHost: 4, MaxIdleConnsPerHost: 4}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	url := "http://" + s.l.Addr().String() + "/"

	var all sync.WaitGroup
	all.Go(func() { transfer(t, client, url, size) })
	for range 3 {
		all.Go(func() {
			for range 5 {
				transfer(t, client, url, size/10)
			}
		})
	}
	all.Wait()
	if n := accepted.Load(); n > 4 {
		t.Errorf("%d connections, want at most 4 for 4 requests at a time: they were not kept alive", n)
	}
}

// transfer downloads and uploads size bytes and compares the digests.
func transfer(t *testing.T, client *http.Client, url string, size int64) {
	want, err := digest(patterned(size))
	if err != nil {
		t.Error(err)
		return
	}
	down, err := client.Get(url + strconv.FormatInt(size, 10))
	if err != nil {
		t.Error(err)
		return
	}
	got, err := digest(down.Body)
	down.Body.Close()
	if told := down.Trailer.Get("SHA-256"); err != nil || got != want || told != want {
		t.Errorf("download of %d bytes: %v; SHA-256 %s, told %s, want %s", size, err, got, told, want)
	}
	up, err := client.Post(url, "application/octet-stream", patterned(size))
	if err != nil {
		t.Error(err)
		return
	}
	sum, err := io.ReadAll(up.Body)
	up.Body.Close()
	if err != nil || string(sum) != want {
		t.Errorf("upload of %d bytes: %v; SHA-256 %s, want %s", size, err, sum, want)
	}
}

// countAccepts counts the connections of a listener.
type countAccepts struct {
	net.Listener
	n *atomic.Int32
}

func (c countAccepts) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}
