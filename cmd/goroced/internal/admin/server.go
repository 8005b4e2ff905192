package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	runner "github.com/goroce/goroce/cmd/goroced/internal/serve"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
)

// Register registers the handlers for captures and faults of the devices of live.
func Register(mux *http.ServeMux, live *host.Live) {
	s := &server{live}
	mux.HandleFunc("GET /v1/capture", s.capture)
	mux.HandleFunc("GET /v1/faults", answer(s.list))
	mux.HandleFunc("POST /v1/faults", answer(s.add))
	mux.HandleFunc("DELETE /v1/faults", answer(s.remove))
}

type server struct{ live *host.Live }

// maxBody limits the body of a request.
const maxBody = 1 << 16

// answer returns a handler that sends the result of f.
func answer(f func(*http.Request) (int, any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		status, v, err := f(r)
		if err != nil {
			refuse(w, err)
			return
		}
		runner.WriteJSON(w, status, v)
	}
}

// problem is the body of an error.
type problem struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, err error) {
	runner.WriteJSON(w, statusOf(err), problem{err.Error()})
}

// statusOf returns the HTTP status for err.
func statusOf(err error) int {
	var attr *ib.AttrError
	switch {
	case errors.As(err, &attr) && (attr.Attr == "device" || attr.Attr == "ID"):
		return http.StatusNotFound
	case errors.Is(err, ib.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, ib.ErrLimit):
		return http.StatusConflict
	case errors.Is(err, ib.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// lastWrites is how long the end of a capture may take to send the rest.
const lastWrites = time.Second

// capture streams until the client disconnects, the server ends the request, or the device is closed.
func (s *server) capture(w http.ResponseWriter, r *http.Request) {
	device, m, err := parseFilter(r.URL.Query())
	if err != nil {
		refuse(w, err)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // the server's limit is for short answers
	w.Header().Set("Content-Type", "application/x-pcapng")
	c, err := s.live.Capture(device, &stream{w, control}, m)
	if err != nil {
		refuse(w, err)
		return
	}
	select {
	case <-c.Done():
	case <-r.Context().Done():
		_ = control.SetWriteDeadline(time.Now().Add(lastWrites))
	}
	_ = c.Close() // fails if the client has disconnected, which is the usual end
}

// stream is a response whose data are sent at once.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.control.Flush()
	}
	return n, err
}

func (s *server) list(r *http.Request) (int, any, error) {
	rules, err := s.live.Rules(r.URL.Query().Get("device"))
	if err != nil {
		return 0, nil, err
	}
	list := faultList{Faults: []Fault{}}
	for i := range rules {
		list.Faults = append(list.Faults, FaultOf(&rules[i]))
	}
	return http.StatusOK, list, nil
}

func (s *server) add(r *http.Request) (int, any, error) {
	var f Fault
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return 0, nil, fmt.Errorf("add fault rule: body: %w: %w", ib.ErrInvalid, err)
	}
	rule, err := f.rule()
	if err != nil {
		return 0, nil, err
	}
	added, err := s.live.AddRule(f.Device, rule)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, FaultOf(&added), nil
}

func (s *server) remove(r *http.Request) (int, any, error) {
	q := r.URL.Query()
	device := q.Get("device")
	if !q.Has("id") {
		n, err := s.live.ClearRules(device)
		return http.StatusOK, removed{n}, err
	}
	id, err := strconv.ParseUint(q.Get("id"), 10, 64)
	if err != nil {
		return 0, nil, driver.Refuse("remove fault rule", "id", strconv.Quote(q.Get("id")), "a number", ib.ErrInvalid)
	}
	return http.StatusOK, removed{1}, s.live.RemoveRule(device, id)
}

// removed is the number of removed faults.
type removed struct {
	Removed int `json:"removed"`
}

// parseFilter parses the selection of a capture.
func parseFilter(q url.Values) (device string, m wrap.Match, err error) {
	const op = "start capture"
	for key, values := range q {
		value := values[0]
		switch key {
		case "device":
			device = value
		case "qp":
			m.QPN, err = parseQPN(op, key, value)
		case "peer_qp":
			m.PeerQPN, err = parseQPN(op, key, value)
		case "peer":
			m.Peer, err = parsePeer(op, value)
		default:
			err = driver.Refuse(op, "query", strconv.Quote(key), "device, qp, peer_qp, peer", ib.ErrInvalid)
		}
		if err != nil {
			return "", m, err
		}
	}
	return device, m, nil
}

func parseQPN(op, attr, s string) (ib.QPN, error) {
	n, err := strconv.ParseUint(s, 0, 24)
	if err != nil {
		return 0, driver.Refuse(op, attr, strconv.Quote(s), "a QP number of 24 bits, decimal or behind 0x",
			ib.ErrInvalid)
	}
	return ib.QPN(n), nil
}

// parsePeer returns the GID of an address; it is zero for "".
func parsePeer(op, s string) (ib.GID, error) {
	if s == "" {
		return ib.GID{}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return ib.GID{}, driver.Refuse(op, "peer", strconv.Quote(s), "an IP address", ib.ErrInvalid)
	}
	return ib.GIDFromAddr(a), nil
}
