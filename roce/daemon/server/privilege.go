package server

import (
	"fmt"
	"os"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// Linux checks whether the calling process has a capability. A peer's credentials (SO_PEERCRED)
// contain no capabilities, and /proc may show those of another program, if the process has
// executed one since. So the daemon checks for root or its own user instead, or with
// Options.NoAdministrator gives nobody what takes a capability.

// privileged reports whether that user may do what the kernel allows processes with capabilities.
func privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// denied returns the error for a client that is not privileged; nil for others.
func (c *session) denied(op abi.Op, attr, value, allowed string) error {
	if c.srv.privileged(c.who.Uid) {
		return nil
	}
	return driver.Refuse(op.String(), attr, value,
		fmt.Sprintf("%s for user %d; others are for root and the daemon's own user", allowed, c.who.Uid),
		abi.ErrPermission)
}

// Q_Keys with the high bit are privileged (IBTA 3.5.3): the receiver of such a datagram may trust
// its sender. A send request can take one from its QP only (10.2.5), so it is enough to refuse
// them in Modify. Linux requires CAP_NET_RAW for that (uverbs_cmd.c modify_qp).
const privilegedQKey = 1 << 31

// mayHave refuses privileged Q_Keys to clients that are not privileged.
func (c *session) mayHave(a *ib.QPAttr, mask ib.QPAttrMask) error {
	if mask&ib.AttrQKey == 0 || a.QKey&privilegedQKey == 0 {
		return nil
	}
	return c.denied(abi.OpModifyQP, "QKey", fmt.Sprintf("%#x", a.QKey), fmt.Sprintf("less than %#x", privilegedQKey))
}
