package server

import (
	"slices"
	"sort"
)

// cover counts how many ranges contain each byte of a file. It is a step function, whose last
// step is 0, with at most two steps for each range.
type cover []step

// step is the number of users of the bytes from at up to the next step.
type step struct {
	at    uint64
	users int
}

// add adds n users to the bytes from..to; n may be negative. It returns how many bytes had no
// user before, or have none now.
func (c *cover) add(from, to uint64, n int) (turned uint64) {
	i := c.cut(from)
	j := c.cut(to)
	for k := i; k < j; k++ {
		s := &(*c)[k]
		before := s.users
		s.users += n
		if (before == 0) != (s.users == 0) {
			turned += (*c)[k+1].at - s.at
		}
	}
	c.join(j)
	c.join(i)
	return turned
}

// cut returns the index of the step that begins at an offset, and inserts one if there is none.
func (c *cover) cut(at uint64) int {
	i := sort.Search(len(*c), func(i int) bool { return (*c)[i].at >= at })
	if i == len(*c) || (*c)[i].at != at {
		*c = slices.Insert(*c, i, step{at, c.before(i)})
	}
	return i
}

// join removes a step that has as many users as the one before.
func (c *cover) join(i int) {
	if (*c)[i].users == c.before(i) {
		*c = slices.Delete(*c, i, i+1)
	}
}

// before returns the users of the bytes before step i.
func (c *cover) before(i int) int {
	if i == 0 {
		return 0
	}
	return (*c)[i-1].users
}
