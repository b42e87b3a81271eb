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

// childAttributes puts a child into its own process group, so that a terminal's Ctrl-C reaches only
// us, and has the kernel send it onDeath when the thread that started it ends. See startProcess for
// what that asks of the caller.
func childAttributes(a account, onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath, Credential: a.credential()}
}

// flagExiting is PF_EXITING (include/linux/sched.h): the process is on its way out and runs no more of
// its program.
const flagExiting = 0x4

// pendingKill is the bit of SIGKILL in the sets of /proc/<pid>/status.
const pendingKill = 1 << (syscall.SIGKILL - 1)

// lookUp tells about a process; found is false when there is none. An error means that it cannot be
// known: without /proc, or with one that hides other processes (hidepid).
//
// What is read can be read without rights over the process, which root in a container does not have
// over other users' ones.
func lookUp(pid int) (_ program, found bool, _ error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status") //nolint:gosec // the kernel's own
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

// hasEnded reports whether a process is a zombie, or about to be one, by its /proc/<pid>/stat.
func hasEnded(stat []byte) bool {
	rest := stat[bytes.LastIndexByte(stat, ')')+1:] // the name before it may hold anything
	fields := strings.Fields(string(rest))          // state, ppid, pgrp, session, tty, tpgid, flags, …
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return strings.ContainsAny(fields[0], "ZXx") || err == nil && flags&flagExiting != 0
}

// absent is the answer when nothing can be read of a process: nil when there is none.
func absent(pid int, cause error) error {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return fmt.Errorf("look at process %d: %w", pid, err)
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return nil
	}
	return fmt.Errorf("look at process %d: %w", pid, cause) // it is hidden, or another one that has just begun
}

// processes lists the ids of the processes that can be seen.
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

// workingDir returns the directory that a process is in; a server is in its data directory. It is
// empty without rights over the process.
func workingDir(pid int) string {
	dir, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	if err != nil {
		return ""
	}
	return dir
}
