package sock

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
)

// finishWait is the default of Outbox.finishWait.
const finishWait = 10 * time.Millisecond

// Outbox is a Batch of messages that are made of runs: one message for a whole run, or one for each of its frames.
type Outbox struct {
	*Batch
	content []content
	n       int

	// finishWait limits the wait for room in the socket when a part of a run has been sent frame by frame, and the rest
	// must follow.
	finishWait time.Duration

	// Failed says that in the last Flush the kernel refused a message, or reported the error of an earlier one.
	Failed bool
}

// content is what a message holds.
type content struct{ run, frames, bytes int }

// NewOutbox returns an Outbox for n messages; see NewBatch.
func NewOutbox(n, iovs, controlLen int) *Outbox {
	return &Outbox{Batch: NewBatch(n, iovs, controlLen), content: make([]content, n), finishWait: finishWait}
}

// Reset empties o.
func (o *Outbox) Reset() { o.n = 0 }

// Room returns how many messages can be added.
func (o *Outbox) Room() int { return len(o.content) - o.n }

// Add adds a message with frames of the given run; the caller then fills it. Messages of a run follow one another.
func (o *Outbox) Add(run, frames, bytes int) (message int) {
	o.content[o.n] = content{run, frames, bytes}
	o.n++
	return o.n - 1
}

// Flush sends all messages by fd and counts them in s. It returns how many runs were taken: total, or fewer if the
// socket would block. A run of which a part has been sent counts as taken: Flush waits for room for the rest, or drops
// it.
//
// An ICMP error about an earlier message makes the kernel refuse one message (IP_RECVERR): that is sent again, once.
func (o *Outbox) Flush(fd, total int, s *link.Stats) (taken int) {
	again := -1 // the message that is sent again
	o.Failed = false
	for at := 0; at < o.n; {
		n, errno := o.Send(fd, at, o.n)
		for ; n > 0; n-- {
			o.count(at, s)
			at++
		}
		switch {
		case errno == 0:
		case told(errno) && again != at:
			o.Failed, again = true, at
		case errno != unix.EAGAIN:
			o.Failed = true
			Lose(s, o.content[at].frames, errno.Error())
			at++
		case !o.begun(at):
			return o.content[at].run
		case !Writable(fd, o.finishWait):
			for run := o.content[at].run; at < o.n && o.content[at].run == run; at++ {
				Lose(s, o.content[at].frames, errno.Error())
			}
		}
	}
	return total
}

// told reports whether an error may be about an earlier message: it is one that ICMP makes (Linux's icmp_err_convert,
// tab_unreach of IPv6).
func told(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET, unix.ENOPROTOOPT,
		unix.EOPNOTSUPP, unix.EPROTO, unix.EACCES, unix.EMSGSIZE:
		return true
	}
	return false
}

// begun reports whether message i is not the first of its run.
func (o *Outbox) begun(i int) bool { return i > 0 && o.content[i].run == o.content[i-1].run }

func (o *Outbox) count(i int, s *link.Stats) {
	if !o.begun(i) {
		s.TxRuns++
	}
	s.TxFrames += uint64(o.content[i].frames)
	s.TxBytes += uint64(o.content[i].bytes)
}

// Lose counts frames that were not sent because of the error why.
func Lose(s *link.Stats, frames int, why string) {
	s.TxErrors += uint64(frames)
	s.LastError = why
}
