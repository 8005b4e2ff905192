package device

import (
	"slices"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/trace/story"
)

// failuresMost is how many failures a device remembers.
const failuresMost = 64

// failures are the latest failures of the QPs of this process, oldest first. Those of tenants are theirs.
type failures struct {
	mu   sync.Mutex
	list []QPFailure
}

// add keeps a failure. A shard calls it with its lock held, so whoever holds mu must not wait for a shard: Story
// does, and is called without.
func (l *failures) add(f QPFailure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == failuresMost {
		// Each holds a recording, which has the latest packets of its QP.
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, f)
}

// failureOf describes q, whose shard's lock the caller holds, apart from the causes.
func failureOf(q *engine.QP) QPFailure {
	of := q.Owner.(*QP)
	f := QPFailure{Num: of.num, Type: of.typ, path: q.Path(), recording: q.Recording()}
	if of.typ != ib.UD {
		f.Peer, f.PeerQPN = q.Peer()
	}
	return f
}

// Story returns what the flight recorder of the QP has. It takes the lock of a shard.
func (f *QPFailure) Story() story.Story {
	return story.Story{Num: f.Num, Type: f.Type, Local: f.path.Src, Peer: f.Peer, PeerQPN: f.PeerQPN,
		SourcePort: f.path.SrcPort, Failed: f.Failed, Refused: f.Refused, Records: f.recording.Records()}
}

// Failures is that of roce.Device.
func (d *Device) Failures() []story.Story {
	d.failures.mu.Lock()
	// A copy, as Story takes the lock of a shard, and add is called under one.
	list := slices.Clone(d.failures.list)
	d.failures.mu.Unlock()
	stories := make([]story.Story, len(list))
	for i := range list {
		stories[i] = list[i].Story()
	}
	return stories
}

// Failure is that of roce.Device.
func (d *Device) Failure(of ib.QP) (story.Story, error) {
	q, err := owned[*QP](d, "query failure of QP", "QP", of)
	if err != nil {
		return story.Story{}, err
	}
	f, _, err := q.Describe()
	return f.Story(), err
}

// Describe returns why an open QP has failed, if it has, and the time of its shard.
func (q *QP) Describe() (f QPFailure, now ib.Instant, err error) {
	const op = "query failure of QP"
	if err := q.err(op); err != nil {
		return f, now, err
	}
	open := q.part.Locked(func(core *qp.QP) {
		f = failureOf(q.part)
		f.Failed, f.Refused = core.Failure()
	})
	if !open { // closed concurrently
		return QPFailure{}, now, q.err(op)
	}
	return f, q.home.Now(), nil
}
