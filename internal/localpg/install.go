package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// noMainCluster prevents Debian's packages from creating and starting a cluster of their
// own (pg_createcluster reads createcluster.d, see its manual page).
const (
	noMainClusterFile = "/etc/postgresql-common/createcluster.d/everpost.conf"
	noMainCluster     = "create_main_cluster = false\n"
)

// Install installs PostgreSQL with apt-get, which requires root on Debian or a derivative,
// without the distribution's own cluster. On other systems it returns ErrNotInstalled,
// whose message says what to install. It does nothing when PostgreSQL is installed.
func Install(ctx context.Context) error {
	_, err := find(ctx, searchDirs(ctx), "", 0)
	if err == nil || !errors.Is(err, ErrNotInstalled) {
		return err
	}
	apt, lookErr := exec.LookPath("apt-get")
	if lookErr != nil || os.Geteuid() != 0 || !exists("/etc/debian_version") {
		return err
	}

	if !exists(noMainClusterFile) {
		if err := os.MkdirAll(filepath.Dir(noMainClusterFile), 0o755); err != nil { //nolint:gosec // a system configuration directory
			return fmt.Errorf("keep apt-get from making a cluster: %w", err)
		}
		if err := os.WriteFile(noMainClusterFile, []byte(noMainCluster), 0o644); err != nil { //nolint:gosec // a system configuration file
			return fmt.Errorf("keep apt-get from making a cluster: %w", err)
		}
		// Later installations by the operator must not be affected.
		defer func() { _ = os.Remove(noMainClusterFile) }()
	}
	for _, args := range [][]string{
		{"update", "--quiet"},
		{"install", "--quiet", "--yes", "--no-install-recommends", "postgresql"},
	} {
		cmd := exec.CommandContext(ctx, apt, args...) //nolint:gosec // fixed arguments
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install PostgreSQL: apt-get %s: %w: %s", args[0], err, lastLine(string(out)))
		}
	}
	_, err = find(ctx, searchDirs(ctx), "", 0)
	return err
}

// lastLine returns the last non-empty line of s.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
