package server

import "github.com/goroce/goroce/roce/daemon/machine"

// What the machine, or the daemon's part of it, has little of is shared by all clients: a user
// may have as much as is left for all others. It has half of it if it is alone, and whoever
// comes later finds some. So no user has to be known beforehand, and together they never have
// all.
type scarce struct{ most, used int64 } // for all clients; most is 0 where nothing limits it

// scarceKind is what is scarce.
type scarceKind uint8

const (
	plenty scarceKind = iota
	scarceMappings
	scarceDescriptors
	scarceThreads
	scarceMemory
	numScarce
)

// scarceOf is what resources are made of.
var scarceOf = [numResources]scarceKind{mappings: scarceMappings, descriptors: scarceDescriptors,
	threads: scarceThreads,
	pinned:  scarceMemory, heap: scarceMemory}

// scarceText says what helps.
var scarceText = [numScarce]string{
	scarceMappings:    "sysctl vm.max_map_count raises it",
	scarceDescriptors: "LimitNOFILE= of the daemon's unit, or ulimit -n, raises it",
	scarceThreads:     "TasksMax= of the daemon's unit raises it",
	scarceMemory:      "MemoryMax= of the daemon's unit, or more memory, raises it",
}

// setMachine has clients share three quarters of what the machine has: the rest is for the
// process itself. Of threads it is half, as closers have some for each user (closer.go).
func (a *accounts) setMachine(m machine.Capacity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for kind, n := range map[scarceKind]int64{scarceMappings: m.Mappings, scarceDescriptors: m.Descriptors,
		scarceMemory: m.Memory} {
		a.scarce[kind].most = n - n/4
	}
	a.scarce[scarceThreads].most = m.Threads / 2
}

// usedOf returns what the account has of what is scarce.
func (a *account) usedOf(kind scarceKind) (n int64) {
	for what, k := range scarceOf {
		if k == kind {
			n += a.used[what]
		}
	}
	return n
}
