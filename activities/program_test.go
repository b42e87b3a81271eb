package activities_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errNotInstalled = errors.New("is not installed, and cannot be (it is a package of Debian; that needs root)")

	installing sync.Mutex // apt-get has a lock of its own, for which it does not wait
)

// findProgram returns a program of this machine. As root on Debian it installs the package of that name if there is none, as the tests
// do with PostgreSQL.
func findProgram(name string) (string, error) {
	installing.Lock()
	defer installing.Unlock()
	for _, path := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	apt, err := exec.LookPath("apt-get")
	if _, debian := os.Stat("/etc/debian_version"); err != nil || debian != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("%s %w", name, errNotInstalled)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{{"update", "--quiet"}, {"install", "--quiet", "--yes", "--no-install-recommends", name}} {
		command := exec.CommandContext(ctx, apt, args...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := command.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return "", fmt.Errorf("%s %w: apt-get %s: %w: %s", name, errNotInstalled, args[0], err, lines[len(lines)-1])
		}
	}
	return exec.LookPath(name)
}

// program returns the program that find finds. Without it the test is skipped, except in CI.
func program(t *testing.T, find func() (string, error)) string {
	t.Helper()
	found, err := find()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	return found
}
