package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/tests/linktest"
)

// start serves, and returns a client, the server's URL, and what the handler says.
func start(t *testing.T) (client *http.Client, url string, said <-chan string) {
	t.Helper()
	addr := linktest.Loopback().String()
	serverCM, closeServer, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeServer)
	l, err := rsocket.Listen(t.Context(), serverCM, net.JoinHostPort(addr, "0"), rsocket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	says := make(chan string, 16)
	server := &http.Server{Handler: handler(func(format string, _ ...any) { says <- format })}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	clientCM, closeClient, err := open(linktest.Loopback().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return newClient(clientCM), "http://" + l.Addr().String(), says
}

func request(t *testing.T, ctx context.Context, client *http.Client, url string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// TestDeadlines: requests that are answered, that are cancelled, of which the handler hears, and that time out.
func TestDeadlines(t *testing.T) {
	client, url, said := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, err := request(t, ctx, client, url+"/wait?for=1ms"); err != nil || got != "waited 1ms\n" {
		t.Errorf("%q, %v; want waited 1ms", got, err)
	}

	hears := func(want string) {
		select {
		case got := <-said:
			if got != want {
				t.Errorf("the handler says %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Errorf("the handler never says %q", want)
		}
	}
	hears("%s waits")
	cancelled, end := context.WithCancel(ctx)
	go func() {
		hears("%s waits")
		end()
	}()
	if _, err := request(t, cancelled, client, url+"/wait?for=1h"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, want %v", err, context.Canceled)
	}
	hears("%s has left")

	short, end := context.WithTimeout(ctx, 50*time.Millisecond)
	defer end()
	if _, err := request(t, short, client, url+"/wait?for=1h"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beyond its deadline: %v, want %v", err, context.DeadlineExceeded)
	}
	if got, err := request(t, ctx, client, url+"/wait?for=1ms"); err != nil || got != "waited 1ms\n" {
		t.Errorf("afterwards: %q, %v; want waited 1ms", got, err)
	}
}
