package server

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestTotals checks that each refused request counts for exactly one reason.
func TestTotals(t *testing.T) {
	s := &Server{}
	for _, err := range []error{nil, fmt.Errorf("full: %w", ib.ErrLimit), ib.ErrLimit, abi.ErrPermission,
		abi.ErrVersion, errors.New("x"), ib.ErrInvalid, ib.ErrInvalid} {
		s.totals.note(err)
	}
	want := Totals{Refused: map[string]uint64{"limit": 2, "permission": 1, "version": 1, "other": 3}}
	if diff := cmp.Diff(want, s.Totals()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
