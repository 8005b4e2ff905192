package mr

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// PD is a protection domain of a Table: only users of the same domain reach a region or window (IBTA 10.2.3).
type PD struct {
	// Owner is for who has made the domain, and is set before its first use.
	Owner any

	table *Table
	num   uint32        // for error messages
	users [numUsers]int // guarded by Table.mu
	freed bool          // guarded by Table.mu
}

// User is a kind of object that uses a PD, which cannot be freed meanwhile.
type User uint8

// Kinds of users. The Table counts regions and windows; the callers of Acquire and Release count the others.
const (
	UserRegion User = iota
	UserWindow
	UserQP
	UserSRQ
	UserAH
	numUsers
)

var userText = [numUsers]string{"memory regions", "memory windows", "QPs", "SRQs", "address handles"}

// NewPD returns a new protection domain. The error wraps ib.ErrLimit when the table has MaxPDs.
func (t *Table) NewPD() (*PD, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pds == MaxPDs {
		return nil, fmt.Errorf("allocate protection domain: %d exist, the most that a device has: %w", t.pds,
			ib.ErrLimit)
	}
	t.pds++
	t.lastPD++
	return &PD{table: t, num: t.lastPD}, nil
}

// FreePD removes a protection domain. The error wraps ib.ErrBusy, with their number, while objects use it; it is
// ib.ErrClosed the second time.
func (t *Table) FreePD(pd *PD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.holds(pd); err != nil {
		return err
	}
	var busy []string
	for kind, n := range pd.users {
		if n > 0 {
			busy = append(busy, fmt.Sprintf("%d %s", n, userText[kind]))
		}
	}
	if len(busy) > 0 {
		return fmt.Errorf("free protection domain %d: %w by %s; close them first", pd.num, ib.ErrBusy,
			strings.Join(busy, ", "))
	}
	pd.freed = true
	t.pds--
	return nil
}

// Acquire counts a new user of pd. It returns ib.ErrClosed once pd is freed.
func (pd *PD) Acquire(kind User) error {
	pd.table.mu.Lock()
	defer pd.table.mu.Unlock()
	if err := pd.table.holds(pd); err != nil {
		return err
	}
	pd.users[kind]++
	return nil
}

// Release undoes one Acquire.
func (pd *PD) Release(kind User) {
	pd.table.mu.Lock()
	defer pd.table.mu.Unlock()
	if pd.users[kind] == 0 {
		panic("mr: PD released more often than acquired")
	}
	pd.users[kind]--
}

// holds returns an error unless pd is a domain of t that is not freed. The caller holds mu.
func (t *Table) holds(pd *PD) error {
	switch {
	case pd == nil:
		return driver.Refuse("use protection domain", "PD", nil, "one from NewPD", ib.ErrInvalid)
	case pd.table != t:
		return fmt.Errorf("protection domain %d: %w", pd.num, ib.ErrForeign)
	case pd.freed:
		return fmt.Errorf("protection domain %d: %w", pd.num, ib.ErrClosed)
	}
	return nil
}
