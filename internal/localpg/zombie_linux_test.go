package localpg_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/everpost/everpost/internal/localpg"
)

// lazyInit, when set, turns the test binary into an init process that reaps no children: it
// starts the helper process and becomes the parent of its orphans.
const lazyInit = "LOCALPG_TEST_LAZY_INIT"

// beLazyInit runs until its input ends.
func beLazyInit() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Env = append(os.Environ(), lazyInit+"=")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // stays open
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startPatience is the timeout of a start that first creates the cluster, on a busy
// machine.
const startPatience = time.Minute

// startUnderLazyInit starts the helper process under a lazy init and returns the ids of
// both and of its PostgreSQL.
func startUnderLazyInit(t *testing.T, dir string) (reaper, everpost, postgres int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperDir+"="+dir, lazyInit+"=1")
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, stdoutEnd, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, stdout.Close()) }()
	cmd.Stdout = stdoutEnd
	err = cmd.Start()
	require.NoError(t, errors.Join(err, stdoutEnd.Close()))
	// The init has the write end as well and does not end when the start fails.
	require.NoError(t, stdout.SetReadDeadline(time.Now().Add(startPatience)))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscanf(line, "ready %d\n", &postgres)
	require.NoError(t, err)
	children := childrenOf(t, cmd.Process.Pid)
	require.Len(t, children, 1)
	return cmd.Process.Pid, children[0], postgres
}

// childrenOf lists the children of a process, zombies included.
func childrenOf(t *testing.T, parent int) (children []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[1] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

// killAll stops all processes with SIGKILL at once: none sees another one end first.
func killAll(t *testing.T, pids ...int) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil {
				require.ErrorIs(t, err, syscall.ESRCH)
			}
		}
	}
}

// Everything was killed at once and no zombie is reaped: their ids are in both lock files,
// and the kernel still has the processes.
func TestStartOverZombies(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	cluster := filepath.Join(dir, "postgres")
	for range 3 {
		_, everpost, postgres := startUnderLazyInit(t, dir)
		killAll(t, append([]int{everpost, postgres}, childrenOf(t, postgres)...)...)
		eventuallyDead(t, postgres)
		require.NoError(t, syscall.Kill(postgres, 0), "it is a zombie")
		for _, name := range []string{"postmaster.pid", ".s.PGSQL.5432.lock"} {
			text, err := os.ReadFile(filepath.Join(cluster, name))
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(text), strconv.Itoa(postgres)+"\n"), "%s: %s", name, text)
		}
	}
	require.Equal(t, 1, queryInt(t, start(t, localpg.Options{Dir: dir}), "SELECT 1"))
}

// A start succeeds while the killed processes are still ending.
func TestStartWhileKilledProcessesEnd(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	for range 5 {
		_, everpost, postgres := startUnderLazyInit(t, dir)
		killAll(t, append([]int{everpost, postgres}, childrenOf(t, postgres)...)...)
	}
	require.Equal(t, 1, queryInt(t, start(t, localpg.Options{Dir: dir}), "SELECT 1"))
}

// The kernel releases a killed holder's lock a moment later: LockDir waits for it.
func TestLockOfAProcessThatIsDying(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	for range 5 {
		_, everpost, postgres := startUnderLazyInit(t, dir)
		killAll(t, everpost) // the kernel signals PostgreSQL, which may still be stopping
		lock, err := localpg.LockDir(t.Context(), dir, nil)
		require.NoError(t, err)
		require.False(t, alive(postgres))
		lock.Release()
	}
}

// LockDir does not wait for a running holder.
func TestLockOfARunningProcess(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	_, everpost, _ := startUnderLazyInit(t, dir)
	begun := time.Now()
	_, err := localpg.LockDir(t.Context(), dir, nil)
	require.EqualError(t, err, fmt.Sprintf("data directory %s is in use by another everpost (pid %d)", dir, everpost))
	require.Less(t, time.Since(begun), 5*time.Second)
}
