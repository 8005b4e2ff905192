package rxe

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// refusal is a request that is refused.
type refusal struct {
	name, family string
	listener     string // the command of the listening end; "" if there is no listener
	asker        string // the command of the requesting end
	listenerSays string
	askerSays    string
}

// Linux maps every SIDR status but success to RDMA_CM_EVENT_UNREACHABLE, with the
// status (cma_sidr_rep_handler).
var refusals = []refusal{
	{"nobody", v4, "", "cmpeer dial $VM", "", "rejected: reason 8 status 0"},
	{"nobody", v6, "", "cmpeer dial $VM", "", "rejected: reason 8 status 0"},
	{"nobody-datagrams", v4, "", "cmpeer dial -u $VM", "", "rejected: reason 0 status 1"},
	{"they", v4, "cmtool tcp reject 7471 no", "cmpeer dial --data please $VM",
		`private data "please"`, `rejected: reason 28 status 0 private data "no"`},
	{"they-datagrams", v4, "cmtool udp reject 7471 no", "cmpeer dial -u --data please $VM",
		`private data "please"`, `rejected: reason 0 status 2 private data "no"`},

	{"nobody", v4, "", "cmtool tcp dial $HOST 7471 please", "", "RDMA_CM_EVENT_REJECTED status 8 "},
	{"nobody", v6, "", "cmtool tcp dial $HOST 7471 please", "", "RDMA_CM_EVENT_REJECTED status 8 "},
	{"nobody-datagrams", v4, "", "cmtool udp dial $HOST 7471 please", "", "RDMA_CM_EVENT_UNREACHABLE status 1 "},
	{"we", v4, "cmpeer reject --data no", "cmtool tcp dial $HOST 7471 please",
		`request: private data "please"`, `RDMA_CM_EVENT_REJECTED status 28 private data "no"`},
	{"we", v6, "cmpeer reject --data no", "cmtool tcp dial $HOST 7471 please",
		`request: private data "please"`, `RDMA_CM_EVENT_REJECTED status 28 private data "no"`},
	{"we-datagrams", v4, "cmpeer reject -u --data no", "cmtool udp dial $HOST 7471 please",
		`request: private data "please"`, "RDMA_CM_EVENT_UNREACHABLE status 2 "},
}

// TestCMRefusals has each end refuse the other: there is no listener (reason 8), or the
// application refuses (28), with private data both ways.
func TestCMRefusals(t *testing.T) {
	programs := buildCM(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, r := range refusals {
			weAsk := strings.HasPrefix(r.asker, "cmpeer")
			lab.Row(t, fmt.Sprintf("%s-%s-we-ask=%v", r.name, r.family, weAsk), func(t testing.TB) {
				p := newCMPlay(t, programs, kernel, udp, r.family)
				ctx, cancel := context.WithTimeout(t.Context(), cmTimeout)
				defer cancel()
				var listener, asker string
				if weAsk {
					listener, asker = p.weAsk(ctx, &r)
				} else {
					listener, asker = p.theyAsk(ctx, &r)
				}
				if !strings.Contains(listener, r.listenerSays) || !strings.Contains(asker, r.askerSays) {
					t.Errorf("%s\nsays:\n%s\nwant %q\n\n%s\nsays:\n%s\nwant %q", r.listener, listener, r.listenerSays,
						r.asker, asker, r.askerSays)
				}
			})
		}
	})
}

// weAsk sends the request from our end, and returns the output of both ends.
func (p *cmPlay) weAsk(ctx context.Context, r *refusal) (listener, asker string) {
	if r.listener == "" {
		us := p.start(ctx, r.asker)
		_ = us.Wait() // its output is checked instead
		return "", us.output()
	}
	words := p.words(r.listener)
	peer, err := p.vm.Start(ctx, words[0], words[1:]...)
	p.must(err)
	p.must(p.vm.WaitListenCM(ctx, 7471))
	us := p.start(ctx, r.asker)
	if us.Wait() != nil {
		peer.Kill()
	}
	result, err := peer.Wait()
	p.must(err)
	return result.Stdout + result.Stderr, us.output()
}

// theyAsk sends the request from the guest. For the case without a listener our end listens
// at another port.
func (p *cmPlay) theyAsk(ctx context.Context, r *refusal) (listener, asker string) {
	command := r.listener
	if command == "" {
		command = "cmpeer reject -p 7472"
	}
	us := p.start(ctx, command)
	us.waitReady(ctx)
	words := p.words(r.asker)
	result, err := p.vm.Run(ctx, words[0], words[1:]...)
	if r.listener == "" || err != nil {
		us.Process.Kill()
	}
	_ = us.Wait() // its output is checked instead
	p.must(err)
	return us.output(), result.Stdout + result.Stderr
}
