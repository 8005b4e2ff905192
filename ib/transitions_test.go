package ib_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
)

// modifiedQP records what it is modified to, and refuses RTS.
type modifiedQP struct {
	ib.QP
	states []ib.QPState
	masks  []ib.QPAttrMask
}

func (q *modifiedQP) Type() ib.QPType { return ib.UC }

func (q *modifiedQP) Modify(attr ib.QPAttr, mask ib.QPAttrMask) error {
	if attr.State == ib.StateRTS {
		return ib.ErrState
	}
	q.states, q.masks = append(q.states, attr.State), append(q.masks, mask)
	return nil
}

// TestModifyTo checks that each transition gets its attributes, and that an error ends the way.
func TestModifyTo(t *testing.T) {
	q := new(modifiedQP)
	err := ib.ModifyTo(q, ib.QPAttr{State: ib.StateSQD, PathMTU: ib.MTU1024}, ib.StateInit, ib.StateRTR, ib.StateRTS,
		ib.StateSQD)
	if !errors.Is(err, ib.ErrState) {
		t.Errorf("the refusal of RTS is returned as %v, want %v", err, ib.ErrState)
	}
	if want := []ib.QPState{ib.StateInit, ib.StateRTR}; !slices.Equal(q.states, want) {
		t.Errorf("modified to %v, want %v", q.states, want)
	}
	connected := ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	toInit := ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess
	if want := []ib.QPAttrMask{ib.AttrState | toInit, ib.AttrState | connected}; !slices.Equal(q.masks, want) {
		t.Errorf("attributes %v, want %v", q.masks, want)
	}
}
