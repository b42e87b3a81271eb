//go:build !linux

package installation

import "syscall"

// childAttributes puts the installation into its own process group, so that Ctrl-C reaches
// only this process.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
