package wrap_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// TestKeep: wrappers that return buffers of their own give these away, too.
func TestKeep(t *testing.T) {
	const runs, frames = 6, 60 // so many bytes that queues begin again at their start
	for _, c := range []struct {
		name string
		to   ib.GID // of the frames, which host "local" sends
		wrap func(link.Link) link.Link
	}{
		{"queued", peer, func(l link.Link) link.Link { return l }},
		{"looped", local, wrap.Loopback},
		{"duplicated", peer, func(l link.Link) link.Link {
			return wrap.Fault(l, wrap.FaultConfig{Seed: 1, Duplicate: 0.5, OnRecv: true})
		}},
		{"delayed", peer, func(l link.Link) link.Link {
			return wrap.Fault(l, wrap.FaultConfig{Seed: 1, Duplicate: 0.5, Latency: 1, OnRecv: true})
		}},
		{"corrupted", peer, func(l link.Link) link.Link {
			rules := new(wrap.Rules)
			add(t, rules, wrap.Rule{Action: wrap.ActCorrupt})
			return rules.Below(l)
		}},
		{"by rules", peer, func(l link.Link) link.Link {
			rules := new(wrap.Rules)
			add(t, rules, wrap.Rule{Action: wrap.ActDuplicate})
			return rules.Above(l)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := mem.NewNetwork()
			a, b := n.Open([]ib.GID{local}, mem.Options{}), n.Open([]ib.GID{peer}, mem.Options{})
			to := c.wrap(b)
			from := a
			if c.to == local {
				to = c.wrap(a)
				from = to
			}
			now, psn := ib.Instant(0), uint32(0)
			linktest.Keep(t, clocked{to, &now}, func() {
				now += ms
				out := make([]link.Run, runs)
				for i := range out {
					out[i] = linktest.NewRun(a, a, &psn, frames, 1040, 0)
					out[i].Dst = c.to
				}
				linktest.SendAll(t, from, out)
			}, runs*frames)
		})
	}
}

// clocked is a Link whose time goes on with each Recv.
type clocked struct {
	link.Link
	now *ib.Instant
}

func (c clocked) Recv(_ ib.Instant, in []link.Run) (int, error) {
	*c.now += ms
	return c.Link.Recv(*c.now, in)
}
