package installation

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	const rest = " S 42 1 1 0 -1 4194560 100 200 0 0 150 50 300 100 20 0 1 0 12345"
	for _, name := range []string{"postgres", "a b", "a) S 7 (b", ")", "("} {
		p, ok := parseStat("17 (" + name + ")" + rest + " 1 2 3\n")
		require.True(t, ok, name)
		require.Equal(t, processStat{parent: 42, own: 2, ended: 4}, p, name)
	}
	for _, bad := range []string{"", "17 (x) S 42", "17 (x) S y 1 1 0 -1 0 0 0 0 0 1 1 1 1"} {
		_, ok := parseStat(bad)
		require.False(t, ok, bad)
	}
}

// TestUsage: the usage of a child, and of its child, is counted while they run and after
// they have ended.
func TestUsage(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		_, ok := UsageOf(os.Getpid())
		require.False(t, ok)
		t.Skip("there is no /proc here")
	}
	const burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
	command := exec.CommandContext(t.Context(), "sh", "-c", "sh -c '"+burn+"; echo; read line; "+burn+"'; :") // two processes; the second works
	input, err := command.StdinPipe()
	require.NoError(t, err)
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	before, ok := UsageOf(os.Getpid())
	require.True(t, ok)
	require.NoError(t, command.Start())
	_, err = output.Read(make([]byte, 1))
	require.NoError(t, err)
	during, ok := UsageOf(os.Getpid())
	require.True(t, ok)
	once := during.Minus(before).Below
	require.Greater(t, once, 0.02, "the loop takes longer")
	_, err = input.Write([]byte("\n"))
	require.NoError(t, err)
	require.NoError(t, command.Wait())
	after, ok := UsageOf(os.Getpid())
	require.True(t, ok)
	require.Greater(t, after.Minus(during).Below, once/4, "the second time takes as long")
	require.GreaterOrEqual(t, after.Machine, after.Process)

	_, ok = UsageOf(1 << 30)
	require.False(t, ok, "there is no such process")
}

func TestMemory(t *testing.T) {
	t.Parallel()
	now, most, ok := MemoryOf(os.Getpid())
	if _, err := os.Stat("/proc/self/status"); err != nil {
		require.False(t, ok)
		return
	}
	require.True(t, ok)
	require.Greater(t, now, 1.0)
	require.Less(t, now, 1e6, "MiB")
	require.GreaterOrEqual(t, most, now)
}
