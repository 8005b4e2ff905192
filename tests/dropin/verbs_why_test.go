package dropin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
)

// why has the cases of verbs_why.c, and what the two ends say: a part of a sentence, and the reason. An empty one
// knows of nothing. How often the responder told its peer to wait is no part of it: a tail probe on a busy machine is
// told so, too, and the requester does not count that (roce/internal/device has the exact number, in virtual time).
var why = []struct {
	name             string
	a, b             string
	reasonA, reasonB ib.Reason
}{
	{"wrong_key", "the peer does not allow the access", "no region or memory window has the key",
		ib.ReasonPeerAccess, ib.ReasonKey},
	{"too_far", "the peer does not allow the access", "64 bytes at 0x", ib.ReasonPeerAccess, ib.ReasonBounds},
	{"no_right", "the peer does not allow the access", "grants remote read, not remote write", ib.ReasonPeerAccess,
		ib.ReasonAccess},
	{"other_pd", "the peer does not allow the access", "belongs to another protection domain than the QP",
		ib.ReasonPeerAccess, ib.ReasonPD},
	{"deregistered", "the peer does not allow the access", "was deregistered by the application", ib.ReasonPeerAccess,
		ib.ReasonKeyEnded},
	{"access_flags", "the peer calls the request invalid", "access flags allow remote read, not remote write",
		ib.ReasonPeerInvalid, ib.ReasonQPAccess},
	{"too_long", "the peer calls the request invalid", "at least 100 bytes, its receive has room for 10",
		ib.ReasonPeerInvalid, ib.ReasonTooLong},
	{"receive_gone", "the peer could not carry the request out", "was deregistered by the application",
		ib.ReasonPeerFailed, ib.ReasonKeyEnded},
	{"own_key", "RDMA WRITE: no region or memory window has the key", "", ib.ReasonKey, ib.ReasonModified},
	{"own_right", "RDMA READ: the memory with key", "", ib.ReasonAccess, ib.ReasonModified},
	{"not_ready", "the peer had no receive posted, twice", "the peer was told to wait ", ib.ReasonPeerNotReady,
		ib.ReasonModified},
	{"cq_full", "", "", ib.ReasonNone, ib.ReasonModified},
	{"misaligned", "FETCH & ADD: the peer calls the request invalid", "is not a multiple of 8", ib.ReasonPeerInvalid,
		ib.ReasonAlignment},
	{"port_closed", "the peer's UDP port 4791 is closed", "", ib.ReasonUnreachable, ib.ReasonNone},
	{"silence", "was sent 8 times, and nothing came back", "", ib.ReasonSilence, ib.ReasonNone},
}

// TestWhy: a program in C learns from the library why a request has failed, at both ends, and from vendor_err; whoever
// runs it learns it from `goroced why`.
func TestWhy(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_why.c")
	h := newHost(t, nil)
	for _, c := range why {
		t.Run(c.name, func(t *testing.T) {
			p := h.start(t, "env", "GOROCE_DEBUG=1", goroced, "run", "--socket", h.socket, "--", program, c.name,
				ownAddr(t))
			out := p.ok(t)
			codes := fmt.Sprintf("vendor_err of a %#x", c.reasonA.VendorErr())
			if c.reasonB != ib.ReasonNone {
				codes += fmt.Sprintf(", of b %#x", c.reasonB.VendorErr())
			}
			for _, want := range []string{c.a, c.b, codes} {
				if !strings.Contains(out, want) {
					t.Errorf("got\n%s\nwant %q", out, want)
				}
			}
			said := h.start(t, goroced, "why", "--admin", h.dir+"/a").ok(t)
			of := fmt.Sprintf("of process %d", p.cmd.Process.Pid)
			if !strings.Contains(said, c.a) || !strings.Contains(said, of) {
				t.Errorf("`goroced why` says\n%s\nwant %q %s", said, c.a, of)
			}
		})
	}
}

// TestWhyRefused: GOROCE_DEBUG=1 names the limit, too, where the library refuses a call without asking the daemon.
func TestWhyRefused(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_rules.c")
	out := newHost(t, nil).run(t, "env", "GOROCE_DEBUG=1", program, "limits").ok(t)
	for _, want := range []string{
		"ibv_create_qp: max_send_wr is ", "ibv_create_qp: max_recv_wr is ", "ibv_create_qp: max_send_sge is ",
		"ibv_create_qp: max_recv_sge is ", "ibv_create_qp: max_inline_data is 1048576; allowed: at most 512",
		"ibv_create_srq: max_wr is ", "ibv_create_srq: max_sge is ", "ibv_modify_srq: max_wr is ",
		"ibv_create_cq: cqe is ", "ibv_resize_cq: cqe is ", "max_qp_wr of the device", "max_cqe of the device",
		"max_srq_sge of the device",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s\nwant %q", out, want)
		}
	}
}
