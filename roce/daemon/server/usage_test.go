package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestUsage checks that Usage lists the users with clients, and the sums of what these hold.
func TestUsage(t *testing.T) {
	s := &Server{}
	s.SetLimits(Limits{}, Limits{QPs: 5, Connections: 9, Pinned: 100})
	limits := s.UserLimits()
	if limits["qps"] != 5 || limits["connections"] != 9 || limits["pinned"] != 100 || limits["mrs"] != 0 ||
		len(limits) != 1+int(numResources) {
		t.Errorf("limits %v, want 5 QPs, 9 connections, 100 bytes pinned, no MRs, of %d", limits, 1+int(numResources))
	}
	for _, uid := range []uint32{7, 3, 7} {
		account, _, err := s.accounts.enter(uid)
		if err != nil {
			t.Fatal(err)
		}
		c := &session{srv: s, user: account}
		if err := c.take(abi.OpCreateQP, qps, 2); err != nil {
			t.Fatal(err)
		}
	}
	type brief struct {
		UID              uint32
		Connections, QPs int64
	}
	var got []brief
	for _, u := range s.Usage() {
		got = append(got, brief{u.UID, u.Amount["connections"], u.Amount["qps"]})
	}
	if diff := cmp.Diff([]brief{{3, 1, 2}, {7, 2, 4}}, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	s.accounts.leave(3)
	if u := s.Usage(); len(u) != 1 || u[0].UID != 7 {
		t.Errorf("after one has left: %+v, want user 7 alone", u)
	}
}
