package server

import (
	"cmp"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// Owner is the client process that has created an object.
type Owner struct {
	PID  int32  `json:"pid"`
	UID  uint32 `json:"uid"`
	Comm string `json:"comm"` // name of the process; "" if it has ended
}

// QPInfo describes a client's queue pair. Who knows the QPNs, the PSNs and the peer's address
// can forge its packets: show these to the owner and privileged users only.
type QPInfo struct {
	Device  string     `json:"device"`
	QPN     uint32     `json:"lqpn,omitempty"` // 0 is omitted
	PeerQPN uint32     `json:"rqpn,omitempty"`
	Type    string     `json:"type"`
	State   string     `json:"state"`
	RQPSN   uint32     `json:"rq_psn,omitempty"`
	SQPSN   uint32     `json:"sq_psn,omitempty"`
	Peer    netip.Addr `json:"peer"` // not valid before RTR, and for datagrams
	PathMTU int        `json:"path_mtu,omitempty"`
	Failed  string     `json:"failed,omitempty"`  // why it has failed
	Refused string     `json:"refused,omitempty"` // the latest request of the peer that it has refused
	Traffic *Traffic   `json:"traffic,omitempty"`
	Owner
}

// Traffic is what a queue pair has sent and received since it was made, and the way to its destination. Bytes are those
// of its packets, from the BTH to the ICRC.
type Traffic struct {
	SentBytes    uint64 `json:"sent_bytes"`
	RcvdBytes    uint64 `json:"rcvd_bytes"`
	SentMessages uint64 `json:"sent_messages"` // work requests that have completed
	RcvdMessages uint64 `json:"rcvd_messages"` // requests of the peer that were carried out
	ResentPkts   uint64 `json:"resent_pkts"`
	ResentBytes  uint64 `json:"resent_bytes"`
	SpuriousPkts uint64 `json:"spurious_pkts"` // sent again in vain, as a second answer has shown; perhaps there were more
	SentRNR      uint64 `json:"send_rnr_err"`  // RNR NAKs
	RcvdRNR      uint64 `json:"rcvd_rnr_err"`

	// The rest is of all the user's queue pairs to this destination that are on the same shard.

	Control    string        `json:"congestion,omitempty"`  // congestion control: cubic, dcqcn; "": unreliable services have none
	Window     int           `json:"window,omitempty"`      // congestion window in packets; like the rest it is of path_qps queue pairs
	InFlight   int           `json:"in_flight,omitempty"`   // packets
	PaceBits   int64         `json:"pace_bits,omitempty"`   // what leaves a second at most, in bits of payload; 0: no limit
	RTT        time.Duration `json:"rtt_ns,omitempty"`      // smoothed
	MinRTT     time.Duration `json:"min_rtt_ns,omitempty"`  // the shortest
	SACK       bool          `json:"sack,omitempty"`        // the destination takes SACKs, and sends them
	MarkedPkts uint64        `json:"marked_pkts,omitempty"` // packets from there that a switch has marked (ECN, CE)
	RcvdCNPs   uint64        `json:"rcvd_cnps,omitempty"`   // congestion notification packets from there
	PathQPs    int           `json:"path_qps,omitempty"`    // how many queue pairs of the user share this, on the shard
}

// trafficOf returns the traffic of a queue pair; nil if it has just been closed.
func trafficOf(q *device.QP) *Traffic {
	t, path, err := q.Traffic()
	if err != nil {
		return nil
	}
	is := &Traffic{SentBytes: t.SentBytes, RcvdBytes: t.RcvdBytes, SentMessages: t.SentMessages,
		RcvdMessages: t.RcvdMessages, ResentPkts: t.ResentPkts, ResentBytes: t.ResentBytes,
		SpuriousPkts: t.SpuriousPkts, SentRNR: t.SentRNR, RcvdRNR: t.RcvdRNR}
	if path.QPs > 0 {
		is.Control, is.Window, is.InFlight, is.PaceBits = path.Control.String(), path.Window, path.InFlight, path.Rate
		is.RTT, is.MinRTT, is.SACK = time.Duration(path.RTT), time.Duration(path.MinRTT), path.SACK
		is.MarkedPkts, is.RcvdCNPs, is.PathQPs = path.MarkedPkts, path.RcvdCNPs, path.QPs
	}
	return is
}

// MRInfo describes a client's memory region. Number, key and IOVA let a peer access the memory:
// show these to the owner and privileged users only.
type MRInfo struct {
	Device string `json:"device"`
	Number uint32 `json:"mrn,omitempty"`
	Key    uint32 `json:"lkey,omitempty"` // also the R_Key; 0 is omitted
	IOVA   uint64 `json:"iova,omitempty"`
	Length int    `json:"mrlen"`
	Kind   string `json:"kind"`          // "memfd", "process"
	Why    string `json:"why,omitempty"` // it is memory of the process, of a program in C; "" if that did not say
	Owner
}

// CMInfo describes a client's ID of the connection manager. The addresses tell who talks to whom: show them to the
// owner and privileged users only. Those of listeners may be shown to everyone.
type CMInfo struct {
	Device string         `json:"device"`
	State  string         `json:"state"`
	Space  string         `json:"ps"`
	Type   string         `json:"qp-type"`
	Local  netip.AddrPort `json:"src-addr"`
	Remote netip.AddrPort `json:"dst-addr"`
	Owner
}

// objectsOf calls each for all clients' objects of type T, with their device and owner. It gives each the objects
// that were there when it looked at their session.
func objectsOf[T any](s *Server, each func(device string, who Owner, v T)) {
	s.mu.Lock()
	sessions := make([]*session, 0, len(s.sessions))
	for c := range s.sessions {
		sessions = append(sessions, c)
	}
	s.mu.Unlock()
	for _, c := range sessions {
		var list []T
		c.mu.Lock()
		for o := range c.handles {
			if v, ok := o.(T); ok {
				list = append(list, v)
			}
		}
		c.mu.Unlock()
		who := Owner{c.who.Pid, c.who.Uid, nameOf(c.who.Pid)}
		// Without any lock of the server: each takes that of a shard, under which Event takes session.mu. An object
		// that is closed meanwhile answers with an error.
		for _, v := range list {
			each(c.unit.name, who, v) // an object is there, so a device was chosen
		}
	}
}

// lookBatch is how many objects whose state a lock of a shard guards are looked at before a rest. Whoever inspects the
// daemon holds such a lock for one object at a time, but tens of thousands of them in a row would cost the clients of
// the shard their latency.
const lookBatch = 64

// rest is the pause after lookBatch objects.
func rest() { time.Sleep(time.Millisecond) }

// looks is one inspection. All inspections share one rate, however many are asked for at a time, and take turns.
type looks struct {
	s *Server
	n int
}

func (s *Server) look() *looks {
	s.looking.Lock()
	return &looks{s: s}
}

// next is called for each object. looking is given up with each rest, so that the next inspection has its turn.
func (l *looks) next() {
	if l.n++; l.n%lookBatch == 0 {
		l.s.rest()
		l.s.looking.Unlock()
		l.s.looking.Lock()
	}
}

func (l *looks) end() { l.s.looking.Unlock() }

// nameOf returns the name of a process.
func nameOf(pid int32) string {
	name, _ := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/comm")
	return strings.TrimSpace(string(name))
}

// QPs describes the queue pairs of all clients, by device and number.
func (s *Server) QPs() []QPInfo {
	list := []QPInfo{}
	look := s.look()
	defer look.end()
	objectsOf(s, func(device string, who Owner, q *device.QP) {
		look.next()
		// Query, Failure and trafficOf look at different moments: a queue pair may change in between.
		a, err := q.Query()
		if err != nil {
			return // it has just been closed
		}
		i := QPInfo{Device: device, QPN: uint32(q.Num()), Type: q.Type().String(), State: a.State.String(),
			RQPSN: uint32(a.RQPSN), SQPSN: uint32(a.SQPSN), Owner: who}
		if failed, refused, err := q.Failure(); err == nil {
			i.Failed, i.Refused = sentence(failed), sentence(refused)
		}
		i.Traffic = trafficOf(q)
		if connected := q.Type() != ib.UD && q.Type() != ib.GSI; connected && a.State >= ib.StateRTR {
			i.PeerQPN, i.Peer, i.PathMTU = uint32(a.DestQPN), a.AH.DGID.Addr(), int(a.PathMTU)
		}
		list = append(list, i)
	})
	slices.SortFunc(list, func(a, b QPInfo) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.QPN, b.QPN))
	})
	return list
}

