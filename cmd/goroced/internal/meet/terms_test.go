package meet

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// talk runs both ends of Agree.
func talk(t *testing.T, mine, theirs *Terms, decide, theirDecide func(*Terms) error) (err, theirErr error) {
	t.Helper()
	server, client := pair(t.Context(), t)
	swap := func(first, second func([]byte) error, out, in []byte) error {
		bufs := [2][]byte{out, in}
		if err := first(bufs[0]); err != nil {
			return err
		}
		return second(bufs[1])
	}
	done := make(chan error)
	go func() {
		done <- Agree(func(out, in []byte) error { return swap(client.Send, client.Receive, out, in) }, theirs,
			theirDecide)
	}()
	err = Agree(func(out, in []byte) error { return swap(server.Receive, server.Send, in, out) }, mine, decide)
	return err, <-done
}

// TestAgree: both ends learn the other's terms, and what either says against them, as printable text.
func TestAgree(t *testing.T) {
	fits := func(*Terms) error { return nil }
	mine := &Terms{Version: TermsVersion, Options: map[string]string{"-s": "64"}}
	theirs := &Terms{Version: TermsVersion, Options: map[string]string{"-s": strings.Repeat("9", 300)}}
	var got *Terms
	learn := func(t *Terms) error {
		got = t
		return nil
	}
	if err, theirErr := talk(t, mine, theirs, learn, fits); err != nil || theirErr != nil ||
		got.Options["-s"] != theirs.Options["-s"] {
		t.Errorf("got %+v, errors %v and %v; want -s %v and none", got, err, theirErr, theirs.Options["-s"])
	}
	no := errors.New("no\x1b[31m, " + strings.Repeat("x", maxText))
	if err, theirErr := talk(t, mine, theirs, func(*Terms) error { return no }, fits); !errors.Is(err, no) ||
		!errors.Is(theirErr, ErrRefused) || !strings.Contains(theirErr.Error(), "no[31m, xxx") {
		t.Errorf("refused: got %v and %v; want %v, %v and %q", err, theirErr, no, ErrRefused, "no[31m, xxx")
	}
	theirs.Version++
	if err, theirErr := talk(t, mine, theirs, fits, fits); !errors.Is(err, ErrVersion) ||
		!errors.Is(theirErr, ErrRefused) {
		t.Errorf("another version: got %v and %v; want %v and %v", err, theirErr, ErrVersion, ErrRefused)
	}
}

// TestBadTerms: what is no terms is an error.
func TestBadTerms(t *testing.T) {
	for _, text := range []string{"", "x", "[]", `{"version":1,"more":2}`, `{"version":1,"options":{"-s":3}}`, `{}`} {
		if terms, err := decodeTerms(text); !errors.Is(err, ErrExchange) && !errors.Is(err, ErrVersion) {
			t.Errorf("%q: got %+v, %v; want %v or %v", text, terms, err, ErrExchange, ErrVersion)
		}
	}
	long := func(_, theirs []byte) error {
		binary.BigEndian.PutUint32(theirs, maxText+1)
		return nil
	}
	if _, err := swapText(long, "x"); !errors.Is(err, ErrExchange) {
		t.Errorf("a long text: got %v, want %v", err, ErrExchange)
	}
	type options struct{ n int }
	table := Table[options]{{Flag: "-n", Text: func(o *options) string { return strconv.Itoa(o.n) },
		Set: func(o *options, s string) (err error) {
			o.n, err = strconv.Atoi(s)
			return err
		}}}
	for _, terms := range []map[string]string{nil, {"-n": "x"}, {"-n": "1", "-x": "2"}} {
		if err := table.Take(&Terms{Options: terms}, &options{}); !errors.Is(err, ErrExchange) {
			t.Errorf("%v: got %v, want %v", terms, err, ErrExchange)
		}
	}
}

func FuzzTerms(f *testing.F) {
	f.Add(`{"version":1,"serve":true,"options":{"-s":"64"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		terms, err := decodeTerms(text)
		if err == nil && terms.Version != TermsVersion {
			t.Errorf("%q was taken as %+v, want version %d", text, terms, TermsVersion)
		}
	})
}

// TestServeEnds: the end of its context ends a server, and the client that it serves, and is no error.
func TestServeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := ServeOptions{Port: port(t), Greet: time.Minute, Log: io.Discard}
	played := make(chan error, 1)
	o.Play = func(ctx context.Context, c *Client) error {
		if err := c.Turn(ctx, time.Hour); err != nil {
			return err
		}
		cancel()
		err := c.Receive(make([]byte, 1))
		played <- err
		return err
	}
	o.Listening = func() {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	if err := Serve(ctx, o); err != nil {
		t.Errorf("the server ends with %v", err)
	}
	if err := <-played; !errors.Is(err, net.ErrClosed) {
		t.Errorf("its client got %v, want %v", err, net.ErrClosed)
	}
}
