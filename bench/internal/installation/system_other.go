//go:build !linux

package installation

import "syscall"

// childAttributes puts the installation into a process group of its own, so that Ctrl-C
// reaches only us.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
