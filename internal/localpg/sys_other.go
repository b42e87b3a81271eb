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

// childAttributes puts a child into its own process group, so that a terminal's Ctrl-C reaches only
// us. Only Linux can signal a child when its parent dies: elsewhere LockDir finds the orphan.
func childAttributes(a account, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: a.credential()}
}

// lookUp tells about a process as ps(1) does; found is false when there is none. A data directory
// with spaces comes apart, and is then not recognised.
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

// workingDir is not known.
func workingDir(int) string { return "" }
