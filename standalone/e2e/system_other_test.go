//go:build !linux

package e2e_test

import "syscall"

// endWithParent does nothing here: only Linux tells a child that its parent has died.
func endWithParent() *syscall.SysProcAttr { return nil }

// serversOf cannot be known here.
func serversOf(string) (ids []int, known bool) { return nil, false }

// parentOf cannot be known here.
func parentOf(int) int { return 0 }
