package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldestMajor is the oldest release that upstream maintains and that can run what Everpost
// and Temporal (which requires 12) need.
const oldestMajor = 14

// versionTimeout bounds `postgres --version`: any program may have that name.
const versionTimeout = 5 * time.Second

// ErrNotInstalled reports that no usable PostgreSQL was found. Its message says how to
// install one.
var ErrNotInstalled = errors.New(
	"PostgreSQL is not installed: install it (Debian, Ubuntu: apt-get install postgresql; " +
		"macOS: brew install postgresql@17), or give Everpost the URL of a running one (EVERPOST_DATABASE_URL)")

// binaries is an installed release.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// find returns the first release of dirs that can run the cluster: the major release that
// made it, or for a new cluster (major is 0) any that is not too old. A directory only counts
// when it has initdb and postgres, and postgres prints its version. Without any the error is
// ErrNotInstalled.
func find(ctx context.Context, dirs []string, cluster string, major int) (binaries, error) {
	var seen []string
	var slow error // it is there, and the machine is too busy to say which release it is
	for _, dir := range dirs {
		bin, err := inspect(ctx, dir)
		if errors.Is(err, context.DeadlineExceeded) {
			slow = err
		}
		if err != nil {
			continue
		}
		if bin.major == major || (major == 0 && bin.major >= oldestMajor) {
			return bin, nil
		}
		seen = append(seen, fmt.Sprintf("%d in %s", bin.major, bin.dir))
	}
	if err := ctx.Err(); err != nil { // a program may exist and not have responded in time
		return binaries{}, fmt.Errorf("look for PostgreSQL: %w", err)
	}
	switch {
	case slow != nil:
		return binaries{}, fmt.Errorf("look for PostgreSQL: %w", slow)
	case len(seen) == 0:
		return binaries{}, ErrNotInstalled
	case major == 0:
		return binaries{}, fmt.Errorf("PostgreSQL %d or newer is needed, found only %s", oldestMajor, strings.Join(seen, ", "))
	default:
		return binaries{}, fmt.Errorf("the database in %s was made by PostgreSQL %d, found only PostgreSQL %s: "+
			"install release %d, or move the data with pg_upgrade", cluster, major, strings.Join(seen, ", "), major)
	}
}

// searchDirs lists the directories where PostgreSQL may be, without duplicates, best first:
// that on PATH, then the newest under /usr/lib/postgresql (Debian), /usr/pgsql-* (Red Hat) and
// Homebrew's directories.
func searchDirs(ctx context.Context) []string {
	var dirs []string
	add := func(dir string) {
		// A package manager may link single programs into a common directory; the server's
		// libraries are next to the real programs.
		if resolved, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(dirs, resolved) {
			dirs = append(dirs, resolved)
		}
	}
	for _, program := range []string{"initdb", "postgres", "pg_config"} {
		path, err := exec.LookPath(program)
		if err != nil {
			continue
		}
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			add(filepath.Dir(resolved))
		}
		add(filepath.Dir(path))
	}
	if dir, err := pgConfigBinDir(ctx); err == nil {
		add(dir)
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/opt/homebrew/opt/postgresql/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/usr/local/pgsql/bin",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			continue // only for a malformed pattern
		}
		slices.SortFunc(matches, func(a, b string) int { return pathMajor(b) - pathMajor(a) })
		for _, dir := range matches {
			add(dir)
		}
	}
	return dirs
}

func pgConfigBinDir(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
	if err != nil {
		return "", fmt.Errorf("run pg_config --bindir: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// pathMajor returns the release in a directory's name, "/usr/lib/postgresql/17/bin" → 17; 0
// when there is none.
func pathMajor(dir string) int {
	name := filepath.Base(filepath.Dir(dir))
	digits := name[strings.LastIndexAny(name, "@-")+1:]
	major, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return major
}

// inspect returns the release in dir, or why dir has none that can be used.
func inspect(ctx context.Context, dir string) (binaries, error) {
	bin := binaries{dir: dir}
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(bin.path(name))
		if err != nil {
			return bin, fmt.Errorf("look for %s: %w", name, err)
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return bin, fmt.Errorf("%s is not a program", bin.path(name))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin.path("postgres"), "--version").Output() //nolint:gosec // a path this package put together
	if ctx.Err() != nil {
		return bin, fmt.Errorf("%s --version has not answered within %s: %w", bin.path("postgres"), versionTimeout, ctx.Err())
	}
	if err != nil {
		return bin, fmt.Errorf("run %s --version: %w", bin.path("postgres"), err)
	}
	bin.major, err = parseVersion(string(out))
	return bin, err
}

// parseVersion returns the major version in the output of `postgres --version`: "postgres
// (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "postgres (PostgreSQL) 19beta1".
func parseVersion(s string) (int, error) {
	m := regexp.MustCompile(`^postgres \(PostgreSQL\) (\d{1,4})(?:\D|$)`).FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("parse PostgreSQL version %q: not understood", s)
	}
	major, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, fmt.Errorf("parse PostgreSQL version %q: %w", s, err)
	}
	return major, nil
}
