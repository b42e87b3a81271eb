package localpg

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// childAttributes puts a child into its own process group, so that a terminal's Ctrl-C
// reaches only this process, and makes the kernel send onDeath to it when the thread that
// started it ends (see startProcess).
func childAttributes(a account, onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath, Credential: a.credential()}
}

// flagExiting is PF_EXITING (include/linux/sched.h): the process is ending and does not run
// its program any more.
const flagExiting = 0x4

// pendingKill is the bit of SIGKILL in the signal sets of /proc/<pid>/status.
const pendingKill = 1 << (syscall.SIGKILL - 1)

// lookUp describes a process; found is false when there is none. It returns an error when
// that cannot be determined: without /proc, or when /proc hides other users' processes
// (hidepid).
//
// It only reads files that need no permission on the process: root in a container may not
// have permissions on other users' processes.
func lookUp(pid int) (_ program, found bool, _ error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status") //nolint:gosec // a file of the kernel
	if err != nil {
		return program{}, false, absent(pid, err)
	}
	stat, err := os.ReadFile(dir + "/stat") //nolint:gosec // as above
	if err != nil {
		return program{}, false, absent(pid, err)
	}
	args, err := os.ReadFile(dir + "/cmdline") //nolint:gosec // as above
	if err != nil {
		return program{}, false, absent(pid, err)
	}
	p := program{pid: pid, uid: -1}
	if len(args) > 0 {
		p.args = strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case name == "Uid" && len(fields) > 1: // real, effective, …
			if p.uid, err = strconv.Atoi(fields[1]); err != nil {
				return program{}, false, fmt.Errorf("read %s/status: %w", dir, err)
			}
		case (name == "SigPnd" || name == "ShdPnd") && len(fields) == 1:
			set, err := strconv.ParseUint(fields[0], 16, 64)
			p.killed = p.killed || err == nil && set&pendingKill != 0
		}
	}
	p.dead = hasEnded(stat)
	return p, true, nil
}

// hasEnded reports from /proc/<pid>/stat whether a process is a zombie, or about to be one.
func hasEnded(stat []byte) bool {
	rest := stat[bytes.LastIndexByte(stat, ')')+1:] // the name before it may contain anything
	fields := strings.Fields(string(rest))          // state, ppid, pgrp, session, tty, tpgid, flags, …
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return strings.ContainsAny(fields[0], "ZXx") || err == nil && flags&flagExiting != 0
}

// absent returns lookUp's error when the process's files cannot be read: nil when there is
// no such process.
func absent(pid int, cause error) error {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return fmt.Errorf("look at process %d: %w", pid, err)
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return nil
	}
	return fmt.Errorf("look at process %d: %w", pid, cause) // it is hidden, or a new process with the same id
}

// processes lists the ids of all visible processes.
func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var ids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			ids = append(ids, pid)
		}
	}
	return ids
}

// workingDir returns the working directory of a process; a server's is its data directory.
// It is empty without permission on the process.
func workingDir(pid int) string {
	dir, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	if err != nil {
		return ""
	}
	return dir
}
