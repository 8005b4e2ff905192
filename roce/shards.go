package roce

import (
	"fmt"
	"slices"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// A device with several shards has as many loops, each with its link. What belongs
// to a QP belongs to its shard; the rest is shared as follows.
//
//	memory, keys, PDs    one mr.Table, read without lock
//	CQs, SRQs            a lock each, which is the innermost
//	AHs, XRC SRQs        one space of numbers; every shard has the table
//	multicast groups     joined on the first link; every shard knows its members
//	packets              go to their shard by its mailbox (mailbox.go)
//
// With one shard there is no such lock, copy or mailbox.

// checkLinks refuses links that cannot be those of one device.
func checkLinks(links []link.Link) error {
	const op = "open device"
	n := len(links)
	if n < 1 || n > link.MaxShards || n&(n-1) != 0 {
		return &ib.AttrError{Op: op, Attr: "links", Value: n, Allowed: fmt.Sprintf("1 to %d, a power of two", link.MaxShards), Err: ib.ErrInvalid}
	}
	first := links[0].Caps()
	for i, l := range links[1:] {
		c := l.Caps()
		if c.MTU != first.MTU || c.RunFrames != first.RunFrames || c.RunBytes != first.RunBytes || !slices.Equal(c.Local, first.Local) {
			return &ib.AttrError{Op: op, Attr: fmt.Sprintf("link %d", i+1), Value: c.Name,
				Allowed: "the addresses, MTU and run limits of link 0", Err: ib.ErrInvalid}
		}
	}
	return nil
}

// several reports whether there is more than one shard.
func (d *Device) several() bool { return len(d.shards) > 1 }

// next returns the shard whose turn it is to get something. The caller holds mu.
func (d *Device) next() *shard {
	d.turn++
	return d.shards[(d.turn-1)%len(d.shards)]
}

// each calls f with one shard after the other, whose lock it holds meanwhile.
func (d *Device) each(f func(*shard)) {
	for _, s := range d.shards {
		s.mu.Lock()
		f(s)
		s.mu.Unlock()
	}
}

// newLock returns the lock of an object that the QPs of all shards may use, nil if
// there is one shard.
func (d *Device) newLock() sync.Locker {
	if d.several() {
		return new(sync.Mutex)
	}
	return nil
}

// quiesce returns when no step that began before is under way: nothing holds on
// to memory that was deregistered.
func (d *Device) quiesce() { d.each(func(*shard) {}) }

// spread passes a run that the link has received on to the other shards that have
// a part in it, and reports whether this one has.
func (s *shard) spread(r *link.Run) bool {
	var frames [link.MaxShards]int
	shards := len(s.dev.shards)
	if isMulticast(&r.Dst) {
		to := s.groups[r.Dst].shards
		if to == 0 {
			return true // it is for nobody, which counts here
		}
		for i := range shards {
			frames[i] = r.Frames() * int(to>>i&1)
		}
	} else {
		for i := range r.Frames() {
			frames[link.FrameShard(r.Frame(i), shards)]++
		}
	}
	for i, other := range s.dev.shards {
		if i != s.id && frames[i] > 0 {
			other.mail.put(r, frames[i])
			other.kick()
		}
	}
	return frames[s.id] > 0
}

// isMulticast reports whether a GID is that of a group.
func isMulticast(g *ib.GID) bool { return g[0] == 0xFF || g[12]>>4 == 0xE && g.Is4() }
