package server

import (
	"fmt"

	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// checkSender refuses a message unless the process that has connected has sent it. A session has the rights of that
// process: its user, its memory. A descriptor of the connection gives no rights, to a child that has inherited it for
// example. Processes that the kernel does not show here all have number 0; only their users tell them apart. The
// kernel fills in who sends, unless a privileged sender names another process (SCM_CREDENTIALS, unix(7)).
func (c *session) checkSender(m *message) error {
	s := m.sender
	switch {
	case s == nil:
		return fmt.Errorf("%v: the kernel does not tell who sends: %w", m.Op, abi.ErrPermission)
	case s.Pid == 0 && m.Op == abi.OpHello:
		return nil // sent before the server was there to ask, which Linux 6.16 does not tell; a hello gives no rights
	case s.Pid == c.who.Pid && (s.Pid != 0 || s.Uid == c.who.Uid) && !c.pidfd.ended():
		return nil
	}
	if !c.told {
		c.told = true
		c.srv.log.Warn("requests of another process on the connection of a client are refused", "pid", c.who.Pid,
			"uid", c.who.Uid, "sender", s.Pid, "sender_uid", s.Uid)
	}
	return driver.Refuse(m.Op.String(), "sender", fmt.Sprintf("process %d of user %d", s.Pid, s.Uid),
		fmt.Sprintf("process %d, which has connected; each process has to connect itself", c.who.Pid),
		abi.ErrPermission)
}
