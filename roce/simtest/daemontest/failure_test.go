package daemontest_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/roce/simtest/daemontest"
)

// TestFailure: the clients at both ends learn why a request has failed, and so does who looks at their daemons, which
// remember the last 64 failures.
func TestFailure(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		from, to := a.CM(t), b.CM(t)
		o := rdmacm.Config{Access: ib.RemoteWrite, Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxInline: 8}}
		const rounds = 70
		for range rounds {
			x, y := connectOf(t, n, from, to, o)
			_, err := x.QP().PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled | ib.SendInline,
				Inline: []byte("lost"), RKey: 0x701}})
			must(t, err)
			wc, lost := ib.WaitOne(t.Context(), x.SendCQ())
			failed, _, err := x.QP().Failure()
			must(t, err)
			if r := failed.Cause.Reason; r != ib.ReasonPeerAccess || ib.ReasonOf(wc.VendorErr) != r {
				t.Fatalf("got %v, of the QP %v, want both for %v", lost, failed.Cause, ib.ReasonPeerAccess)
			}
			_, refused, err := y.QP().Failure()
			must(t, err)
			if c := refused.Cause; c.Reason != ib.ReasonKey || c.Key != 0x701 || c.Op != ib.WRWrite || !c.Peer {
				t.Fatalf("got at the peer %+v, want a WRITE by the key 0x701, which nobody has", c)
			}
			must(t, x.Close())
			must(t, y.Close())
		}
		for i, d := range []*daemontest.Daemon{a, b} {
			list := d.Server().Failures()
			if len(list) != 64 || list[63].At.Before(list[0].At) || list[63].Failed == "" {
				t.Errorf("got %d failures of daemon %d, want the last 64 of %d, in order", len(list), i, rounds)
			}
		}
	})
}
