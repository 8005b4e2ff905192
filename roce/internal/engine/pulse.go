package engine

import "sync/atomic"

// pulse tells others whether the shard takes turns. Nobody who asks waits for the shard's lock, and a turn that is
// asked by nobody only loads a word.
type pulse struct {
	asked atomic.Pointer[chan struct{}] // closed by the next turn; nil if nobody asks
	ended atomic.Bool                   // the loop has ended: its link is closed, or has failed
}

// Pulse returns a channel that is closed in the shard's next turn, or when its loop has ended. Callers that ask
// meanwhile get the same channel.
func (s *Shard) Pulse() <-chan struct{} {
	beat := make(chan struct{})
	if !s.pulse.asked.CompareAndSwap(nil, &beat) {
		if asked := s.pulse.asked.Load(); asked != nil {
			beat = *asked
		} else { // a turn has ended since
			close(beat)
		}
	}
	if s.pulse.ended.Load() {
		s.beat()
	}
	s.wake()
	return beat
}

// beat answers those who ask.
func (s *Shard) beat() {
	if asked := s.pulse.asked.Swap(nil); asked != nil {
		close(*asked)
	}
}

// end says that the loop takes no turn any more.
func (s *Shard) end() {
	s.pulse.ended.Store(true)
	s.beat()
}
