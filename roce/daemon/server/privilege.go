package server

import (
	"fmt"
	"os"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// Linux asks whether the calling process has a capability. A peer's credentials have none
// (SO_PEERCRED), and those that /proc shows may be another program's, as a process can
// change; so root and the daemon's own user stand for them.

// privileged reports whether that user may do what the kernel keeps for capable processes.
func privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// denied is what a client hears that is not privileged; nil for others.
func (c *session) denied(op abi.Op, attr, value, allowed string) error {
	if c.srv.privileged(c.who.Uid) {
		return nil
	}
	return ib.Refuse(op.String(), attr, value,
		fmt.Sprintf("%s for user %d; others are for root and the daemon's own user", allowed, c.who.Uid),
		abi.ErrPermission)
}

// Q_Keys with the high bit are privileged (IBTA 3.5.3): whoever receives such a datagram
// may trust its sender. A request takes them from its QP only (10.2.5), so to keep them
// from the QP is enough. Linux has CAP_NET_RAW for it (uverbs_cmd.c modify_qp).
const privilegedQKey = 1 << 31

// mayHave refuses Q_Keys that are not the client's to have.
func (c *session) mayHave(q *roce.QP, a *ib.QPAttr, mask ib.QPAttrMask) error {
	if mask&ib.AttrQKey == 0 || a.QKey&privilegedQKey == 0 {
		return nil
	}
	return c.denied(abi.OpModifyQP, "QKey", fmt.Sprintf("%#x", a.QKey), fmt.Sprintf("less than %#x", privilegedQKey))
}
