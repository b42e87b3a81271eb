package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// noFiles lets parts open no more files and connections.
func noFiles(names ...string) injection {
	return func(ctx context.Context, s *scene) error {
		return s.limit(ctx, s.processes(names), "nofile", openFiles)
	}
}

// processes lists the processes that are parts now: a part may have been started again.
func (s *scene) processes(names []string) func() []int {
	return func() (ids []int) {
		for _, p := range s.parts(names) {
			ids = append(ids, p.process.Command.Process.Pid)
		}
		return ids
	}
}

// limit gives each process in the list its limit of a resource. Those in the list in the end, some of which may be new, get back the limit that the
// first one had, which must be the same for all of them.
func (s *scene) limit(ctx context.Context, list func() []int, resource string, limitOf func(id int) (string, error)) error {
	var before string
	return s.during(ctx, func() error {
		limited := 0
		for _, id := range list() {
			value, err := limitOf(id)
			if err != nil {
				continue // it has ended
			}
			soft, known := softLimit(ctx, id, resource)
			if !known {
				continue
			}
			if before == "" {
				before = soft
			}
			if err := setSoftLimit(ctx, id, resource, value); err != nil {
				return err
			}
			if now, known := softLimit(ctx, id, resource); known && now != soft {
				limited++
			}
		}
		if limited == 0 {
			return errors.New("no process could be limited")
		}
		return nil
	}, func() error {
		if before == "" {
			return nil
		}
		var all []error
		for range 2 { // a process that was forked during the first pass may have inherited the limit
			for _, id := range list() {
				all = append(all, setSoftLimit(ctx, id, resource, before))
			}
		}
		return errors.Join(all...)
	})
}

// openFiles is how many files a process has open: it gets no more.
func openFiles(id int) (string, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", id))
	if err != nil {
		return "", fmt.Errorf("read the files of process %d: %w", id, err)
	}
	return strconv.Itoa(len(open)), nil
}

// noMemory lets a part get no more memory than it has. If it ends because of it, it is started again.
func noMemory(name string) injection {
	return func(ctx context.Context, s *scene) error {
		p, begin := s.in.part(name), s.in.logSize()
		if err := s.limit(ctx, s.processes([]string{name}), "as", usedMemory); err != nil {
			return err
		}
		if err := p.awaitEndOrAnswer(ctx); err != nil {
			s.load.ledger.problemf("%v", err)
			p.process.Kill()
		}
		if p.process.Running() {
			s.window.missed = true
			return nil
		}
		log, err := s.in.logSince(begin)
		if err != nil {
			return err
		}
		if code := p.process.ExitCode(); !lackedMemory(code, log) {
			s.load.ledger.problemf("%s has ended with code %d, and not for lack of memory", name, code)
		}
		return restartDead(ctx, []*part{p})
	}
}

// lackedMemory reports whether a process may have ended because it got no memory: with a fatal error of Go's runtime, by a signal, or saying so. A
// panic would be a bug of ours.
func lackedMemory(code int, log []byte) bool {
	const fatalError, endedBySignal = 2, -1
	return !bytes.Contains(log, []byte("\npanic: ")) &&
		(code == fatalError || code == endedBySignal || bytes.Contains(log, []byte("cannot allocate memory")))
}

// mostWritten is what a file may hold on a full disk. What a process needs to say that it fails is less.
func mostWritten(int) (string, error) { return "8192", nil }

// oneProcess lets PostgreSQL's user start no more processes.
func oneProcess(int) (string, error) { return "1", nil }

// usedMemory is what a process has mapped: it gets no more.
func usedMemory(id int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", id))
	if err != nil {
		return "", fmt.Errorf("read the memory of process %d: %w", id, err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		return "", fmt.Errorf("read the memory of process %d: %w", id, err)
	}
	return strconv.Itoa(pages * os.Getpagesize()), nil
}

// limitPostgres gives each process of PostgreSQL a limit of a resource. With mostWritten, as if the disk were full, writes of the log of
// changes fail, and PostgreSQL restarts.
func limitPostgres(resource string, limitOf func(id int) (string, error)) injection {
	return func(ctx context.Context, s *scene) error {
		postmaster, err := s.in.postmaster()
		if err != nil {
			return err
		}
		list := func() []int { return append([]int{postmaster}, childrenOf(postmaster)...) } // it first: what it forks later inherits its limit
		return s.limit(ctx, list, resource, limitOf)
	}
}

// softLimit reads a limit of a process; false if there is no such process any more.
func softLimit(ctx context.Context, id int, resource string) (limit string, known bool) {
	text, err := prlimit(ctx, id, "--"+resource, "--output", "SOFT", "--noheadings", "--raw")
	return text, err == nil && text != ""
}

// setSoftLimit sets a limit of a process, if it still runs.
func setSoftLimit(ctx context.Context, id int, resource, value string) error {
	text, err := prlimit(ctx, id, "--"+resource+"="+value+":")
	if _, runs := softLimit(ctx, id, resource); err != nil && runs {
		return fmt.Errorf("limit %s of process %d to %s: %w: %s", resource, id, value, err, text)
	}
	return nil
}

// prlimit is a program of util-linux. It runs as the process's user: not every root may change the limits of others.
func prlimit(ctx context.Context, id int, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "prlimit", append([]string{"--pid", strconv.Itoa(id)}, args...)...)
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", id)); err == nil && os.Getuid() == 0 {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		}
	}
	text, err := command.CombinedOutput()
	return strings.TrimSpace(string(text)), err
}
