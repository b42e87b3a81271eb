package localpg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// setupHome creates a cluster without a server and returns it with its options.
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
	o.Lock.Release() // as if its Everpost had died without the kernel signalling the server

	var logged strings.Builder
	lock, err := LockDir(t.Context(), o.Dir, slog.New(slog.NewTextHandler(&logged, nil)))
	require.NoError(t, err)
	defer lock.Release()
	<-server.done
	server.flushOutput()
	require.NoError(t, server.err, "it was stopped by a signal, not killed")
	require.Contains(t, logged.String(), fmt.Sprintf("pid=%d", server.cmd.Process.Pid))
	require.False(t, exists(filepath.Join(h.dir, "postmaster.pid")))
}

// startOtherProgram starts a program that is no server, as the database's user: a server
// ignores processes of other users.
func startOtherProgram(t *testing.T, a account, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = childAttributes(a, syscall.SIGKILL)
	runtime.LockOSThread() // see startProcess
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		runtime.UnlockOSThread()
	})
	return cmd
}

// writeLocks writes the lock files that a dead server leaves behind.
func writeLocks(t *testing.T, h home, pid string) {
	t.Helper()
	text := fmt.Sprintf("%s\n%s\n1700000000\n5432\n%s\n\n0 0\nready   \n", pid, h.dir, h.dir)
	for _, name := range []string{postmasterFile, socketLockFile} {
		_ = os.Remove(filepath.Join(h.dir, name))
		require.NoError(t, writeOwned(h.dir, name, text, h.account))
	}
}

// requireServes launches a server and ends it.
func requireServes(t *testing.T, h home, o Options) {
	t.Helper()
	begun := time.Now()
	server, err := h.launch(t.Context(), o, h.dir)
	require.NoError(t, err)
	require.Less(t, time.Since(begun), orphanGrace, "no wait for another process")
	server.endNow()
	server.flushOutput()
}

// The id in a lock file now belongs to another process of the database's user.
func TestProcessIDOfAnotherProgram(t *testing.T) {
	t.Parallel()
	h, o := setupHome(t)
	sleeping := startOtherProgram(t, h.account, "600")
	writeLocks(t, h, strconv.Itoa(sleeping.Process.Pid))

	requireServes(t, h, o)
	require.NoError(t, sleeping.Process.Signal(syscall.Signal(0)), "a otherProgram is left alone")
}

// The id belongs to the server of another cluster: this cluster is a copy of that one's
// directory.
func TestProcessIDOfAnotherServer(t *testing.T) {
	t.Parallel()
	other, otherOptions := setupHome(t)
	running, err := other.launch(t.Context(), otherOptions, other.dir)
	require.NoError(t, err)
	defer func() { running.endNow(); running.flushOutput() }()
	h, o := setupHome(t)
	writeLocks(t, h, strconv.Itoa(running.cmd.Process.Pid))

	require.NoError(t, endOrphans(t.Context(), h.dir, o.Log))
	requireServes(t, h, o)
	select {
	case <-running.done:
		require.Fail(t, "the other server is left alone")
	default:
	}
}

// The lock files have no valid id, for example because a server died while it wrote them.
func TestLockFilesWithoutID(t *testing.T) {
	t.Parallel()
	h, o := setupHome(t)
	for _, text := range []string{"", "rubbish"} {
		writeLocks(t, h, "1")
		for _, name := range []string{postmasterFile, socketLockFile} {
			require.NoError(t, writeOwned(h.dir, name, text, h.account))
		}
		requireServes(t, h, o)
	}
	writeLocks(t, h, "1") // init
	requireServes(t, h, o)
	target := filepath.Join(o.Dir, "target")
	require.NoError(t, os.WriteFile(target, []byte("1\n"), 0o600))
	for _, name := range []string{postmasterFile, socketLockFile} {
		require.NoError(t, os.Symlink(target, filepath.Join(h.dir, name)))
	}
	requireServes(t, h, o)
	require.FileExists(t, target)
}

func TestLocksOfARunningServerStay(t *testing.T) {
	t.Parallel()
	h, o := setupHome(t)
	server, err := h.launch(t.Context(), o, h.dir)
	require.NoError(t, err)
	defer func() { server.endNow(); server.flushOutput() }()
	for _, text := range []string{"", strconv.Itoa(server.cmd.Process.Pid)} { // the server runs, whatever the file contains
		if text == "" {
			require.NoError(t, writeOwned(h.dir, socketLockFile, text, h.account))
		}
		require.NoError(t, clearLocks(t.Context(), h.dir, h.dir, o.Log))
		require.FileExists(t, filepath.Join(h.dir, postmasterFile))
		require.FileExists(t, filepath.Join(h.dir, socketLockFile))
	}
	require.True(t, postmaster{pid: server.cmd.Process.Pid}.serves(h.dir))
	require.False(t, postmaster{pid: server.cmd.Process.Pid}.serves(o.Dir), "of this cluster, not of that")
}

