package mr

import (
	"errors"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
)

// Persistence is asked for where the medium can tell it, by its own offsets, and
// only when the level says so.
func TestFlush(t *testing.T) {
	const global, persistent = ib.FlushGlobally, ib.FlushPersistently
	rights := ib.FlushGlobal | ib.FlushPersistent
	m := &durable{Memory: Bytes(aligned(64, 0))}
	table, pd := newTable(t, 8)
	r := register(t, table, pd, m, 0x1000, ib.BindWindows|rights)
	w := newWindow(t, table, pd, ib.MWType2)
	key := bind(t, table, w, 17, ib.MWBind{LKey: r.Key(), Addr: 0x1010, Length: 32, Access: rights | ib.ZeroBased})
	piece, fault := table.RemoteRegion(pd, 17, key, rights)
	if fault != FaultNone {
		t.Fatal(fault)
	}
	plain := register(t, table, pd, Bytes(make([]byte, 8)), 0, ib.FlushGlobal)
	gone := register(t, table, pd, &durable{Memory: sized(8)}, 0, 0)
	if err := table.Deregister(gone); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		r      *Region
		level  ib.FlushLevel
		off, n uint64
		want   error
		asked  [][2]uint64
	}{
		{"visible", r, global, 0, 64, nil, nil},
		{"persistent", r, persistent, 8, 16, nil, [][2]uint64{{8, 16}}},
		{"both", r, global | persistent, 0, 64, nil, [][2]uint64{{0, 64}}},
		{"nothing", r, persistent, 64, 0, nil, [][2]uint64{{64, 0}}},
		{"too long", r, persistent, 1, 64, FaultBounds, nil},
		{"beyond the end", r, persistent, 65, 0, FaultBounds, nil},
		{"length wraps", r, persistent, 8, 1<<64 - 4, FaultBounds, nil},
		{"window", piece, persistent, 0, 32, nil, [][2]uint64{{16, 32}}},
		{"part of a window", piece, persistent, 4, 8, nil, [][2]uint64{{20, 8}}},
		{"beyond a window", piece, persistent, 1, 32, FaultBounds, nil},
		{"medium cannot, need not", plain, global, 0, 8, nil, nil},
		{"medium cannot", plain, persistent, 0, 8, ib.ErrNotSupported, nil},
		{"region gone", gone, global, 0, 8, FaultKey, nil},
	} {
		m.asked = nil
		if err := c.r.Flush(c.level, c.off, c.n); !errors.Is(err, c.want) || !slices.Equal(m.asked, c.asked) {
			t.Errorf("%s: %v, asked for %v; want %v, %v", c.name, err, m.asked, c.want, c.asked)
		}
	}
	m.asked, m.fail = nil, errors.New("medium is gone")
	s, _ := table.CheckRemote(pd, 17, key, 4, 8, rights)
	if err := s.Flush(persistent); err != m.fail || !slices.Equal(m.asked, [][2]uint64{{20, 8}}) {
		t.Errorf("span: %v, asked for %v; want %v, 8 bytes at 20", err, m.asked, m.fail)
	}
	if fault := table.Invalidate(pd, 17, key); fault != FaultNone {
		t.Fatal(fault)
	}
	if err := s.Flush(global); err != FaultKey {
		t.Errorf("span of a window that is unbound: got %v, want %v", err, FaultKey)
	}
}
