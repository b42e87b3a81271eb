package main

import (
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

func (s *scene) processes(names []string) (ids []int) {
	for _, p := range s.parts(names) {
		ids = append(ids, p.process.Command.Process.Pid)
	}
	return ids
}

// noFilesOfPostgres lets PostgreSQL's processes open no more files.
func noFilesOfPostgres(ctx context.Context, s *scene) error {
	postmaster, err := s.in.postmaster()
	if err != nil {
		return err
	}
	return s.limit(ctx, append(childrenOf(postmaster), postmaster), "nofile", openFiles)
}

// limit gives each process its limit of a resource.
func (s *scene) limit(ctx context.Context, ids []int, resource string, of func(id int) (string, error)) error {
	before := map[int]string{}
	return s.during(ctx, func() error {
		for _, id := range ids {
			value, err := of(id)
			if err != nil {
				continue // it has ended
			}
			limit, known := softLimit(ctx, id, resource)
			if !known {
				continue
			}
			before[id] = limit
			if err := setSoftLimit(ctx, id, resource, value); err != nil {
				return err
			}
		}
		if len(before) == 0 {
			return errors.New("no process could be limited")
		}
		return nil
	}, func() error {
		var all []error
		for id, limit := range before {
			all = append(all, setSoftLimit(ctx, id, resource, limit))
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
		s.window.missed = p.process.Running()
		if !s.window.missed && !s.in.logged(begin, "cannot allocate memory", "out of memory") {
			s.load.ledger.problemf("%s has ended, and not for lack of memory", name)
		}
		return restartDead(ctx, []*part{p})
	}
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
func limitPostgres(resource string, limit func(id int) (string, error)) injection {
	return func(ctx context.Context, s *scene) error {
		postmaster, err := s.in.postmaster()
		if err != nil {
			return err
		}
		each := func(f func(id int) error) error {
			var all []error
			for _, id := range append(childrenOf(postmaster), postmaster) {
				all = append(all, f(id))
			}
			return errors.Join(all...)
		}
		before, known := softLimit(ctx, postmaster, resource)
		if !known {
			return errors.New("PostgreSQL's limits could not be read")
		}
		return s.during(ctx, func() error {
			err := each(func(id int) error {
				value, err := limit(id)
				if err != nil {
					return nil //nolint:nilerr // it has ended
				}
				return setSoftLimit(ctx, id, resource, value)
			})
			if now, _ := softLimit(ctx, postmaster, resource); err == nil && now == before {
				return errors.New("PostgreSQL could not be limited")
			}
			return err
		}, func() error {
			return each(func(id int) error { return setSoftLimit(ctx, id, resource, before) })
		})
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
