package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
)

// ownProfile is a profile of this process under load.
func ownProfile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cpu.pprof")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, pprof.StartCPUProfile(file))
	for begun := cpuTime(t); cpuTime(t)-begun < 300*time.Millisecond; {
		sha256.Sum256(make([]byte, 1<<16))
	}
	pprof.StopCPUProfile()
	require.NoError(t, file.Close())
	return path
}

func cpuProfile(t *testing.T, path string) *profile.Profile {
	t.Helper()
	p, err := readProfile(path)
	require.NoError(t, err)
	return p
}

// cpuTime is the CPU time of this process: on a busy machine it gets few samples.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// forBuilds requires that a profile contains what a build uses, and no file names.
func forBuilds(t *testing.T, p *profile.Profile, functions ...string) {
	t.Helper()
	require.NoError(t, p.CheckValid())
	require.Empty(t, p.Mapping)
	require.Empty(t, p.Comments)
	var names strings.Builder
	lines := 0
	for _, f := range p.Function {
		require.Empty(t, f.Filename, f.Name)
		names.WriteString(f.Name + "\n")
	}
	for _, l := range p.Location {
		require.Zero(t, l.Address)
		for _, line := range l.Line {
			if line.Line > 0 && line.Function.StartLine > 0 {
				lines++
			}
		}
	}
	require.Positive(t, lines, "a line number within its function identifies a call")
	for _, s := range p.Sample {
		require.Empty(t, s.Label)
	}
	for _, name := range functions {
		require.Contains(t, names.String(), name)
	}
}

func total(p *profile.Profile) (cpu int64) {
	for _, s := range p.Sample {
		cpu += s.Value[len(s.Value)-1]
	}
	return cpu
}

//nolint:paralleltest // there is one CPU profile at a time
func TestPGO(t *testing.T) {
	one, two := ownProfile(t), ownProfile(t)
	out, said := filepath.Join(t.TempDir(), "default.pgo"), &bytes.Buffer{}
	require.NoError(t, command(t.Context(), []string{"pgo", out, one, two}, said, said))
	require.Contains(t, said.String(), " stacks in ")
	merged := cpuProfile(t, out)
	forBuilds(t, merged, "crypto/sha256.Sum256")
	require.Equal(t, total(cpuProfile(t, one))+total(cpuProfile(t, two)), total(merged))
}

func TestPGORefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, heap, out := filepath.Join(dir, "text"), filepath.Join(dir, "heap"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(text, []byte("a profile"), 0o600))
	file, err := os.Create(heap)
	require.NoError(t, err)
	require.NoError(t, pprof.WriteHeapProfile(file))
	require.NoError(t, file.Close())
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"nothing":           {nil, "where to write, and at least one CPU profile"},
		"no profile":        {[]string{out}, "where to write, and at least one CPU profile"},
		"not there":         {[]string{out, filepath.Join(dir, "none")}, "none"},
		"something else":    {[]string{out, text}, text + ": read the profile"},
		"another kind":      {[]string{out, heap}, heap + ": is not a profile of CPU time"},
		"nowhere to put it": {[]string{filepath.Join(dir, "none", "out"), "../default.pgo"}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, command(t.Context(), append([]string{"pgo"}, c.args...), &bytes.Buffer{}, &bytes.Buffer{}), c.says)
			require.NoFileExists(t, out)
		})
	}
}

// The profile for builds is of Everpost under load and contains no paths of the machine
// that made it.
func TestDefaultPGO(t *testing.T) {
	t.Parallel()
	forBuilds(t, cpuProfile(t, "../default.pgo"),
		"github.com/everpost/everpost/activities.", "github.com/everpost/everpost/internal/egress.", "github.com/everpost/everpost/internal/postgres.",
		"github.com/jackc/pgx/v5", "go.temporal.io/sdk/internal.", "go.temporal.io/server/service/history.")
}