// sentence says why something has failed, if it has.
func sentence(f ib.Failure) string {
	if f.Cause.Reason == ib.ReasonNone {
		return ""
	}
	return f.Cause.String()
}

// QPSums are sums over the queue pairs of clients on a device.
type QPSums struct {
	States [ib.NumQPStates]int // how many are in each state
	// Of their destinations, each counted once for each user and shard.
	Destinations map[string]float64 // how many, by congestion control
	Window       float64            // congestion windows, in packets
	InFlight     float64            // packets
	PaceBits     float64            // what leaves a second at most, in bits of payload, where that is limited
	MinRTT       time.Duration      // the shortest round trip of all; 0: none was measured
}

// QPSums returns sums over the queue pairs of clients, by device. Devices without any are left out.
func (s *Server) QPSums() map[string]*QPSums {
	sums := map[string]*QPSums{}
	look := s.look()
	defer look.end()
	objectsOf(s, func(device string, _ Owner, q *device.QP) {
		look.next()
		a, err := q.Query()
		t := trafficOf(q)
		if err != nil || t == nil { // it has just been closed
			return
		}
		sum := sums[device]
		if sum == nil {
			sum = &QPSums{Destinations: map[string]float64{}}
			sums[device] = sum
		}
		sum.States[a.State]++
		sum.addPath(t)
	})
	return sums
}

