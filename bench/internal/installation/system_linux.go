package installation

import "syscall"

// childAttributes puts the installation into a process group of its own, so that Ctrl-C
// reaches only us, and has the kernel tell it to stop when we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
