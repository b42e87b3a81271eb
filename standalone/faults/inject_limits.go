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
		var ids []int
		for _, p := range s.parts(names) {
			ids = append(ids, p.process.Command.Process.Pid)
		}
		return s.limitFiles(ctx, ids)
	}
}

// noFilesOfPostgres lets PostgreSQL's processes open no more files.
func noFilesOfPostgres(ctx context.Context, s *scene) error {
	postmaster, err := s.in.postmaster()
	if err != nil {
		return err
	}
	return s.limitFiles(ctx, append(childrenOf(postmaster), postmaster))
}

func (s *scene) limitFiles(ctx context.Context, ids []int) error {
	before := map[int]string{}
	return s.during(ctx, func() error {
		for _, id := range ids {
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", id))
			if err != nil {
				continue // it has ended
			}
			limit, known := softLimit(ctx, id, "nofile")
			if !known {
				continue
			}
			before[id] = limit
			if err := setSoftLimit(ctx, id, "nofile", strconv.Itoa(len(open))); err != nil {
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
			all = append(all, setSoftLimit(ctx, id, "nofile", limit))
		}
		return errors.Join(all...)
	})
}

// mostWritten is what a file may hold on a full disk. What a process needs to say that it fails is less.
const mostWritten = "8192"

// fillDisk lets PostgreSQL extend no file, as if the disk were full. Writes of the log of changes fail, and PostgreSQL restarts.
func fillDisk(ctx context.Context, s *scene) error {
	postmaster, err := s.in.postmaster()
	if err != nil {
		return err
	}
	limit := func(value string) func() error {
		return func() error {
			var all []error
			for _, id := range append(childrenOf(postmaster), postmaster) {
				all = append(all, setSoftLimit(ctx, id, "fsize", value))
			}
			return errors.Join(all...)
		}
	}
	return s.during(ctx, func() error {
		err := limit(mostWritten)()
		if now, _ := softLimit(ctx, postmaster, "fsize"); err == nil && now != mostWritten {
			return errors.New("PostgreSQL could not be limited")
		}
		return err
	}, limit("unlimited"))
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
