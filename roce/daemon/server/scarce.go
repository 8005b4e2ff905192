package server

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/machine"
)

// scarce accounts for a resource of which the machine, the daemon's part of it, or a device has only so much. A
// user may hold as much of it as stays free for all others. So a user that is alone may hold
// half, and a later user still finds some. This needs no list of users, and all users together
// never hold everything.
type scarce struct{ most, used int64 } // of all clients; most is 0 if there is no limit

// allows reports whether a user who holds this much may hold n more, and how much it may hold in all.
func (s *scarce) allows(holds, n int64) (most int64, ok bool) {
	left := s.most - s.used
	return left, s.most == 0 || holds+n <= left && n <= left
}

// scarceKind is a kind of scarce resource.
type scarceKind uint8

const (
	plenty scarceKind = iota
	scarceMappings
	scarceDescriptors
	scarceThreads
	scarceMemory
	numScarce
)

// scarceOf maps each resource to the scarce kind that it uses.
var scarceOf = [numResources]scarceKind{mappings: scarceMappings, descriptors: scarceDescriptors,
	threads: scarceThreads,
	pinned:  scarceMemory, heap: scarceMemory}

// scarceText says how to raise the limit of each kind.
var scarceText = [numScarce]string{
	scarceMappings:    "sysctl vm.max_map_count raises it",
	scarceDescriptors: "LimitNOFILE= of the daemon's unit, or ulimit -n, raises it",
	scarceThreads:     "TasksMax= of the daemon's unit raises it",
	scarceMemory:      "MemoryMax= of the daemon's unit, or more memory, raises it",
}

// setMachine gives the clients three quarters of the machine's capacity. The rest is for the
// process itself. Of threads the clients get half, as closers use some for each user (closer.go).
func (a *accounts) setMachine(m machine.Capacity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for kind, n := range map[scarceKind]int64{scarceMappings: m.Mappings, scarceDescriptors: m.Descriptors,
		scarceMemory: m.Memory} {
		a.scarce[kind].most = n - n/4
	}
	a.scarce[scarceThreads].most = m.Threads / 2
}

// scarceObjects returns how many objects of each kind a device has for all clients.
func scarceObjects(attr ib.DeviceAttr) (table [numResources]scarce) {
	for what, n := range map[resource]int{qps: attr.MaxQP, mrs: attr.MaxMR, mws: attr.MaxMW, cqs: attr.MaxCQ,
		pds: attr.MaxPD, srqs: attr.MaxSRQ, ahs: attr.MaxAH} {
		table[what].most = int64(n)
	}
	return table
}

// usedOf returns how much of a scarce kind the account holds.
func (a *account) usedOf(kind scarceKind) (n int64) {
	for what, k := range scarceOf {
		if k == kind {
			n += a.used[what]
		}
	}
	return n
}
