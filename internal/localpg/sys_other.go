//go:build !linux

package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttributes puts a child into its own process group, so that a terminal's Ctrl-C
// reaches only this process. Only Linux can signal a child when its parent dies: on other
// systems LockDir finds the orphan.
func childAttributes(a account, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: a.credential()}
}

// lookUp describes a process with ps(1); found is false when there is none. A data
// directory with spaces in its path is not recognised.
func lookUp(pid int) (_ program, found bool, _ error) {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "uid=,stat=,command=", "-p", strconv.Itoa(pid)).Output()
	fields := strings.Fields(string(out))
	if len(fields) < 2 {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return program{}, false, nil
		}
		return program{}, false, fmt.Errorf("look at process %d: %w", pid, errors.Join(errors.New("ps tells nothing"), err))
	}
	p := program{pid: pid, args: fields[2:], dead: strings.HasPrefix(fields[1], "Z")}
	if p.uid, err = strconv.Atoi(fields[0]); err != nil {
		return program{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return p, true, nil
}

// processes lists the ids of all processes.
func processes() []int {
	out, err := exec.CommandContext(context.Background(), "ps", "-axo", "pid=").Output()
	if err != nil {
		return nil
	}
	var ids []int
	for field := range bytes.FieldsSeq(out) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			ids = append(ids, pid)
		}
	}
	return ids
}

// workingDir is not available on this platform.
func workingDir(int) string { return "" }
