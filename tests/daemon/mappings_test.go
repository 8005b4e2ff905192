package daemon

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// maxMaps is how many mappings a process may have.
func maxMaps(t *testing.T) int {
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestManyRegions registers the same memory more often than a process may have mappings. The daemon maps it once,
// which 2,000 registrations show as well.
func TestManyRegions(t *testing.T) {
	most := maxMaps(t)
	if most > 100_000 {
		require.Missing(t, "vm.max_map_count is %d, and to reach more than 100,000 takes too long (sysctl "+
			"vm.max_map_count=65530)", most)
	}
	a, b := startDaemon(t, "limits.connection.mrs=0", "limits.user.mrs=0"), startDaemon(t)
	others := startSteady(t, a, b)
	before := a.settled()
	q := newQueues(a.socket)
	memfds := a.usage().memfds
	for range require.Rounds(2_000, most+1000) {
		ask[abi.RegReply](q.raw, abi.OpRegMR, q.memory(q.file))
	}
	if n := a.usage().memfds; n > memfds {
		t.Errorf("%d mappings of memfds, want %d as with one registration", n, memfds)
	}
	others.goesOn(10)
	q.close()
	a.returnsTo(before)
}

// TestManyMappings uses as many mappings as a user can have, by memfds and then by rings. The
// refusal must name the limit and how to raise it, and the daemon must still be able to map memory.
func TestManyMappings(t *testing.T) {
	require.FullRun(t, "it makes 50,000 mappings")
	most := maxMaps(t)
	if most > 100_000 {
		require.Missing(t, "vm.max_map_count is %d, and to reach more than 100,000 takes too long (sysctl "+
			"vm.max_map_count=65530)", most)
	}
	a, b := startDaemon(t, "limits.connection.mrs=0", "limits.user.mrs=0", "limits.connection.srqs=0",
		"limits.user.srqs=0"), startDaemon(t)
	others := startSteady(t, a, b)
	before := a.settled()
	for what, request := range map[string]func(q *queues) (abi.Status, []byte, []int, error){
		"memfds": func(q *queues) (abi.Status, []byte, []int, error) {
			fd := newMemfd(0, 4096, unix.F_SEAL_SHRINK)
			defer unix.Close(fd)
			return q.call(abi.OpShareMemory, nil, fd)
		},
		"rings": func(q *queues) (abi.Status, []byte, []int, error) {
			fd := newMemfd(0, 4096, unix.F_SEAL_SHRINK)
			defer unix.Close(fd)
			return q.call(abi.OpCreateSRQ, abi.Put(nil, &abi.CreateSRQ{PD: q.pd, Type: uint32(ib.SRQBasic), MaxWR: 1,
				MaxSGE: 1}), fd)
		},
	} {
		q := newQueues(a.socket)
		made, refused := 0, error(nil)
		for refused == nil && made < most {
			status, body, fds, err := request(q)
			must(err)
			abi.CloseAll(fds)
			if made++; status != abi.OK {
				refused = abi.GetError(body, status)
			}
		}
		if !errors.Is(refused, ib.ErrLimit) || !strings.Contains(refused.Error(), "vm.max_map_count") {
			t.Errorf("%s: after %d, of %d mappings that a process has, refused with %v, want %v and vm.max_map_count",
				what, made, most, refused, ib.ErrLimit)
		}
		t.Logf("%s: %d, then: %v", what, made, refused)
		others.goesOn(10)
		q.close()
		a.returnsTo(before)
	}
}
