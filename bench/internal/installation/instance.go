// Package installation runs a standalone installation for a measurement: it starts and
// stops `everpost standalone` in a directory of its own, calls its API, and measures its
// resource usage.
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

// StopPatience bounds a stop, for which 40 s are documented.
const StopPatience = 45 * time.Second

const (
	startPatience = 2 * time.Minute
	killPatience  = 15 * time.Second // for the end of its PostgreSQL after the process was killed
	logTail       = 4 << 10
)

// Instance is a standalone installation in a directory of its own.
type Instance struct {
	home     string // contains data and log
	binary   string
	settings map[string]string

	command *exec.Cmd
	exited  chan struct{} // closed when it has ended
	failure error         // result of Wait; valid after exited

	address map[string]string // the fields of the ready line
	API     *Client           // with the operator's key
}

// New creates a directory for an installation and does not start it. further overrides the
// default settings.
func New(dir, binary string, further map[string]string) (*Instance, error) {
	home, err := NewHome(dir)
	if err != nil {
		return nil, err
	}
	in := &Instance{home: home, binary: binary, settings: map[string]string{
		"EVERPOST_DATA_DIR": filepath.Join(home, "data"), "EVERPOST_DEMO": "off", "EVERPOST_TENANT_ENDPOINTS": "0",
		"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_ADMIN_LISTEN": "127.0.0.1:0",
		"EVERPOST_TEMPORAL_LISTEN": "127.0.0.1:0", "EVERPOST_UI_LISTEN": "127.0.0.1:0",
		"EVERPOST_ALLOW_HTTP": "true", "EVERPOST_ALLOWED_CIDRS": "127.0.0.0/8", "EVERPOST_EXTRA_PORTS": "any",
	}}
	maps.Copy(in.settings, further)
	return in, nil
}

// NewHome creates a directory that the database's account can pass through: for root that
// is another account.
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

// RemoveHome deletes a home, and the database of the data directory in it when that is
// elsewhere: localpg writes its path into postgres.location.
func RemoveHome(home, data string) error {
	elsewhere, err := os.ReadFile(filepath.Join(data, "postgres.location")) //nolint:gosec // our own directory
	if err == nil {
		err = os.RemoveAll(filepath.Dir(strings.TrimSpace(string(elsewhere)))) //nolint:gosec // written by localpg, for this directory alone
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(home))
}

// Start starts the process, waits until it is ready and returns how long that took. On an
// error the process may still run: call End in any case.
func (in *Instance) Start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(in.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the process has its own descriptor
	output, outputEnd, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", in.binary, err)
	}
	defer output.Close() //nolint:errcheck // opened for reading

	in.command = exec.Command(in.binary, "standalone") //nolint:gosec,noctx // what the user asks to measure; it is stopped, not killed
	in.command.Env = in.environment()
	in.command.Stdout, in.command.Stderr = outputEnd, log
	in.command.SysProcAttr = childAttributes()
	started := time.Now()
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
		took := time.Since(started)
		if text == "" {
			<-in.exited
			return 0, in.withLog(fmt.Errorf("start %s: it ended before it was ready", in.binary))
		}
		return took, in.connect(text)
	case <-ctx.Done():
		return 0, fmt.Errorf("start %s: it is not ready: %w", in.binary, context.Cause(ctx))
	}
}

// launch starts the command. The kernel treats the thread that starts a child as its
// parent, so a goroutine that is locked to its thread starts it and waits for its end.
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

// readyLine returns the installation's ready line, empty when the output ends without one.
func readyLine(output *os.File) string {
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		if rest, ok := strings.CutPrefix(scanner.Text(), "ready "); ok {
			return rest
		}
	}
	return ""
}

// connect parses the ready line and reads the operator's key.
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

// Stop sends SIGTERM. It returns when the process and its PostgreSQL have ended, with an
// error when the exit status is not 0.
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
			return in.withLog(fmt.Errorf("everpost did not stop cleanly: %w", in.failure))
		}
		return nil
	case <-time.After(StopPatience):
	}
	_ = in.command.Process.Kill() // fails only when the process has ended
	<-in.exited
	in.waitForDatabase()
	return in.withLog(fmt.Errorf("everpost was still running %s after SIGTERM and was killed", StopPatience))
}

// waitForDatabase waits until the PostgreSQL of a killed installation has ended: it removes
// its postmaster.pid last.
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

// End stops the installation, if it runs, and removes all its files.
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

// environment returns the process's environment without settings of Everpost or Temporal,
// plus the installation's own settings, so that a benchmark never fills a configured
// database.
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

// withLog adds the end of the installation's log to an error: the log is removed with its
// home.
func (in *Instance) withLog(err error) error {
	text, readErr := os.ReadFile(in.logPath())
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	text = text[max(0, len(text)-logTail):]
	return fmt.Errorf("%w; the end of its log:\n%s", err, bytes.TrimSpace(text))
}

// DatabaseURL returns the URL of its own PostgreSQL.
func (in *Instance) DatabaseURL() (string, error) {
	return localpg.RunningURL(in.settings["EVERPOST_DATA_DIR"], localpg.Database)
}

// Pid returns the process id, after Start.
func (in *Instance) Pid() int { return in.command.Process.Pid }

// Usage returns the resources used so far; ok is false when they are unknown.
func (in *Instance) Usage() (u Usage, ok bool) { return UsageOf(in.Pid()) }

// Over returns the usage over the next d, in cores; known is false without /proc.
func (in *Instance) Over(ctx context.Context, d time.Duration) (_ Usage, known bool, _ error) {
	before, ok := in.Usage()
	started := time.Now()
	if err := Pause(ctx, d); err != nil {
		return Usage{}, false, err
	}
	after, still := in.Usage()
	used, took := after.Minus(before), time.Since(started).Seconds()
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
