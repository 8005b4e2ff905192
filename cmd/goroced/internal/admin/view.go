package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	runner "github.com/goroce/goroce/cmd/goroced/internal/serve"
	srv "github.com/goroce/goroce/roce/daemon/server"
)

// Device describes a device of the daemon.
type Device struct {
	Name      string       `json:"name"`
	GUID      GUID         `json:"node_guid"`
	State     string       `json:"state"` // of the port, in ibv_devinfo's words
	Link      string       `json:"link"`
	Note      string       `json:"note,omitempty"`
	NetIf     string       `json:"netif,omitempty"`
	MTU       int          `json:"active_mtu"`
	Shards    int          `json:"shards"`
	Addresses []netip.Addr `json:"addresses"`        // in GID order
	Faults    int          `json:"faults,omitempty"` // that are injected into its packets

	GIDIndexes []int     `json:"gid_indexes"` // of the addresses
	Since      time.Time `json:"since"`       // the port is in its state
	SentBytes  uint64    `json:"sent_bytes"`  // of packets, from the BTH to the ICRC
	RcvdBytes  uint64    `json:"rcvd_bytes"`

	SendErr    uint64 `json:"send_err,omitempty"`    // packets that the kernel refused to send
	RxOverflow uint64 `json:"rx_overflow,omitempty"` // packets that it dropped for lack of socket buffers, if it tells
}

// Status is the state of a daemon, the contents of /v1/status.
type Status struct {
	Version any         `json:"version"` // what `goroced version --json` prints
	PID     int         `json:"pid"`
	Started time.Time   `json:"started"`
	Now     time.Time   `json:"now"`
	Clients int         `json:"clients"`
	Users   []srv.Usage `json:"users"` // users with clients
	Devices []Device    `json:"devices"`
}

// GUID is a node GUID. In JSON it is a string in ibv_devinfo's four groups, because many JSON parsers would round a
// number of 64 bits.
type GUID uint64

const guidFormat = "%04x:%04x:%04x:%04x"

// MarshalText implements encoding.TextMarshaler.
func (g GUID) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, guidFormat, uint64(g)>>48, g>>32&0xFFFF, g>>16&0xFFFF, g&0xFFFF), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *GUID) UnmarshalText(text []byte) error {
	var part [4]uint64
	_, err := fmt.Sscanf(string(text), guidFormat, &part[0], &part[1], &part[2], &part[3])
	*g = GUID(part[0]<<48 | part[1]<<32 | part[2]<<16 | part[3])
	return err
}

// View is the state of a daemon that the admin socket shows.
type View interface {
	Devices() []Device
	QPs() []srv.QPInfo
	MRs() []srv.MRInfo
	CMIDs() []srv.CMInfo
	Failures() []srv.FailureInfo
	// Stories returns what is known of queue pairs with a number, on one device or, with "", on any.
	Stories(device string, qpn uint32) []srv.Told
	// NextFailure waits for a failure that the caller wants to see.
	NextFailure(ctx context.Context, wants func(*srv.FailureInfo) bool) (srv.Told, error)
	// Counters returns the counters of all devices, by device name.
	Counters() map[string]Counters
}

// RegisterView registers the handlers that show v: GET /v1/devices, /v1/qps, /v1/mrs, /v1/cm,
// /v1/failures, /v1/why, /v1/why/capture and /v1/stats.
func RegisterView(mux *http.ServeMux, v View) {
	shows(mux, "devices", func(context.Context) any { return v.Devices() })
	shows(mux, "qps", func(who context.Context) any { return qpsFor(v.QPs(), seenBy(who)) })
	shows(mux, "mrs", func(who context.Context) any { return mrsFor(v.MRs(), seenBy(who)) })
	shows(mux, "cm", func(who context.Context) any { return cmFor(v.CMIDs(), seenBy(who)) })
	shows(mux, "failures", func(who context.Context) any { return failuresFor(v.Failures(), seenBy(who)) })
	w := why{v}
	mux.HandleFunc("GET /v1/why", answer(w.list))
	mux.HandleFunc("GET /v1/why/capture", w.capture)
	shows(mux, "stats", func(context.Context) any { return v.Counters() })
}

func shows(mux *http.ServeMux, path string, get func(who context.Context) any) {
	mux.HandleFunc("GET /v1/"+path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(get(r.Context())) // an error means that the client has disconnected
	})
}