// A process name proves nothing: a cluster's server belongs to the owner of the cluster.
func TestProcessNamesAreNotTrusted(t *testing.T) {
	t.Parallel()
	h, o := setupHome(t)
	owner := ownerOfPath(h.dir)
	for name, c := range map[string]struct {
		program program
		want    occupant
	}{
		"its server":         {program{uid: owner, args: []string{"/usr/lib/postgresql/15/bin/postgres", "-D", h.dir}}, server},
		"in one word":        {program{uid: owner, args: []string{"postgres", "-D" + h.dir, "-p", "1"}}, server},
		"another's":          {program{uid: owner, args: []string{"postgres", "-D", o.Dir}}, otherProgram},
		"another user's":     {program{uid: owner + 1, args: []string{"postgres", "-D", h.dir}}, otherProgram},
		"a child of it":      {program{uid: owner, args: []string{"postgres: checkpointer "}}, otherProgram},
		"a mailer":           {program{uid: owner, args: []string{"postfix", "-D", h.dir}}, otherProgram},
		"the kernel's":       {program{uid: owner}, otherProgram},
		"single-user mode":   {program{uid: owner, args: []string{"postgres", "--single", "-D", h.dir, "postgres"}}, singleUser},
		"directory not said": {program{pid: -1, uid: owner, args: []string{"postgres"}}, unknown},
	} {
		require.Equal(t, c.want, c.program.roleIn(h.dir), name)
	}
}

// A path in a file of the database's account can only lead to a directory that this package
// created.
func TestRemoveSocketDir(t *testing.T) {
	t.Parallel()
	cluster := t.TempDir()
	victim := t.TempDir()
	own, err := os.MkdirTemp("", socketDirPrefix) //nolint:usetesting // like socketDir
	require.NoError(t, err)
	link := own + "-link"
	require.NoError(t, os.Symlink(victim, link))
	t.Cleanup(func() { _ = os.Remove(link) })
	rel, err := filepath.Rel(os.TempDir(), victim)
	require.NoError(t, err)
	for _, dir := range []string{victim, own + "/../" + rel, filepath.Join(os.TempDir(), socketDirPrefix) + "/../" + rel, link, ""} {
		removeSocketDir(dir, cluster)
		require.DirExists(t, victim, dir)
	}
	require.DirExists(t, own)
	removeSocketDir(own, cluster)
	require.NoDirExists(t, own)
}

// The account that runs the database can put anything into its directory. Nothing outside
// of it is written or read, and no read blocks.
func TestLinksInTheClusterAreNotFollowed(t *testing.T) {
	t.Parallel()
	h, o := setupHome(t)
	victim := filepath.Join(o.Dir, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("root:secret"), 0o600))
	hard := filepath.Join(o.Dir, "hard")
	require.NoError(t, os.WriteFile(hard, []byte("root:secret"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(h.dir, "pg_hba.conf")))
	require.NoError(t, os.Symlink(victim, filepath.Join(h.dir, "pg_hba.conf")))
	require.NoError(t, os.Symlink(victim, filepath.Join(h.dir, "pg_hba.conf.everpost")))
	require.NoError(t, os.Remove(filepath.Join(h.dir, "pg_ident.conf")))
	require.NoError(t, os.Link(hard, filepath.Join(h.dir, "pg_ident.conf")))
	requireServes(t, h, o)
	for _, path := range []string{victim, hard} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "root:secret", string(text))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.Geteuid(), ownerOf(info))
	}
	info, err := os.Lstat(filepath.Join(h.dir, "pg_hba.conf"))
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
	require.Equal(t, h.account.uid, ownerOf(info), "the server reads it")

	version := filepath.Join(h.dir, "PG_VERSION")
	require.NoError(t, os.Remove(version))
	require.NoError(t, os.Symlink(victim, version))
	_, err = clusterMajor(h.dir)
	require.ErrorContains(t, err, "it is a symbolic link")
	require.NoError(t, os.Remove(version))
	require.NoError(t, syscall.Mkfifo(version, 0o600))
	_, err = clusterMajor(h.dir) // without a wait for a writer
	require.ErrorContains(t, err, "not a regular file")
	require.NoError(t, os.Remove(version))
	require.NoError(t, os.WriteFile(version, []byte("root:secret"), 0o600))
	_, err = clusterMajor(h.dir)
	require.ErrorContains(t, err, "holds no number")
	require.NotContains(t, err.Error(), "secret")
}

func TestLockFileIsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("text"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, lockFile)))
	_, err := LockDir(t.Context(), dir, nil)
	require.ErrorContains(t, err, "it is a symbolic link")
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
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

func TestFind(t *testing.T) {
	t.Parallel()
	bin, err := find(t.Context(), searchDirs(t.Context()), "", 0)
	require.NoError(t, err)
	for _, program := range []string{"initdb", "postgres"} {
		require.NoError(t, exec.CommandContext(t.Context(), bin.path(program), "--version").Run())
	}
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
		{"the requested one", []string{good, newer}, 17, newer, ""},
		{"a release that is too old is used when requested", []string{good, old}, 9, old, ""},
		{"none", []string{empty, half, strange}, 0, "", ErrNotInstalled.Error()},
		{"only old", []string{old}, 0, "", "PostgreSQL 14 or newer is needed, found only 9 in " + old},
		{"another", []string{good, newer}, 15, "", "the database in /data/postgres was made by PostgreSQL 15, " +
			"found only PostgreSQL 16 in " + good + ", 17 in " + newer + ": install release 15, or move the data with pg_upgrade"},
	}
	for _, test := range tests {
		got, err := find(context.WithoutCancel(t.Context()), test.dirs, "/data/postgres", test.major)
		if test.err != "" {
			require.EqualError(t, err, test.err, test.name)
			continue
		}
		require.NoError(t, err, test.name)
		require.Equal(t, test.want, got.dir, test.name)
	}

	// On a busy machine a program may be there and not answer in time: that is said, and not that it is missing.
	busy := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(busy, name), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755))
	}
	_, err := find(t.Context(), []string{empty, busy}, "", 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, "look for PostgreSQL: "+busy+"/postgres --version has not answered within 5s: context deadline exceeded")
}
