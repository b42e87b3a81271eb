package localpg

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// childAttributes puts a child into its own process group, so that a terminal's Ctrl-C reaches only
// us, and has the kernel send it onDeath when the thread that started it ends. See startProcess for
// what that asks of the caller.
func childAttributes(a account, onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath, Credential: a.credential()}
}

// commandLine returns the arguments of a process, none when it is gone or a zombie. Unlike the
// links under /proc they can be read without rights over the process, which root in a container
// does not have over other users' ones.
func commandLine(pid int) []string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(raw) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
}
