//go:build !linux

package localpg

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttributes puts a child into its own process group, so that a terminal's Ctrl-C reaches only
// us. Only Linux can signal a child when its parent dies: elsewhere LockDir finds the orphan.
func childAttributes(a account, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: a.credential()}
}

// commandLine returns the arguments of a process as ps(1) tells them, none when it is gone. A
// directory with spaces comes apart, and is then not recognised.
func commandLine(pid int) []string {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}
