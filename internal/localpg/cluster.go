package localpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

const (
	// maxSocketPath is the longest path that fits into sockaddr_un on every system: 104
	// bytes with the final NUL on macOS and the BSDs, 108 on Linux.
	maxSocketPath = 103

	socketDirPrefix = "everpost-pg-"
)

// home is a cluster's directory, with the binaries and the account that run it.
type home struct {
	dir     string
	bin     binaries
	account account
}

// prepare finds the binaries and the cluster. It creates the cluster if there is none.
func prepare(ctx context.Context, o Options) (home, error) {
	owner, err := databaseAccount()
	if err != nil {
		return home{}, err
	}
	dir, err := clusterLocation(o.Dir)
	if err != nil {
		return home{}, err
	}
	major, err := clusterMajor(dir)
	if err != nil {
		return home{}, err
	}
	bin, err := find(ctx, searchDirs(ctx), dir, major)
	if err != nil {
		return home{}, err
	}
	h := home{dir: dir, bin: bin, account: owner}
	if major != 0 {
		ok, err := owner.canEnter(ctx, bin, filepath.Dir(dir))
		if err != nil {
			return home{}, err
		}
		if !ok {
			return home{}, fmt.Errorf("user %s, which runs the database, cannot enter %s: allow it (chmod a+x) up to there",
				owner.name, filepath.Dir(dir))
		}
		return h, nil
	}
	if h.dir, err = h.settle(ctx, o); err != nil {
		return home{}, err
	}
	if err := h.create(ctx, o); err != nil {
		return home{}, err
	}
	return h, nil
}

// clusterMajor returns the major release that created the cluster, 0 when there is no
// cluster.
func clusterMajor(dir string) (int, error) {
	text, err := readOwned(dir, "PG_VERSION")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the release of the database: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil { // the error does not repeat the content
		return 0, fmt.Errorf("read the release of the database in %s: PG_VERSION holds no number", dir)
	}
	return major, nil
}

// settle chooses the directory of a new cluster. A directory outside the data directory is
// recorded: a later start must find the cluster there even if the reason no longer applies.
func (h home) settle(ctx context.Context, o Options) (string, error) {
	if filepath.Dir(h.dir) != o.Dir { // chosen by an earlier start that was interrupted
		if !exists(filepath.Dir(h.dir)) {
			return "", fmt.Errorf("the database of data directory %s should be in %s, which does not exist: restore it, or remove %s to create a new database",
				o.Dir, filepath.Dir(h.dir), filepath.Join(o.Dir, locationFile))
		}
		return h.dir, nil
	}
	ok, err := h.account.canEnter(ctx, h.bin, o.Dir)
	if err != nil || ok {
		return h.dir, err
	}
	sum := sha256.Sum256([]byte(o.Dir))
	base := filepath.Join(o.FallbackDir, hex.EncodeToString(sum[:8]))
	for _, dir := range []string{o.FallbackDir, base} {
		if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // the database's user passes through
			return "", fmt.Errorf("make a place for the database: %w", err)
		}
	}
	if ok, err = h.account.canEnter(ctx, h.bin, base); err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("user %s, which runs the database, can enter neither %s nor %s", h.account.name, o.Dir, base)
	}
	if err := o.Lock.take(ctx, base); err != nil {
		return "", err
	}
	dir := filepath.Join(base, clusterDir)
	if exists(dir) {
		return "", fmt.Errorf("data directory %s is new, but %s holds the database of an earlier one: put its path into %s to go on with it, or remove it",
			o.Dir, dir, filepath.Join(o.Dir, locationFile))
	}
	if err := ReplaceFile(filepath.Join(o.Dir, locationFile), dir+"\n", 0o644); err != nil {
		return "", err
	}
	o.Log.WarnContext(ctx, "the database's user cannot enter the data directory: the database lives elsewhere",
		slog.String("user", h.account.name), slog.String("data_dir", o.Dir), slog.String("database_dir", dir))
	return dir, nil
}

// create creates the cluster in a temporary directory and renames it when it is complete,
// so that an interrupted start leaves nothing that looks like a cluster.
func (h home) create(ctx context.Context, o Options) error {
	draft := h.dir + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	if err := os.MkdirAll(draft, 0o700); err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	if err := h.account.own(draft); err != nil {
		return err
	}
	if err := h.initdb(ctx, o, draft); err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	err := runProgram(ctx, h.account, "CREATE DATABASE "+Database+"\n",
		h.bin.path("postgres"), "--single", "-D", draft, "-j", "-c", "fsync="+strconv.FormatBool(!o.Unsafe), "postgres")
	if err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	if err := os.Rename(draft, h.dir); err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	return syncDir(filepath.Dir(h.dir))
}

func (h home) initdb(ctx context.Context, o Options, dir string) error {
	args := []string{
		"--pgdata=" + dir, "--username=" + superuser, "--encoding=UTF8",
		"--auth-local=peer", "--auth-host=reject", "--data-checksums",
	}
	if o.Unsafe {
		args = append(args, "--no-sync")
	}
	// Sorting by code point does not depend on the version of a system library, and is
	// fast.
	locales := []string{"C.UTF-8", "C"} // both sort the same; some systems lack the first
	if runtime.GOOS != "linux" {
		locales = locales[1:]
	}
	var err error
	for _, locale := range locales {
		err = runProgram(ctx, h.account, "", h.bin.path("initdb"), append(args, "--locale="+locale)...)
		if err == nil || !strings.Contains(err.Error(), "invalid locale") {
			break
		}
	}
	return err
}

// socketDir returns the directory for the server's socket, and a function that removes it.
// If the cluster's own directory is not suitable, it uses wanted, or a new directory if
// that is empty.
func (h home) socketDir(wanted string) (dir string, remove func(), err error) {
	if len(filepath.Join(h.dir, ".s.PGSQL."+port)) <= maxSocketPath && isPlain(h.dir) {
		return h.dir, func() {}, nil
	}
	if dir = wanted; dir != "" {
		err = os.Mkdir(dir, 0o700)
	} else {
		dir, err = os.MkdirTemp("", socketDirPrefix)
	}
	if err == nil {
		err = h.account.own(dir)
	}
	if err != nil {
		return "", nil, fmt.Errorf("make a directory for the database's socket: %w", err)
	}
	if len(filepath.Join(dir, ".s.PGSQL."+port)) > maxSocketPath {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("make a directory for the database's socket: %s is too long a path: set TMPDIR to a shorter one", dir)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// isPlain reports whether all parsers of connection strings accept a path unescaped: in
// some a comma separates hosts, some require a space as "+" and others reject that.
func isPlain(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("/._-", r):
			return false
		}
		return true
	})
}
