package rxe

import (
	"context"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// doctorTimeout bounds an examination.
const doctorTimeout = time.Minute

// TestDoctor: rdma_rxe answers the questions of the doctor, which come from a user's own device.
func TestDoctor(t *testing.T) {
	programs := buildCM(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		lab.Row(t, "peer", func(t testing.TB) {
			l := lab.Shared(t, kernel)
			for _, peer := range []netip.Addr{l.VMs[0].IPv4, l.VMs[0].IPv6} {
				ctx, cancel := context.WithTimeout(t.Context(), doctorTimeout)
				defer cancel()
				out, _ := l.HostCommand(ctx, programs["goroced"], "doctor", "--json", peer.String()).Output()
				want := regexp.MustCompile(`"check": "peer",\s+"status": "ok",\s+"text": "` +
					regexp.QuoteMeta(peer.String()) + ` answers in \d+ [um]s, path MTU \d+, 0 of 40 lost"`)
				other := regexp.MustCompile(regexp.QuoteMeta(peer.String()) + ` is no goroce, or an older one`)
				if !want.Match(out) || !other.Match(out) { // the exit code is of all findings
					t.Errorf("nothing matches %v, or %v:\n%s", want, other, out)
				}
			}
		})
	})
}
