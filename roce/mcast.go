package roce

import (
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
)

// groups holds the multicast groups that QPs are attached to; it is guarded by
// shard.mu.
type groups map[ib.GID][]*QP

// AttachMulticast adds the QP to a group.
func (q *QP) AttachMulticast(group ib.GID) error {
	op := fmt.Sprintf("attach QP %#x to multicast group", uint32(q.num))
	if err := q.checkGroup(op, group); err != nil {
		return err
	}
	s := q.pd.dev.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	members := s.groups[group]
	switch {
	case q.core == nil:
		return q.err(op)
	case slices.Contains(members, q):
		return nil
	case len(members) == maxMcastQPs:
		return limitError(op, "QPs in the group", maxMcastQPs)
	case members == nil && len(s.groups) == maxMcastGroups:
		return limitError(op, "groups", maxMcastGroups)
	}
	if members == nil {
		if err := s.link.Join(group); err != nil {
			return fmt.Errorf("%s %v: %w", op, group.Addr(), err)
		}
	}
	s.groups[group] = append(members, q)
	return nil
}

// DetachMulticast takes the QP out of a group.
func (q *QP) DetachMulticast(group ib.GID) error {
	op := fmt.Sprintf("detach QP %#x from multicast group", uint32(q.num))
	if err := q.checkGroup(op, group); err != nil {
		return err
	}
	s := q.pd.dev.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.groups[group], q) {
		return &ib.AttrError{Op: op, Attr: "group", Value: group.Addr(), Allowed: "a group that the QP is attached to", Err: ib.ErrInvalid}
	}
	return s.detach(q, group)
}

func (q *QP) checkGroup(op string, group ib.GID) error {
	if err := q.err(op); err != nil {
		return err
	}
	if !qp.Datagram(q.typ) {
		return &ib.AttrError{Op: op, Attr: "Type", Value: q.typ, Allowed: "UD", Err: ib.ErrInvalid}
	}
	if !group.Addr().IsMulticast() {
		return &ib.AttrError{Op: op, Attr: "group", Value: group.Addr(), Allowed: "a multicast IP address in GID form", Err: ib.ErrInvalid}
	}
	return nil
}

// detach takes q out of a group, and the link with the last member.
func (s *shard) detach(q *QP, group ib.GID) error {
	// A copy: dispatch may be walking the old list.
	members := slices.DeleteFunc(slices.Clone(s.groups[group]), func(m *QP) bool { return m == q })
	if len(members) > 0 {
		s.groups[group] = members
		return nil
	}
	delete(s.groups, group)
	return s.link.Leave(group)
}

// detachAll takes q out of all groups.
func (s *shard) detachAll(q *QP) {
	for group, members := range s.groups {
		if slices.Contains(members, q) {
			_ = s.detach(q, group) // the link keeps a group that it cannot leave
		}
	}
}
