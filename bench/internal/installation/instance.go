// Package installation runs a standalone installation for a measurement: it starts and stops
// `everpost standalone` in a directory of its own, talks to its API, and says what it uses.
package installation

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/everpost/everpost/internal/localpg"
)

// StopPatience is how long an end may take: 40 s are promised.
const StopPatience = 45 * time.Second

const (
	startPatience = 2 * time.Minute
	killPatience  = 15 * time.Second // for its PostgreSQL, when it had to be killed
	logTail       = 4 << 10
)

// Instance is a standalone installation in a directory of its own.
type Instance struct {
	home     string // holds data and log
	binary   string
	settings map[string]string

	command *exec.Cmd
	exited  chan struct{} // closed when it has ended
	failure error         // of Wait; read it after exited

	address map[string]string // the fields of the ready line
	API     *Client           // with the operator's key
}

// New makes a home for an installation, which is not started. The settings win
// over the ones made here.
func New(dir, binary string, further map[string]string) (*Instance, error) {
	home, err := NewHome(dir)
	if err != nil {
		return nil, err
	}
	in := &Instance{home: home, binary: binary, settings: map[string]string{
		"EVERPOST_DATA_DIR": filepath.Join(home, "data"), "EVERPOST_DEMO": "off",
		"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_ADMIN_LISTEN": "127.0.0.1:0",
		"EVERPOST_TEMPORAL_LISTEN": "127.0.0.1:0", "EVERPOST_UI_LISTEN": "127.0.0.1:0",
		"EVERPOST_ALLOW_HTTP": "true", "EVERPOST_ALLOWED_CIDRS": "127.0.0.0/8", "EVERPOST_EXTRA_PORTS": "any",
	}}
	maps.Copy(in.settings, further)
	return in, nil
}

// NewHome makes a directory that the account of the database can come through: as root
// that is another one.
func NewHome(dir string) (string, error) {
	home, err := os.MkdirTemp(dir, "everpost-bench-")
	if err != nil {
		return "", fmt.Errorf("make a directory to measure in: %w", err)
	}
	if err := os.Chmod(home, 0o711); err != nil { //nolint:gosec // nothing in it can be listed
		return "", fmt.Errorf("make a directory to measure in: %w", err)
	}
	return home, nil
}

// RemoveHome deletes a home, and the database of the data directory in it when that had to
// live elsewhere: localpg writes into postgres.location where.
func RemoveHome(home, data string) error {
	elsewhere, err := os.ReadFile(filepath.Join(data, "postgres.location")) //nolint:gosec // our own directory
	if err == nil {
		err = os.RemoveAll(filepath.Dir(strings.TrimSpace(string(elsewhere)))) //nolint:gosec // written by localpg, for this directory alone
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(home))
}

// Start runs it, waits until it is ready and returns how long that took. It may still run
// when there is an error: End is called in any case.
func (in *Instance) Start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(in.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the process has its own
	output, outputEnd, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", in.binary, err)
	}
	defer output.Close() //nolint:errcheck // was only read

	in.command = exec.Command(in.binary, "standalone") //nolint:gosec,noctx // what the user asks to measure; it is stopped, not killed
	in.command.Env = in.environment()
	in.command.Stdout, in.command.Stderr = outputEnd, log
	in.command.SysProcAttr = childAttributes()
	begun := time.Now()
	err = in.launch()
	_ = outputEnd.Close()
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", in.binary, err)
	}

	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	line := make(chan string, 1)
	go func() { line <- readyLine(output) }() // ends with the process, or with the pipe
	select {
	case text := <-line:
		took := time.Since(begun)
		if text == "" {
			<-in.exited
			return 0, in.withLog(fmt.Errorf("start %s: it ended before it was ready", in.binary))
		}
		return took, in.connect(text)
	case <-ctx.Done():
		return 0, fmt.Errorf("start %s: it is not ready: %w", in.binary, context.Cause(ctx))
	}
}

// launch starts the command and has somebody wait for its end. The kernel takes the thread
// that starts a child for its parent, so that thread stays until the child has ended.
func (in *Instance) launch() error {
	in.exited = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := in.command.Start()
		started <- err
		if err != nil {
			return
		}
		in.failure = in.command.Wait()
		close(in.exited)
	}()
	return <-started
}

