package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// lazyInit names the binary in the environment of a process that is to start it as an init would that
// collects none of the dead.
const lazyInit = "EVERPOST_TEST_LAZY_INIT"

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER, see prctl(2).
const prSetChildSubreaper = 36

// beLazyInit starts the program with its own arguments, and is the parent of all that it leaves behind.
func beLazyInit(program string) int {
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); failed != 0 {
		fmt.Fprintln(os.Stderr, failed)
		return 1
	}
	runtime.LockOSThread() // the parent whose death ends the child is a thread
	command := exec.CommandContext(context.Background(), program, os.Args[1:]...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	wait := make(chan os.Signal, 1)
	signal.Notify(wait, syscall.SIGTERM)
	<-wait
	return 0
}

// killBelow sends SIGKILL to all descendants of a process at once, so that none sees another one die before. It returns their ids.
func killBelow(t *testing.T, parent int) (killed []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	below := map[int]bool{parent: true}
	for grown := true; grown; {
		grown = false
		for _, entry := range entries {
			id, err := strconv.Atoi(entry.Name())
			if err == nil && !below[id] && below[parentOf(id)] {
				below[id], grown = true, true
				killed = append(killed, id)
			}
		}
	}
	for _, number := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, id := range killed {
			if err := syscall.Kill(id, number); err != nil {
				require.ErrorIs(t, err, syscall.ESRCH)
			}
		}
	}
	return killed
}

// Everything is killed at once and started again at once, while the dead processes are zombies that are never reaped. An event is accepted
// after each start, and all are delivered.
func TestKilledAtOnceAndStartedAtOnce(t *testing.T) {
	t.Parallel()
	lives := 4
	if os.Getenv("EVERPOST_TEST_LONG") != "" {
		lives = 25
	}
	self, err := os.Executable()
	require.NoError(t, err)
	in := ownHome(t)
	in.program, in.env = self, in.env.With(settings{lazyInit: binary})
	r := newReceiver(t)
	var (
		b   *bundle
		ids []string
	)
	for life := range lives {
		require.NoError(t, in.start(contextFor(t, startPatience)), "life %d", life)
		reaper := in.process
		t.Cleanup(reaper.Kill)
		if b == nil {
			b = newBundle(t, in, in.client(), "acme")
			b.endpoint(r, "/hook", nil)
		}
		b.client = in.client()
		e, _ := b.postOne("order.paid", `{}`)
		ids = append(ids, e.ID)
		postmaster := in.postmaster(t)
		require.Contains(t, killBelow(t, reaper.Command.Process.Pid), postmaster)
		for _, lock := range []string{"postmaster.pid", ".s.PGSQL.5432.lock"} {
			require.FileExists(t, filepath.Join(in.data, "postgres", lock), "it had no time to remove it")
		}
		in.http.CloseIdleConnections()
	}
	in.program = ""
	delete(in.env, lazyInit)
	in.restart(t)
	in.requireOneServer(t)
	b.client = in.client()
	b.allDelivered(contextFor(t, longRecovery), r, ids)
}
