package serve

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/tools/config"
)

// permitted refuses a configuration that needs a privilege which the process lacks.
func permitted(c *config.Config) error {
	if !c.OtherProcesses {
		return nil
	}
	has, err := effective(unix.CAP_SYS_PTRACE)
	if err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if !has {
		return &config.Error{Key: "memory.other_processes", Value: true, Err: config.ErrValue,
			Allowed: "false; true only for a daemon with CAP_SYS_PTRACE, which `setcap cap_sys_ptrace+ep` or AmbientCapabilities= gives"}
	}
	return nil
}

// effective reports whether the process has a capability.
func effective(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, err
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}
