package localpg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// setupHome makes a cluster without a server, and returns it with the options it was made by.
func setupHome(t *testing.T) (home, Options) {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpg-test-") //nolint:usetesting // the directory above t.TempDir is closed to the database's user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	o, err := Options{Dir: dir, Unsafe: true}.withDefaults()
	require.NoError(t, err)
	o.Lock, err = LockDir(t.Context(), dir, nil)
	require.NoError(t, err)
	t.Cleanup(o.Lock.Release)
	h, err := prepare(t.Context(), o)
	require.NoError(t, err)
	return h, o
}

func TestOrphanIsStopped(t *testing.T) {
	t.Parallel()
	h, o := setupHome(t)
	server, err := h.launch(t.Context(), o, h.dir)
	require.NoError(t, err)
	o.Lock.Release() // as if its Everpost had died, and the kernel had not told the server

	var logged strings.Builder
	lock, err := LockDir(t.Context(), o.Dir, slog.New(slog.NewTextHandler(&logged, nil)))
	require.NoError(t, err)
	defer lock.Release()
	<-server.done
	server.drain()
	require.NoError(t, server.err, "it was asked to stop, not killed")
	require.Contains(t, logged.String(), fmt.Sprintf("pid=%d", server.cmd.Process.Pid))
	require.False(t, exists(filepath.Join(h.dir, "postmaster.pid")))
}

func TestProcessIDOfAStranger(t *testing.T) {
	t.Parallel()
	h, o := setupHome(t)
	stranger := exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, stranger.Start())
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	stale := filepath.Join(h.dir, "postmaster.pid")
	text := fmt.Sprintf("%d\n%s\n1700000000\n5432\n%s\n\n0 0\nready   \n", stranger.Process.Pid, h.dir, h.dir)
	require.NoError(t, os.WriteFile(stale, []byte(text), 0o600))

	require.NoError(t, endOrphan(t.Context(), h.dir, o.Log))
	require.NoError(t, stranger.Process.Signal(syscall.Signal(0)), "a stranger is left alone")
	server, err := h.launch(t.Context(), o, h.dir)
	require.NoError(t, err)
	server.endNow()
	server.drain()
}

func TestReadPostmaster(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text string
		want postmaster
		ok   bool
	}{
		{"ready", "17\n/d\n1\n5432\n/s\n\n 1 2\nready   \n", postmaster{pid: 17, socketDir: "/s", ready: true}, true},
		{"starting", "17\n/d\n1\n5432\n/s\n\n 1 2\nstarting\n", postmaster{pid: 17, socketDir: "/s"}, true},
		{"only a beginning", "17\n/d\n", postmaster{pid: 17}, true},
		{"empty", "", postmaster{}, false},
		{"rubbish", "x\n", postmaster{}, false},
		{"single-user mode", "-17\n/d\n", postmaster{pid: -17}, false},
		{"every process", "0\n", postmaster{}, false},
		{"init", "1\n", postmaster{pid: 1}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "postmaster.pid"), []byte(test.text), 0o600))
			got, ok := readPostmaster(dir)
			require.Equal(t, test.ok, ok)
			require.Equal(t, test.want, got)
		})
	}
	_, ok := readPostmaster(t.TempDir())
	require.False(t, ok)
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want int
	}{
		{"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", 15},
		{"postgres (PostgreSQL) 17.2", 17},
		{"postgres (PostgreSQL) 19beta1\n", 19},
		{"postgres (PostgreSQL) 9.6.24\n", 9},
		{"", 0},
		{"postgres (PostgreSQL)", 0},
		{"psql (PostgreSQL) 15.18", 0},
		{"postgres (PostgreSQL) 123456", 0},
	}
	for _, test := range tests {
		got, err := parseVersion(test.in)
		require.Equal(t, test.want, got, test.in)
		require.Equal(t, test.want == 0, err != nil, test.in)
	}
}

func TestPathMajor(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/9/bin": 9, "/usr/lib/postgresql/17/bin": 17, "/usr/pgsql-16/bin": 16,
		"/opt/homebrew/opt/postgresql@15/bin": 15, "/opt/homebrew/opt/postgresql/bin": 0, "/bin": 0,
	} {
		require.Equal(t, want, pathMajor(dir), dir)
	}
}

func TestFindChecksWhatItFinds(t *testing.T) {
	t.Parallel()
	fake := func(version string, programs ...string) string {
		dir := t.TempDir()
		for _, name := range programs {
			script := "#!/bin/sh\necho '" + version + "'\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
		}
		return dir
	}
	var (
		empty   = t.TempDir()
		half    = fake("postgres (PostgreSQL) 17.1", "postgres")
		strange = fake("hello", "postgres", "initdb")
		old     = fake("postgres (PostgreSQL) 9.6.24", "postgres", "initdb")
		good    = fake("postgres (PostgreSQL) 16.4", "postgres", "initdb")
		newer   = fake("postgres (PostgreSQL) 17.1", "postgres", "initdb")
	)
	tests := []struct {
		name  string
		dirs  []string
		major int
		want  string
		err   string
	}{
		{"the first that will do", []string{empty, half, strange, old, good, newer}, 0, good, ""},
		{"the one asked for", []string{good, newer}, 17, newer, ""},
		{"one too old is allowed when asked for", []string{good, old}, 9, old, ""},
		{"none", []string{empty, half, strange}, 0, "", ErrNotInstalled.Error()},
		{"only old", []string{old}, 0, "", "PostgreSQL 14 or newer is needed, found only 9 in " + old},
		{"another", []string{good, newer}, 15, "", "PostgreSQL 15 is needed, found only 16 in " + good + ", 17 in " + newer},
	}
	for _, test := range tests {
		got, err := find(context.WithoutCancel(t.Context()), test.dirs, test.major)
		if test.err != "" {
			require.EqualError(t, err, test.err, test.name)
			continue
		}
		require.NoError(t, err, test.name)
		require.Equal(t, test.want, got.dir, test.name)
	}
}
