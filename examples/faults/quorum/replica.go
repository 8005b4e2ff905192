// Package quorum is a key-value store of three hosts that goes on when one of them is away, and a test in which the
// hosts are cut off and reboot, one after the other.
//
//	go test ./examples/faults/quorum                                 # twenty networks
//	go test ./examples/faults/quorum -run Reboot -simtest.seed=7     # one of them
//
// Each value has a version. A Put asks for the latest version of its key, and stores the next one; a Get asks for the
// latest, and stores it again, so that no later Get returns an older one. Each of these steps is done when two of three
// replicas have answered, since any two pairs have a replica in common (Attiya, Bar-Noy, Dolev: Sharing Memory
// Robustly in Message-Passing Systems). A replica that comes back has what is on its disk, and need not catch up.
package quorum

import (
	"encoding/gob"
	"net"
	"sync"
)

// Entry is a value of a key. Of two entries the one with the higher version counts. The last 8 bits of a version are
// the ID of the client, so that no two entries have the same.
type Entry struct {
	Version uint64
	Value   string
}

// request stores an entry if it is newer than that of the key, and asks for the newer one.
type request struct {
	Key   string
	Store Entry
}

// Disk is what a replica keeps when it reboots: the entries by key.
type Disk struct {
	mu      sync.Mutex
	entries map[string]Entry
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{entries: map[string]Entry{}} }

func (d *Disk) do(r request) Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Store.Version > d.entries[r.Key].Version {
		d.entries[r.Key] = r.Store
	}
	return d.entries[r.Key]
}

// Serve answers clients until l is closed.
func Serve(l net.Listener, d *Disk) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
			for {
				var r request
				if in.Decode(&r) != nil || out.Encode(d.do(r)) != nil {
					return
				}
			}
		}()
	}
}
