package localpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// maxSocketPath is what fits into sockaddr_un on every system: 104 bytes with the final NUL on
	// macOS and the BSDs, 108 on Linux.
	maxSocketPath = 103

	socketDirPrefix = "everpost-pg-"

	// readyTimeout bounds the wait for a server that neither ends nor becomes ready. Recovery after
	// a crash replays at most max_wal_size of log.
	readyTimeout = 5 * time.Minute
)

// home is a cluster's place on disk and what runs it.
type home struct {
	dir     string
	bin     binaries
	account account
}

// prepare finds the programs and the cluster, making the cluster when there is none.
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
	bin, err := chooseBinaries(ctx, o, dir, major)
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
			return home{}, fmt.Errorf("user %s, who runs the database, cannot enter %s: allow it (chmod a+x) up to there",
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

// clusterMajor returns the release that made the cluster, 0 when there is no cluster.
func clusterMajor(dir string) (int, error) {
	text, err := readOwned(dir, "PG_VERSION")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the release of the database: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil { // what it holds instead is not repeated
		return 0, fmt.Errorf("read the release of the database in %s: PG_VERSION holds no number", dir)
	}
	return major, nil
}

func chooseBinaries(ctx context.Context, o Options, dir string, major int) (binaries, error) {
	dirs := searchDirs(ctx)
	if o.BinDir != "" {
		dirs = []string{o.BinDir}
	}
	bin, err := find(ctx, dirs, major)
	if wrong := (*wrongMajorError)(nil); errors.As(err, &wrong) {
		return bin, fmt.Errorf("the database in %s was made by PostgreSQL %d, found only PostgreSQL %s: install release %d, or move the data with pg_upgrade",
			dir, major, wrong.found, major)
	}
	return bin, err
}

// settle decides where a new cluster goes, and remembers it when that is not under the data
// directory: a later start must find it there even if the reason has gone.
func (h home) settle(ctx context.Context, o Options) (string, error) {
	if filepath.Dir(h.dir) != o.Dir { // settled by a start that was interrupted before it was done
		if !exists(filepath.Dir(h.dir)) {
			return "", fmt.Errorf("the database of data directory %s should be in %s, which does not exist: bring it back, or remove %s to begin anew",
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
		return "", fmt.Errorf("user %s, who runs the database, can enter neither %s nor %s", h.account.name, o.Dir, base)
	}
	if err := o.Lock.take(ctx, base); err != nil {
		return "", err
	}
	dir := filepath.Join(base, clusterDir)
	if exists(dir) {
		return "", fmt.Errorf("data directory %s is new, but %s holds the database of an earlier one: put its path into %s to go on with it, or remove it",
			o.Dir, dir, filepath.Join(o.Dir, locationFile))
	}
	if err := writeFileAtomically(filepath.Join(o.Dir, locationFile), dir+"\n"); err != nil {
		return "", err
	}
	o.Log.WarnContext(ctx, "the database's user cannot enter the data directory: the database lives elsewhere",
		slog.String("user", h.account.name), slog.String("data_dir", o.Dir), slog.String("database_dir", dir))
	return dir, nil
}

// create makes the cluster beside its final place and moves it there when it is whole, so that a
// start which is interrupted here leaves nothing that looks like a cluster.
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
		h.bin.path("postgres"), "--single", "-D", draft, "-j", "-c", "fsync="+onOff(!o.Unsafe), "postgres")
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
	// Sorting by code point needs no version of a system library to stay the same, and is fast.
	locales := []string{"C.UTF-8", "C"} // systems without the first sort the same by the second
	if runtime.GOOS != "linux" {
		locales = locales[1:]
	}
	var err error
	for _, locale := range locales {
		err = runProgram(ctx, h.account, "", h.bin.path("initdb"), append(args, "--locale="+locale)...)
		if failed := (*programError)(nil); !errors.As(err, &failed) || !strings.Contains(failed.output, "invalid locale") {
			break
		}
	}
	return err
}

// socketDir returns the directory for the server's socket, and what to do with it afterwards. A
// wanted one is used again, if the cluster's own directory will not do.
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

// isPlain reports whether a path survives every reader of connection strings: in some a comma
// separates hosts, in some a space must be written as "+" and in others must not.
func isPlain(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("/._-", r):
			return false
		}
		return true
	})
}

