package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
)

// FailureInfo describes a failure of a client's queue pair, which may be closed since. It names keys, addresses and
// queue pairs: show it to the owner and privileged users only.
type FailureInfo struct {
	Device  string     `json:"device"`
	At      time.Time  `json:"at"`
	QPN     uint32     `json:"lqpn"`
	Type    string     `json:"type"`
	Peer    netip.Addr `json:"peer"` // not valid for datagrams
	PeerQPN uint32     `json:"rqpn,omitempty"`
	Failed  string     `json:"failed,omitempty"`  // why the queue pair has failed
	Refused string     `json:"refused,omitempty"` // the latest request of the peer that it has refused
	Owner

	level slog.Level // with which it is logged
}

// failuresMost is how many failures the server remembers.
const failuresMost = 64

// failures are the latest failures of clients' queue pairs, oldest first.
type failures struct {
	mu      sync.Mutex
	list    []*FailureInfo
	unsaid  []*FailureInfo // what is to be logged; at most failuresMost
	talking bool           // a goroutine logs
}

// QPFailed records a failure (device.Tenant). A goroutine logs it, since writing the log may block.
func (c *session) QPFailed(f device.QPFailure) {
	i := &FailureInfo{Device: c.unit.name, At: time.Now(), QPN: uint32(f.Num), Type: f.Type.String(),
		Owner: Owner{PID: c.who.Pid, UID: c.who.Uid}}
	if f.Type != ib.UD && f.Type != ib.GSI {
		i.Peer, i.PeerQPN = f.Peer.Addr(), uint32(f.PeerQPN)
	}
	if i.Failed = sentence(f.Failed); f.Refused.Cause != f.Failed.Cause {
		i.Refused = sentence(f.Refused)
	}
	c.visit.failedQP(i.Failed)
	if i.level = slog.LevelDebug; !c.failed.Swap(true) {
		i.level = slog.LevelInfo
	}
	s := &c.srv.failures
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == failuresMost {
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.list = append(s.list, i)
	if len(s.unsaid) < failuresMost {
		s.unsaid = append(s.unsaid, i)
	}
	if !s.talking {
		s.talking = true
		go s.talk(c.srv.log)
	}
}

// talk logs what there is to say, and looks up the names of the processes while they are there.
func (s *failures) talk(log *slog.Logger) {
	for {
		s.mu.Lock()
		unsaid := s.unsaid
		s.unsaid, s.talking = nil, len(unsaid) > 0
		s.mu.Unlock()
		if len(unsaid) == 0 {
			return
		}
		for _, i := range unsaid {
			name := nameOf(i.PID)
			s.mu.Lock()
			i.Comm = name
			s.mu.Unlock()
			log.Log(context.Background(), i.level, "queue pair has failed", "device", i.Device, "qp",
				fmt.Sprintf("%#x", i.QPN), "pid", i.PID, "comm", name, "uid", i.UID, "peer", i.Peer, "why", i.Failed)
		}
	}
}

// Failures returns the latest failures of clients' queue pairs, oldest first.
func (s *Server) Failures() []FailureInfo {
	s.failures.mu.Lock()
	defer s.failures.mu.Unlock()
	list := make([]FailureInfo, len(s.failures.list))
	for i, f := range s.failures.list {
		list[i] = *f
	}
	return list
}
