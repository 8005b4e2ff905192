package roce

// numbers gives objects of one kind their numbers: from 1 on, those that were
// used before last.
type numbers[T any] struct {
	items []*T
	free  []uint32 // oldest first
}

// restNumbers is how many numbers rest, so that a stale one names nothing for long.
const restNumbers = 64

func (t *numbers[T]) add(v *T) uint32 {
	if len(t.free) <= restNumbers {
		t.items = append(t.items, v)
		return uint32(len(t.items))
	}
	n := t.free[0]
	t.free = t.free[1:]
	t.items[n-1] = v
	return n
}

// get returns the object with number n, nil if there is none.
func (t *numbers[T]) get(n uint32) *T {
	if n == 0 || n > uint32(len(t.items)) {
		return nil
	}
	return t.items[n-1]
}

func (t *numbers[T]) remove(n uint32) {
	t.items[n-1] = nil
	t.free = append(t.free, n)
}