// writeAccess says who may connect: over the socket, the account this process runs as and the one
// the server runs as; other logins, of which there are none unless somebody makes them, with
// their password. It is written at every start, because the first may change.
func (h home) writeAccess() error {
	self, err := userName(os.Geteuid())
	if err != nil {
		return err
	}
	users := []string{self, h.account.name}
	slices.Sort(users)
	var ident strings.Builder
	for _, name := range slices.Compact(users) {
		fmt.Fprintf(&ident, "everpost %q %s\n", name, superuser)
	}
	for name, text := range map[string]string{
		"pg_hba.conf": "local all " + superuser + " peer map=everpost\n" +
			"local all all scram-sha-256\n", //nolint:dupword // databases, users
		"pg_ident.conf": ident.String(),
	} {
		if err := writeOwned(h.dir, name, text, h.account); err != nil {
			return fmt.Errorf("access rules of the database: %w", err)
		}
	}
	return nil
}

// settings returns the server's settings. They are given on its command line, so what an earlier
// start or a person wrote into its files does not matter.
func settings(o Options, socketDir string) map[string]string {
	s := map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": `"` + strings.ReplaceAll(socketDir, `"`, `""`) + `"`,
		"unix_socket_permissions": "0700",
		"max_connections":         strconv.Itoa(o.MaxConnections),
		"shared_buffers":          "512MB",
		"max_wal_size":            "4GB",
		"checkpoint_timeout":      "15min", // after each checkpoint every page is written whole once more
		"jit":                     "off",   // its compiler costs more than our short statements gain

		"log_destination":   "stderr",
		"logging_collector": "off",
		"log_line_prefix":   "",
		"log_timezone":      "UTC",
		"timezone":          "UTC",
		// Details and statements quote rows, and rows hold payloads: they do not belong into logs.
		"log_error_verbosity":     "terse",
		"log_min_error_statement": "panic",
	}
	if o.Unsafe {
		s["fsync"], s["full_page_writes"], s["synchronous_commit"] = "off", "off", "off"
	}
	maps.Copy(s, o.Settings)
	return s
}

// launch starts the server and waits until it accepts connections. A predecessor that was killed
// may not be gone yet: a session of it is in the shared memory, or the kernel still has its process.
// Then it is tried again.
func (h home) launch(ctx context.Context, o Options, socketDir string) (*process, error) {
	if err := h.writeAccess(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var (
		server *process
		words  string
		err    error
	)
	// Whether the wait ended well is told by the last try.
	_, _ = poll(ctx, orphanGrace, func() bool {
		if err = clearLocks(ctx, h.dir, socketDir, o.Log); err != nil {
			return true
		}
		server, words, err = h.launchOnce(ctx, o, socketDir)
		if saysLocked(words) {
			if orphanErr := endOrphans(ctx, h.dir, o.Log); orphanErr != nil {
				err = orphanErr
				return true
			}
			return false
		}
		return !strings.Contains(words, "pre-existing shared memory block")
	})
	return server, err
}

func (h home) launchOnce(ctx context.Context, o Options, socketDir string) (_ *process, lastWords string, _ error) {
	args := []string{"-D", h.dir}
	s := settings(o, socketDir)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		args = append(args, "-c", name+"="+s[name])
	}
	// Not bound to ctx, which ends the start: the server is to outlive it.
	cmd := exec.Command(h.bin.path("postgres"), args...) //nolint:gosec,noctx // a path this package put together; see above
	cmd.Dir = "/"
	cmd.Env = serverEnvironment()
	cmd.SysProcAttr = childAttributes(h.account, syscall.SIGINT)

	// A pipe of our own: with one of exec's, Wait would also wait for every session that still has
	// the other end when the postmaster was killed.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	messages := &serverLog{log: o.Log, pipe: read, done: make(chan struct{})}
	go messages.follow() //nolint:contextcheck // for as long as the server lives
	server, err := startProcess(cmd)
	_ = write.Close()
	if err != nil {
		<-messages.done
		return nil, "", err
	}
	server.output = messages

	ready, err := poll(ctx, readyTimeout, func() bool {
		select {
		case <-server.done:
			return true
		default:
		}
		p, ok := readPostmaster(h.dir)
		return ok && p.ready && p.pid == cmd.Process.Pid
	})
	select {
	case <-server.done:
		server.drain()
		return nil, messages.lastWords(), &startError{dir: h.dir, err: server.err, words: messages.lastWords()}
	default:
	}
	if err == nil && ready {
		return server, "", nil
	}
	if err == nil {
		err = context.DeadlineExceeded
	}
	server.endNow()
	server.drain()
	return nil, "", fmt.Errorf("start PostgreSQL in %s: wait until it is ready: %w", h.dir, err)
}

// startError says that the server ended before it was ready, and what it said.
type startError struct {
	dir   string
	err   error // nil when it called that a success
	words string
}

func (e *startError) Error() string {
	reason := e.words
	if reason == "" && e.err != nil {
		reason = e.err.Error()
	}
	return fmt.Sprintf("start PostgreSQL in %s: it ended at once: %s", e.dir, reason)
}

func (e *startError) Unwrap() error { return e.err }

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