// readyLine is what the installation says when all is up, empty when it says nothing more.
func readyLine(output *os.File) string {
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		if rest, ok := strings.CutPrefix(scanner.Text(), "ready "); ok {
			return rest
		}
	}
	return ""
}

// connect reads the ready line and the operator's key.
func (in *Instance) connect(line string) error {
	in.address = map[string]string{}
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		in.address[name] = value
	}
	key, err := os.ReadFile(in.address["key_file"])
	if err != nil {
		return fmt.Errorf("read the operator's key: %w", err)
	}
	in.API = NewClient(in.address["api"], string(bytes.TrimSpace(key)))
	return nil
}

// Stop is SIGTERM. It returns when the process and its PostgreSQL have ended, and an error
// when that was not in good order.
func (in *Instance) Stop() error {
	if in.API != nil {
		in.API.HTTP.CloseIdleConnections()
	}
	if !in.running() {
		return nil
	}
	if err := in.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop everpost: %w", err)
	}
	select {
	case <-in.exited:
		if in.failure != nil {
			return in.withLog(fmt.Errorf("everpost did not stop in good order: %w", in.failure))
		}
		return nil
	case <-time.After(StopPatience):
	}
	_ = in.command.Process.Kill() // its only error: it has ended already
	<-in.exited
	in.waitForDatabase()
	return in.withLog(fmt.Errorf("everpost was still running %s after SIGTERM and was killed", StopPatience))
}

// waitForDatabase waits until the PostgreSQL of an installation that was killed is gone,
// which removes its postmaster.pid last.
func (in *Instance) waitForDatabase() {
	end := time.Now().Add(killPatience)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for time.Now().Before(end) {
		if _, err := os.Stat(filepath.Join(in.settings["EVERPOST_DATA_DIR"], "postgres", "postmaster.pid")); err != nil {
			return
		}
		<-ticker.C
	}
}

// End stops it, if it runs, and removes everything of it.
func (in *Instance) End() error {
	return errors.Join(in.Stop(), RemoveHome(in.home, in.settings["EVERPOST_DATA_DIR"]))
}

func (in *Instance) running() bool {
	if in.exited == nil {
		return false
	}
	select {
	case <-in.exited:
		return false
	default:
		return true
	}
}

// environment is ours without any setting of Everpost or Temporal, and its own. A database
// that happens to be set is not filled with a benchmark.
func (in *Instance) environment() []string {
	var all []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "EVERPOST_") && !strings.HasPrefix(entry, "TEMPORAL_") {
			all = append(all, entry)
		}
	}
	for name, value := range in.settings {
		all = append(all, name+"="+value)
	}
	return all
}

func (in *Instance) logPath() string { return filepath.Join(in.home, "log") }

// withLog adds the end of the installation's log to an error: the log goes with its home.
func (in *Instance) withLog(err error) error {
	text, readErr := os.ReadFile(in.logPath())
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	text = text[max(0, len(text)-logTail):]
	return fmt.Errorf("%w; the end of its log:\n%s", err, bytes.TrimSpace(text))
}

// DatabaseURL is where its own PostgreSQL is to be reached.
func (in *Instance) DatabaseURL() (string, error) {
	return localpg.RunningURL(in.settings["EVERPOST_DATA_DIR"], localpg.Database)
}

// Pid is that of its process, once it was started.
func (in *Instance) Pid() int { return in.command.Process.Pid }

// Usage is what it has used so far; ok is false where that cannot be known.
func (in *Instance) Usage() (u Usage, ok bool) { return UsageOf(in.Pid()) }

// Over is what it used in the time that begins now, in cores; known is false without /proc.
func (in *Instance) Over(ctx context.Context, d time.Duration) (_ Usage, known bool, _ error) {
	before, ok := in.Usage()
	begun := time.Now()
	if err := Pause(ctx, d); err != nil {
		return Usage{}, false, err
	}
	after, still := in.Usage()
	used, took := after.Minus(before), time.Since(begun).Seconds()
	return Usage{Process: used.Process / took, Below: used.Below / took}, ok && still, nil
}

// Admin gets a path of the admin listener.
func (in *Instance) Admin(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, in.address["admin"]+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("get %s: answered %s", path, response.Status)
	}
	return response, nil
}
