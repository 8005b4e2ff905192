package roce

// numbers gives objects of one kind their numbers: from 1 on, those that were
// used before last.
type numbers struct {
	last uint32   // highest that was ever given
	free []uint32 // oldest first
}

// restNumbers is how many numbers rest, so that a stale one names nothing for long.
const restNumbers = 64

func (t *numbers) take() uint32 {
	if len(t.free) <= restNumbers {
		t.last++
		return t.last
	}
	n := t.free[0]
	t.free = t.free[1:]
	return n
}

func (t *numbers) put(n uint32) { t.free = append(t.free, n) }
