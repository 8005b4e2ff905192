package server

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestPromise: of each kind of object, each of two programs of one user can have at a time as many as it is told.
func TestPromise(t *testing.T) {
	for _, c := range []struct {
		name         string
		client, user Limits
		kind         string
		most, least  int // of what is told
	}{
		{"a connection's limit", Limits{QPs: 7}, Limits{QPs: 100}, "QP", 7, 7},
		{"half of a user's", Limits{QPs: 70}, Limits{QPs: 100}, "QP", 50, 50},
		{"a connection's heap", Limits{Heap: 2 << 20}, Limits{}, "QP", 100, 10},
		{"half of a user's memory", Limits{}, Limits{Pinned: 1 << 20}, "QP", 128, 64},
		{"the CQ of the program", Limits{CQEntries: 100}, Limits{}, "CQ", 42, 42},
		{"the PD of the program", Limits{PDs: 9}, Limits{}, "PD", 8, 8},
		{"entries", Limits{CQEntries: 1 << 13}, Limits{}, "entries", 2047, 2047},
		{"regions", Limits{MRs: 40}, Limits{MRs: 60}, "MR", 29, 29},
		{"what the device has", Limits{}, Limits{}, "group", 64, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := newStepped(t)
			s.SetLimits(c.client, c.user)
			programs := [2]*promised{newPromised(t, s), newPromised(t, s)}
			for i := range programs {
				told := programs[i].told(c.kind)
				if told > c.most || told < c.least {
					t.Fatalf("got %d told to a program, want %d to %d", told, c.least, c.most)
				}
				for range told {
					programs[i].make(c.kind, told)
				}
			}
		})
	}
}

// promised is a program with a PD, memory of its process, and a CQ.
type promised struct {
	*bareSession
	pd, cq abi.Handle
	made   int
}

func newPromised(t *testing.T, s *Server) *promised {
	p := &promised{bareSession: newBareSession(t, s)}
	p.pd = p.bareSession.make(abi.OpAllocPD, nil)
	p.cq = p.bareSession.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 16}))
	p.region()
	return p
}

func (p *promised) region() {
	p.bareSession.make(abi.OpRegMR, abi.Put(nil, &abi.RegMR{PD: p.pd, Kind: abi.MemProcess, Length: 0}))
}

// told returns how many objects of a kind the program is told.
func (p *promised) told(kind string) int {
	p.t.Helper()
	request := abi.Put(nil, &abi.Open{Device: abi.NameOf(p.unit.name)})
	r, err := abi.Get[abi.DeviceReply](p.ask(abi.OpQueryDevice, request))
	must(p.t, err)
	return map[string]int{"QP": int(r.MaxQP), "CQ": int(r.MaxCQ), "PD": int(r.MaxPD), "MR": int(r.MaxMR) - 1,
		"entries": int(r.MaxCQE), "group": int(r.MaxMcastGroup)}[kind]
}

// make makes an object of a kind, or at a time two CQs of as many entries as there may be.
func (p *promised) make(kind string, most int) {
	p.t.Helper()
	p.made++
	switch kind {
	case "QP":
		p.bareSession.make(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
			Type: uint32(ib.RC), MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 256}))
	case "CQ":
		p.bareSession.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 2}))
	case "PD":
		p.bareSession.make(abi.OpAllocPD, nil)
	case "MR":
		p.region()
	case "entries":
		if p.made <= 2 {
			p.bareSession.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: uint32(most + 1)}))
		}
	}
}
