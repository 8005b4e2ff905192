package engine

// Data that a shard receives for a worker whose turn its loop will take (inline.go) is not copied. The
// worker holds the placements and writes from the received frames (slowmem, Worker.Hold). As
// Link.Recv would overwrite these, turns of the loop receive nothing until the worker is done. They do
// everything else, so that ACKs leave between two turns of the worker.
//
// No memory stops the loop for long. When a worker's turn exceeds reliefAfter, the goroutine that takes over
// the loop first takes the frames away from the link (Link.Keep), or else the stuck turn could write what is
// received for others later. So a stuck worker keeps the buffers of one Recv at most. When a worker's turns
// are left to its own goroutine, the data is copied after all (inlineTurns.leave).

// holds reports whether workers still need the received frames. The loop calls it.
func (t *inlineTurns) holds() bool {
	for _, w := range t.workers {
		if w.Holds(t.shard) {
			return true
		}
	}
	return false
}

// takeOver runs the loop in place of a goroutine whose turn of a worker lasts too long.
func (s *Shard) takeOver() {
	s.keepFrames()
	s.run()
}

// keepFrames leaves the frames that workers hold to the workers: the one whose turn is under way, and
// those whose turns come.
func (s *Shard) keepFrames() {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.inline
	held := t.holds() || t.current.Holds(s)
	if held {
		s.link.Keep()
		s.mail.keep()
	}
	for _, w := range t.workers {
		w.Keep(s)
	}
	t.current.Keep(s)
	t.current.Ring() // the turn may have ended meanwhile, with work left
}
