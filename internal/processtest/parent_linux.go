package processtest

import "syscall"

// endWithParent lets no process outlive this one.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