// addPath adds the part that a queue pair has of the way to its destination, if there is one.
func (s *QPSums) addPath(t *Traffic) {
	if t.PathQPs == 0 {
		return
	}
	part := 1 / float64(t.PathQPs)
	s.Destinations[t.Control] += part
	s.Window += part * float64(t.Window)
	s.InFlight += part * float64(t.InFlight)
	s.PaceBits += part * float64(t.PaceBits)
	if t.MinRTT > 0 && (s.MinRTT == 0 || t.MinRTT < s.MinRTT) {
		s.MinRTT = t.MinRTT
	}
}

// CMIDs describes the IDs of the connection manager that clients have, by device and address. Requests that a client
// has not taken yet are not among them.
func (s *Server) CMIDs() []CMInfo {
	list := []CMInfo{}
	look := s.look()
	defer look.end()
	objectsOf(s, func(_ string, who Owner, id *device.CMID) {
		look.next()
		a, err := id.Query()
		if err != nil {
			return // it has just been closed
		}
		for _, device := range s.devicesOf(id) {
			list = append(list, CMInfo{Device: device, State: id.State(), Space: a.Space.String(),
				Type: a.Type.String(), Local: a.Local, Remote: a.Remote, Owner: who})
		}
	})
	slices.SortFunc(list, func(a, b CMInfo) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote),
			cmp.Compare(a.PID, b.PID))
	})
	return list
}

var kindText = map[uint32]string{abi.MemFD: "memfd", abi.MemProcess: "process"}

// MRs describes the memory regions of all clients, by device and key. The caller must restrict
// who sees them (see MRInfo).
func (s *Server) MRs() []MRInfo {
	list := []MRInfo{}
	objectsOf(s, func(device string, who Owner, r *region) {
		key := uint32(r.LKey())
		i := MRInfo{Device: device, Number: key >> 8, Key: key, IOVA: r.Addr(), Length: r.Len(),
			Kind: kindText[r.kind.Load()], Why: abi.Stays(r.stays.Load()).String(), Owner: who}
		list = append(list, i)
	})
	slices.SortFunc(list, func(a, b MRInfo) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Key, b.Key))
	})
	return list
}
