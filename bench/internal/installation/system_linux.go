package installation

import "syscall"

// childAttributes puts the installation into its own process group, so that Ctrl-C reaches
// only this process, and makes the kernel send it SIGTERM when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
