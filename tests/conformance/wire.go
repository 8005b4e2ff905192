package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"github.com/goroce/goroce/ib"
)

// message is what the two sides say to each other: one JSON object a line. One of
// its pointers is set, which says what kind it is.
type message struct {
	Hello    *hello   `json:"hello,omitempty"`
	Run      *order   `json:"run,omitempty"`
	Tell     *value   `json:"tell,omitempty"`
	Finished *verdict `json:"finished,omitempty"`
	Closed   *verdict `json:"closed,omitempty"`
}

// hello introduces a side.
type hello struct {
	Suite    string // digest of the cases: both sides must know the same
	Kind     string
	Attr     ib.DeviceAttr
	Port     ib.PortAttr
	GID      ib.GID
	GIDIndex int
}

// kind is what deviations go by.
func (h *hello) kind() string {
	if h.GID.Is4() {
		return h.Kind + "/IPv4"
	}
	return h.Kind + "/IPv6"
}

// order starts a half at the server.
type order struct {
	Case      string
	Role      Role
	TimeoutMS int
	Rules     []rule
}

// value is something that one half tells the other. Values of a name arrive in
// the order in which they were told.
type value struct {
	Name  string
	Value json.RawMessage
}

// verdict is how a half, or its closing, ended. An empty Error is success.
type verdict struct {
	Error  string `json:",omitempty"`
	Skip   string `json:",omitempty"` // why the half cannot be played here
	Echo   bool   `json:",omitempty"` // Error only passes on what the other half said
	Broken bool   `json:",omitempty"` // the half did not return: the side is of no more use
	Used   []int  `json:",omitempty"` // rules that applied
}

// maxLine bounds a message, so that a stray peer cannot make us allocate more.
const maxLine = 1 << 20

// wire is the connection to the other side.
type wire struct {
	conn net.Conn
	in   *bufio.Scanner

	mu  sync.Mutex // guards out
	out *json.Encoder
}

func newWire(conn net.Conn) *wire {
	in := bufio.NewScanner(conn)
	in.Buffer(make([]byte, 0, 4096), maxLine)
	return &wire{conn: conn, in: in, out: json.NewEncoder(conn)}
}

func (w *wire) send(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Encode(m); err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	return nil
}

// receive returns the next message; the error wraps net.ErrClosed or io.EOF when
// the other side is gone.
func (w *wire) receive() (m message, err error) {
	if !w.in.Scan() {
		if err = w.in.Err(); err == nil {
			err = errHungUp
		}
		return m, fmt.Errorf("control connection: %w", err)
	}
	if err := json.Unmarshal(w.in.Bytes(), &m); err != nil {
		return m, fmt.Errorf("control connection: %q: %w", w.in.Text(), err)
	}
	return m, nil
}
