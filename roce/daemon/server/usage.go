package server

import (
	"cmp"
	"slices"
)

// Usage is the total of what the clients of one user hold.
type Usage struct {
	UID    uint32           `json:"uid"`
	Amount map[string]int64 `json:"amount"` // by the key of its limit in the configuration
}

// connectionsKey is the key of the limit on connections, which is the only one that is no resource.
const connectionsKey = "connections"

// Usage returns what each user with connected clients holds, sorted by user ID.
func (s *Server) Usage() []Usage {
	a := &s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []Usage{}
	for uid, u := range a.users {
		list = append(list, Usage{uid, byKey(&u.used, u.clients)})
	}
	slices.SortFunc(list, func(a, b Usage) int { return cmp.Compare(a.UID, b.UID) })
	return list
}

// UserLimits returns the limits of each user by key; 0 means no limit.
func (s *Server) UserLimits() map[string]int64 {
	a := &s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	return byKey(&a.user, a.connections)
}

func byKey(table *[numResources]int64, connections int) map[string]int64 {
	m := map[string]int64{connectionsKey: int64(connections)}
	for what, n := range table {
		m[resourceText[what].key] = n
	}
	return m
}
