package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"github.com/goroce/goroce/ib"
)

// message is a message between the two sides: one JSON object on a line. One of its pointers is set, which determines
// the kind of message.
type message struct {
	Hello    *hello   `json:"hello,omitempty"`
	Run      *order   `json:"run,omitempty"`
	Tell     *value   `json:"tell,omitempty"`
	Finished *verdict `json:"finished,omitempty"`
	Closed   *verdict `json:"closed,omitempty"`
}

// hello introduces a side.
type hello struct {
	Suite    string // digest of the cases, which must be the same on both sides
	Kind     string
	Attr     ib.DeviceAttr
	Port     ib.PortAttr
	GID      ib.GID
	GIDIndex int
}

// kind returns the device kind for the table of deviations.
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

// value is a value from one half to the other. Values of a name arrive in order.
type value struct {
	Name  string
	Value json.RawMessage
}

// verdict is the result of a half, or of closing its objects. An empty Error means success.
type verdict struct {
	Error  string `json:",omitempty"`
	Skip   string `json:",omitempty"` // why the half cannot run here
	Echo   bool   `json:",omitempty"` // Error only repeats the other half's error
	Broken bool   `json:",omitempty"` // the half did not return, so the side cannot be used any more
	Used   []int  `json:",omitempty"` // rules that were applied
}

// maxLine limits the length of a message, and so what a foreign peer can make us allocate.
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

// receive returns the next message. The error wraps errHungUp when the other side has disconnected, and net.ErrClosed
// when this side has.
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
