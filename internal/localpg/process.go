package localpg

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a long-running child process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // result of Wait; valid after done

	output *serverLog
}

// startProcess starts cmd and waits for its end in a goroutine.
//
// The kernel sends a child its parent-death signal when the *thread* that started it ends,
// and Go ends threads at any time. So a goroutine that is locked to its thread starts the
// child and stays in Wait.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// signal sends the signal if the process has not ended; its id is not used afterwards.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// endNow ends the process without a clean shutdown and returns when it has ended.
func (p *process) endNow() {
	p.signal(syscall.SIGQUIT)
	if !waitAtMost(quitGrace, p.done) {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// outputGrace bounds the wait for the last messages: sessions of a killed server keep its
// output open until they notice.
const outputGrace = 2 * time.Second

// flushOutput returns when the messages of an ended process have been logged.
func (p *process) flushOutput() {
	if !waitAtMost(outputGrace, p.output.done) {
		_ = p.output.pipe.Close()
		<-p.output.done
	}
}

// runProgram runs a program as the account until it ends, and returns an error with its
// output when it fails. The program is killed when ctx is done.
func runProgram(ctx context.Context, a account, stdin string, path string, args ...string) error {
	runtime.LockOSThread() // see startProcess
	defer runtime.UnlockOSThread()

	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // a path this package put together
	cmd.Dir = "/"                                  // the account may not be able to enter the working directory
	cmd.Env = serverEnvironment()
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = childAttributes(a, syscall.SIGKILL)
	if err := orContext(ctx, cmd.Run()); err != nil {
		return fmt.Errorf("run %s: %w: %s", path, err, strings.Join(strings.Fields(out.String()), " "))
	}
	return nil
}

// orContext adds ctx's error to that of a program which exec may have killed because ctx was
// done: exec reports only the signal.
func orContext(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// serverEnvironment is PostgreSQL's whole environment: the caller's variables (PGDATA,
// PGOPTIONS, LC_*) must not affect it.
func serverEnvironment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// serverLog logs the server's messages and keeps the last serious ones for an error
// message.
type serverLog struct {
	log  *slog.Logger
	pipe *os.File
	done chan struct{} // closed when follow has returned

	mu   sync.Mutex
	kept []string
}

// maxMessage bounds how much of one line is logged, in bytes.
const maxMessage = 8 << 10

// maxKept bounds the messages that are kept for an error message.
const maxKept = 5

// follow reads until all writers have closed the pipe.
func (l *serverLog) follow() {
	defer close(l.done)
	defer func() { _ = l.pipe.Close() }()
	lines := bufio.NewReaderSize(l.pipe, maxMessage)
	for continued := false; ; {
		text, isPrefix, err := lines.ReadLine()
		if line := strings.TrimSpace(string(text)); line != "" && !continued {
			l.write(line)
		}
		if err != nil {
			return
		}
		continued = isPrefix // drop the rest of a line that is too long
	}
}

// write logs a line at the level of its severity. An ERROR is the response to a statement:
// its client gets it, and the server has not failed.
func (l *serverLog) write(line string) {
	severity, message, found := strings.Cut(line, ":  ")
	if !found {
		severity, message = "", line
	}
	level := slog.LevelDebug
	switch severity {
	case "WARNING":
		level = slog.LevelWarn
	case "FATAL", "PANIC":
		level = slog.LevelError
		if isSessionError(message) {
			level = slog.LevelDebug
		}
		l.keep(message)
	case "": // not in the server's format: from the loader, or an assertion
		level = slog.LevelWarn
		l.keep(message)
	}
	l.log.Log(context.Background(), level, "PostgreSQL message", slog.String("severity", severity), slog.String("message", message))
}

// isSessionError reports whether a FATAL message concerns one session, whose client gets
// it, and not the server.
func isSessionError(message string) bool {
	return strings.HasPrefix(message, "terminating ") || // one for each session at a fast shutdown
		strings.HasPrefix(message, "the database system is ") ||
		reportsLockFile(message) || strings.HasPrefix(message, "pre-existing shared memory block") || // launch retries, or returns it
		(strings.HasPrefix(message, "database ") && strings.HasSuffix(message, "does not exist"))
}

func (l *serverLog) keep(message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == maxKept {
		l.kept = l.kept[1:]
	}
	l.kept = append(l.kept, message)
}

func (l *serverLog) lastMessages() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.kept, "; ")
}
