package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/goroce/goroce/ib"
	sockets "github.com/goroce/goroce/internal/socket"
)

// Error is an error that the daemon has returned.
type Error struct {
	Status int // of HTTP
	Text   string
}

func (e *Error) Error() string { return e.Text }

// Is makes errors.Is match the sentinel of package ib that corresponds to the HTTP status.
func (e *Error) Is(target error) bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusNotFound:
		return target == ib.ErrInvalid
	case http.StatusConflict:
		return target == ib.ErrLimit
	case http.StatusServiceUnavailable:
		return target == ib.ErrClosed
	}
	return false
}

// Client is a client of a daemon's admin socket.
type Client struct {
	socket string
	http   http.Client
}

// answerLimit is how long a daemon may take to begin its answer. A socket unit of systemd accepts before there is a
// daemon, and also if the service cannot start.
const answerLimit = 10 * time.Second

// NewClient returns a client of the daemon whose admin socket has that path; "" stands for the default paths. It
// connects when it is used.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: http.Client{Transport: &http.Transport{
		DisableKeepAlives:     true,
		ResponseHeaderTimeout: answerLimit,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return sockets.Dial(sockets.Admin, socket)
		},
	}}}
}

// Faults returns the faults of a device; "" is all devices.
func (c *Client) Faults(ctx context.Context, device string) ([]Fault, error) {
	var list faultList
	err := c.call(ctx, http.MethodGet, query("faults", "device", device), nil, &list)
	return list.Faults, err
}

// AddFault adds a fault and returns it with its ID and seed.
func (c *Client) AddFault(ctx context.Context, f Fault) (Fault, error) {
	var added Fault
	err := c.call(ctx, http.MethodPost, "faults", f, &added)
	return added, err
}

// RemoveFault removes a fault.
func (c *Client) RemoveFault(ctx context.Context, device string, id uint64) error {
	return c.call(ctx, http.MethodDelete, query("faults", "device", device, "id", strconv.FormatUint(id, 10)), nil, nil)
}

// ClearFaults removes all faults of a device ("": of all devices) and returns their number.
func (c *Client) ClearFaults(ctx context.Context, device string) (int, error) {
	var n removed
	err := c.call(ctx, http.MethodDelete, query("faults", "device", device), nil, &n)
	return n.Removed, err
}

// Health returns an error that says which part of the daemon does not go on, if one does not.
func (c *Client) Health(ctx context.Context) error {
	answer, err := c.do(ctx, http.MethodGet, "/healthz", nil)
	if err != nil {
		return err
	}
	return answer.Close()
}

// query returns a path with those of the parameters (name, value) that are not empty.
func query(path string, params ...string) string {
	q := url.Values{}
	for i := 0; i < len(params); i += 2 {
		if params[i+1] != "" {
			q.Set(params[i], params[i+1])
		}
	}
	return path + "?" + q.Encode()
}

// call sends in as JSON, unless it is nil, and decodes the answer into out.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	answer, err := c.do(ctx, method, "/v1/"+path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("answer of %s: %w", c.daemon(), err)
	}
	return nil
}

// do returns the body of the answer, or the error that the daemon has returned.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	r, err := c.answer(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}

// answer returns the answer, or the error that the daemon has returned.
func (c *Client) answer(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://goroced"+path, body)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	var p problem
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxBody)).Decode(&p); err != nil || p.Error == "" {
		p.Error = fmt.Sprintf("%s answers %s", c.daemon(), answer.Status)
	}
	return nil, &Error{answer.StatusCode, p.Error}
}

// daemon describes the daemon for errors.
func (c *Client) daemon() string {
	if c.socket == "" {
		return "the daemon"
	}
	return "the daemon at " + c.socket
}

// unreachable explains why there is no answer, and what to do.
func (c *Client) unreachable(err error) error {
	var failed *sockets.DialError
	if errors.As(err, &failed) {
		return failed
	}
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		return fmt.Errorf("%s accepts but does not answer: its service may fail to start; ask its log (with systemd: "+
			"journalctl -u goroced): %w", c.daemon(), err)
	}
	return err
}