// seenBy returns a function that reports whether the sender of a request may see the objects of a user.
func seenBy(who context.Context) func(uid uint32) bool {
	return func(uid uint32) bool { return runner.MaySee(who, uid) }
}

// qpsFor clears the addresses, QP numbers and PSNs of other users' queue pairs: with them one can forge packets of the
// peer.
func qpsFor(list []srv.QPInfo, sees func(uid uint32) bool) []srv.QPInfo {
	for i := range list {
		if q := &list[i]; !sees(q.UID) {
			*q = srv.QPInfo{Device: q.Device, Type: q.Type, State: q.State, Owner: q.Owner}
		}
	}
	slices.SortFunc(list, func(a, b srv.QPInfo) int { // else the order would reveal the hidden numbers
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.QPN, b.QPN), cmp.Compare(a.PID, b.PID))
	})
	return list
}

// mrsFor clears the addresses and numbers of other users' memory regions: a number is part of the key. rdma_nl asks
// for CAP_NET_ADMIN to show keys (nldev.c fill_res_mr_entry).
func mrsFor(list []srv.MRInfo, sees func(uid uint32) bool) []srv.MRInfo {
	for i := range list {
		if m := &list[i]; !sees(m.UID) {
			m.Number, m.Key, m.IOVA = 0, 0, 0
		}
	}
	slices.SortFunc(list, func(a, b srv.MRInfo) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Key, b.Key), cmp.Compare(a.PID, b.PID))
	})
	return list
}

// cmFor hides the addresses of other users' connections, but not those of listeners: anybody can connect to find them.
func cmFor(list []srv.CMInfo, sees func(uid uint32) bool) []srv.CMInfo {
	for i := range list {
		if id := &list[i]; !sees(id.UID) && id.State != listens {
			id.Local, id.Remote = netip.AddrPort{}, netip.AddrPort{}
		}
	}
	slices.SortStableFunc(list, func(a, b srv.CMInfo) int { // else the order would reveal the hidden addresses
		return cmp.Or(cmp.Compare(a.Device, b.Device), a.Local.Compare(b.Local), cmp.Compare(a.PID, b.PID))
	})
	return list
}

const listens = "LISTEN"

// failuresFor leaves out those of other users' queue pairs: they name keys and addresses.
func failuresFor(list []srv.FailureInfo, sees func(uid uint32) bool) []srv.FailureInfo {
	return slices.DeleteFunc(list, func(f srv.FailureInfo) bool { return !sees(f.UID) })
}

// Devices returns the daemon's devices.
func (c *Client) Devices(ctx context.Context) (list []Device, err error) {
	err = c.call(ctx, http.MethodGet, "devices", nil, &list)
	return list, err
}

// QPs returns the queue pairs of the daemon's clients.
func (c *Client) QPs(ctx context.Context) (list []srv.QPInfo, err error) {
	err = c.call(ctx, http.MethodGet, "qps", nil, &list)
	return list, err
}

// MRs returns the memory regions of the daemon's clients.
func (c *Client) MRs(ctx context.Context) (list []srv.MRInfo, err error) {
	err = c.call(ctx, http.MethodGet, "mrs", nil, &list)
	return list, err
}

// CMIDs returns the IDs of the connection manager that the daemon's clients have.
func (c *Client) CMIDs(ctx context.Context) (list []srv.CMInfo, err error) {
	err = c.call(ctx, http.MethodGet, "cm", nil, &list)
	return list, err
}

// Failures returns the latest failures of queue pairs of the daemon's clients.
func (c *Client) Failures(ctx context.Context) (list []srv.FailureInfo, err error) {
	err = c.call(ctx, http.MethodGet, "failures", nil, &list)
	return list, err
}

// Counters returns the counters of the daemon's devices.
func (c *Client) Counters(ctx context.Context) (all map[string]Counters, err error) {
	err = c.call(ctx, http.MethodGet, "stats", nil, &all)
	return all, err
}

// Status returns the contents of /v1/status.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.call(ctx, http.MethodGet, "status", nil, &s)
	return s, err
}

// DeviceOfQP returns the device name of q.
func DeviceOfQP(q *srv.QPInfo) string { return q.Device }

// DeviceOfFailure returns the device name of f.
func DeviceOfFailure(f *srv.FailureInfo) string { return f.Device }

// DeviceOfCMID returns the device name of id.
func DeviceOfCMID(id *srv.CMInfo) string { return id.Device }

// DeviceOfMR returns the device name of m.
func DeviceOfMR(m *srv.MRInfo) string { return m.Device }
