package slowmem

import "github.com/goroce/goroce/mr"

// A shard that is going to take the worker's turns itself, soon, need not have received data copied: the
// worker writes it from the received frames, and until it has done so the shard receives into no
// buffer that has such frames. The shard is the holder of these placements then. Only the
// holder takes turns with them, because only it knows when the buffers may be used again.
//
// Others may queue work behind what is held. It is done in its order, by the holder's turns or, when
// nothing is held any more, by anybody's.

// Hold is Place without copies: long pieces of data stay where they are, in buffers of the holder.
// The holder must leave these alone as long as Holds reports true, unless it calls Release or Keep.
// Hold returns false, and does nothing, if other placements or fetches wait or are under way.
func (w *Worker[Q]) Hold(holder any, q Q, list []mr.Placement) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.at.finished() || !w.queue.finished() && w.queue.holder != holder {
		return false
	}
	w.queue.holder = holder
	for i := range list {
		w.queue.hold(q, &list[i])
	}
	return true
}

// Holds reports whether placements wait, or are under way, whose data is in buffers of the holder. Those of a
// closed worker do not wait, but a turn may be under way.
func (w *Worker[Q]) Holds(holder any) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.holder == holder || w.at.holder == holder && (w.running || !w.closed)
}

// Release copies the data that is in buffers of the holder, so that others may take the turns. The
// holder is not in a turn.
func (w *Worker[Q]) Release(holder any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range []*work[Q]{&w.at, &w.queue} {
		if k.holder == holder {
			k.own()
		}
	}
}

// Keep leaves the buffers to the worker for good. A turn may be under way: one that lasts too long.
func (w *Worker[Q]) Keep(holder any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range []*work[Q]{&w.at, &w.queue} {
		if k.holder == holder {
			k.holder = nil
		}
	}
}
