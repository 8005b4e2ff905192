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
	"github.com/goroce/goroce/roce/trace/story"
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
	qp    device.QPFailure
}

// Told is a queue pair with what its flight recorder has. Show it as a FailureInfo.
type Told struct {
	FailureInfo
	Story story.Story
	Began time.Time // when Instant 0 of the records was
}

// failuresMost is how many failures the server remembers.
const failuresMost = 64

// failures are the latest failures of clients' queue pairs, oldest first.
type failures struct {
	mu      sync.Mutex
	list    []*FailureInfo
	unsaid  []*FailureInfo // what is to be logged; at most failuresMost
	talking bool           // a goroutine logs
	count   int            // how many there have been
	news    chan struct{}  // is closed at the next one; nil if nobody waits
}

// QPFailed records a failure (device.Tenant). A goroutine logs it, since writing the log may block. It is called with
// the lock of a shard held (device.Tenant).
func (c *session) QPFailed(f device.QPFailure) {
	i := infoOf(c.unit.name, Owner{PID: c.who.Pid, UID: c.who.Uid}, &f)
	c.visit.failedQP(i.Failed)
	// A client may fail queue pairs as fast as it likes: at the level that is usual the log has one line of it.
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
	s.count++
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
	if len(s.unsaid) < failuresMost {
		s.unsaid = append(s.unsaid, i)
	}
	if !s.talking {
		s.talking = true
		// This runs under the lock of a shard, where neither the log nor /proc may be waited for.
		go s.talk(c.srv.log)
	}
}

func infoOf(name string, who Owner, f *device.QPFailure) *FailureInfo {
	i := &FailureInfo{Device: name, At: time.Now(), QPN: uint32(f.Num), Type: f.Type.String(), Owner: who, qp: *f}
	if f.Type != ib.UD && f.Type != ib.GSI && f.PeerQPN != 0 {
		i.Peer, i.PeerQPN = f.Peer.Addr(), uint32(f.PeerQPN)
	}
	if i.Failed = sentence(f.Failed); f.Refused.Cause != f.Failed.Cause {
		i.Refused = sentence(f.Refused)
	}
	return i
}

// talk logs what there is to say, and looks up the names of the processes while they are there. One goroutine at a
// time does: what fails meanwhile is in its next list, or, beyond failuresMost, is not logged.
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

// Stories returns the failures of a queue pair with this number that the server remembers, oldest first. If there are
// none and a client has one open, it returns that, without a failure. device "" is any.
func (s *Server) Stories(device string, qpn uint32) (list []Told) {
	is := func(i *FailureInfo) bool { return i.QPN == qpn && (device == "" || i.Device == device) }
	for _, i := range s.Failures() {
		if is(&i) {
			list = append(list, i.tell())
		}
	}
	if list == nil {
		list = s.openStories(device, qpn)
	}
	return list
}

// tell reads the recorder of a failure. It takes the lock of a shard, so the caller holds none that a shard takes.
func (i *FailureInfo) tell() Told {
	return Told{FailureInfo: *i, Story: i.qp.Story(), Began: i.At.Add(-time.Duration(i.qp.Failed.At))}
}

// openStories returns what the recorder of an open queue pair has.
func (s *Server) openStories(dev string, qpn uint32) (list []Told) {
	objectsOf(s, func(name string, who Owner, q *device.QP) {
		if uint32(q.Num()) != qpn || dev != "" && dev != name {
			return
		}
		f, now, err := q.Describe()
		if err != nil {
			return // it has just been closed
		}
		i := infoOf(name, who, &f)
		list = append(list, Told{FailureInfo: *i, Story: f.Story(), Began: i.At.Add(-time.Duration(now))})
	})
	return list
}

// settleTime is how long the end of a story may take after the failure: a NAK is sent, requests are flushed.
const settleTime = 100 * time.Millisecond

// NextFailure waits for the next failure that the caller wants to see, and a moment longer for the end of its story.
func (s *Server) NextFailure(ctx context.Context, wants func(*FailureInfo) bool) (Told, error) {
	f := &s.failures
	f.mu.Lock()
	seen := f.count
	for {
		// The newest count-seen of the list. If more have failed than it holds, the oldest of them are lost.
		for n := min(f.count-seen, len(f.list)); n > 0; n-- {
			if i := f.list[len(f.list)-n]; wants(i) {
				f.mu.Unlock()
				select {
				case <-time.After(settleTime):
				case <-ctx.Done():
				}
				f.mu.Lock() // for Comm
				told := *i
				f.mu.Unlock()
				return told.tell(), nil
			}
		}
		seen = f.count
		if f.news == nil {
			f.news = make(chan struct{})
		}
		news := f.news
		f.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return Told{}, ctx.Err()
		}
		f.mu.Lock()
	}
}
