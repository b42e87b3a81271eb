//go:build !linux

package processtest

import "syscall"

// endWithParent does nothing here: only Linux tells a child that its parent has died.
func endWithParent() *syscall.SysProcAttr { return nil }
