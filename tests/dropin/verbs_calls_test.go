//go:build linux

package dropin

import (
	"regexp"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// callDeviations are the lines of testdata/verbs_calls.txt where the library differs: what it prints instead, and why.
var callDeviations = map[string]deviation{
	"reg_mr with access 0x21: EOPNOTSUPP": {"reg_mr with access 0x21: ok", "memory may be zero based"},
	"IBV_QPS_RTR path_mtu 0: ok":          {"IBV_QPS_RTR path_mtu 0: EINVAL", outOfRange},
	"IBV_QPS_RTR max_dest_rd_atomic 0x81: ok": {
		"IBV_QPS_RTR max_dest_rd_atomic 0x81: EINVAL", outOfRange},
	"IBV_QPS_RTR max_dest_rd_atomic 0xff: ok": {
		"IBV_QPS_RTR max_dest_rd_atomic 0xff: EINVAL", outOfRange},
	"IBV_QPS_RTR dest_qp_num 0: ok": {"IBV_QPS_RTR dest_qp_num 0: EINVAL", outOfRange},
	"IBV_QPS_RTR dest_qp_num 0x1: ok": {
		"IBV_QPS_RTR dest_qp_num 0x1: EINVAL", outOfRange},
	"IBV_QPS_RTR dest_qp_num 0xffffff: ok": {
		"IBV_QPS_RTR dest_qp_num 0xffffff: EINVAL", outOfRange},
	"IBV_QPS_RTS retry_cnt 0x8: ok":  {"IBV_QPS_RTS retry_cnt 0x8: EINVAL", outOfRange},
	"IBV_QPS_RTS retry_cnt 0xff: ok": {"IBV_QPS_RTS retry_cnt 0xff: EINVAL", outOfRange},
	"IBV_QPS_RTS rnr_retry 0x8: ok":  {"IBV_QPS_RTS rnr_retry 0x8: EINVAL", outOfRange},
	"IBV_QPS_RTS rnr_retry 0xff: ok": {"IBV_QPS_RTS rnr_retry 0xff: EINVAL", outOfRange},
	"IBV_QPS_RTR min_rnr_timer 0x20: ok": {
		"IBV_QPS_RTR min_rnr_timer 0x20: EINVAL", outOfRange},
	"IBV_QPS_RTR min_rnr_timer 0xff: ok": {
		"IBV_QPS_RTR min_rnr_timer 0xff: EINVAL", outOfRange},
	"IBV_QPS_INIT pkey_index 0x1: ok": {"IBV_QPS_INIT pkey_index 0x1: EINVAL", "the table has one row"},
	"rereg_mr, PD: unknown EOPNOTSUPP, of another kind EOPNOTSUPP": {
		"rereg_mr, PD: unknown ENOENT, of another kind EINVAL", "rdma-core has no ibv_rereg_mr for rdma_rxe"},
	"rereg_mr: unknown EOPNOTSUPP, of another kind EOPNOTSUPP": {
		"rereg_mr: unknown ENOENT, of another kind EINVAL", "the same"},
}

const outOfRange = "no packet can say it, or mean it (IBTA 9.7.5.2.8, 11.2.5.2); RNICs refuse it"

// rateLimit is what lines say of IBV_QP_RATE_LIMIT, which the kernel's rdma_rxe does not have, and this device has.
var rateLimit = regexp.MustCompile(`, with RATE \w+`)

// TestVerbsCalls: the library accepts and refuses what rdma_rxe does, with its errno, as tests/rxe has recorded it.
func TestVerbsCalls(t *testing.T) {
	require.Root(t)
	needVerbs(t)
	program := compile(t, "testdata/verbs_calls.c", "-libverbs")
	ns, _ := linktest.NewVeth(t, 1500)
	out, err := blueHost(t, ns).run(t, "env", "GOROCE_QUIET=1", program).wait(t)
	compareWithKernel(t, "testdata/verbs_calls.txt", out, err, callDeviations, func(line string) string {
		return rateLimit.ReplaceAllString(line, "")
	})
}
