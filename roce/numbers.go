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

// table holds objects of one kind by number. Each shard has one of its own, all
// with the same objects, so that looking one up takes no lock but the shard's.
type table[T any] struct{ items []*T }

// get returns the object with number n, nil if there is none.
func (t *table[T]) get(n uint32) *T {
	if n == 0 || n > uint32(len(t.items)) {
		return nil
	}
	return t.items[n-1]
}

// set makes v, which may be nil, the object with number n.
func (t *table[T]) set(n uint32, v *T) {
	for uint32(len(t.items)) < n {
		t.items = append(t.items, nil)
	}
	t.items[n-1] = v
}
