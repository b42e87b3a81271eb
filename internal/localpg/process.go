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

// process is a child that lives for long.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done

	output *serverLog
}

// startProcess starts cmd and watches over it.
//
// The kernel sends a child its parent-death signal when the *thread* that started it ends, and Go
// ends threads at will. So the child is started from a goroutine that is bound to its thread and
// stays in Wait.
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

// signal sends to the process if it has not ended; its id is never used after that.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// endNow ends the process without good manners, and returns when it has ended.
func (p *process) endNow() {
	p.signal(syscall.SIGQUIT)
	if !waitAtMost(quitGrace, p.done) {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// drainGrace bounds the wait for the last messages: sessions of a server that was killed hold on to
// its output until they notice.
const drainGrace = 2 * time.Second

// drain returns when the messages of a process that has ended have been passed on.
func (p *process) drain() {
	if !waitAtMost(drainGrace, p.output.done) {
		_ = p.output.pipe.Close()
		<-p.output.done
	}
}

// runProgram runs a program to its end, as the account, and returns an error with its last words
// when it fails. It is killed when ctx is done.
func runProgram(ctx context.Context, a account, stdin string, path string, args ...string) error {
	runtime.LockOSThread() // see startProcess
	defer runtime.UnlockOSThread()

	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // a path this package put together
	cmd.Dir = "/"                                  // the account may not be able to enter ours
	cmd.Env = serverEnvironment()
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = childAttributes(a, syscall.SIGKILL)
	if err := cmd.Run(); err != nil {
		return &programError{program: path, err: errors.Join(ctx.Err(), err), output: out.String()}
	}
	return nil
}

// programError is the failure of a program that ran to its end.
type programError struct {
	program string
	err     error
	output  string
}

func (e *programError) Error() string {
	return fmt.Sprintf("run %s: %v: %s", e.program, e.err, strings.Join(strings.Fields(e.output), " "))
}

func (e *programError) Unwrap() error { return e.err }

// serverEnvironment is all the environment that PostgreSQL gets: variables of the caller's (PGDATA,
// PGOPTIONS, LC_*) must not change what this package starts.
func serverEnvironment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// serverLog passes the server's messages on to a logger and keeps the last ones of weight for an
// error message.
type serverLog struct {
	log  *slog.Logger
	pipe *os.File
	done chan struct{} // closed when follow has returned

	mu       sync.Mutex
	complain []string
}

// maxMessage bounds how much of one line is passed on, in bytes.
const maxMessage = 8 << 10

// maxComplaints bounds what is kept of a server that fails to start.
const maxComplaints = 5

// follow reads until the writers have ended.
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
		continued = isPrefix // the rest of a line that is too long is dropped
	}
}

// write gives a line the level its severity deserves. An ERROR is the answer to a statement: who
// sent it knows, and it is no fault of the server.
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
		if isRefusal(message) {
			level = slog.LevelDebug
		}
		l.keep(message)
	case "": // not the server's own format: the loader, an assertion
		level = slog.LevelWarn
		l.keep(message)
	}
	l.log.Log(context.Background(), level, "PostgreSQL says", slog.String("severity", severity), slog.String("message", message))
}

// isRefusal tells a session's end, which its client is told of, from the server's.
func isRefusal(message string) bool {
	return strings.HasPrefix(message, "terminating ") || // every session at a fast shutdown
		strings.HasPrefix(message, "the database system is ") ||
		saysLocked(message) || strings.HasPrefix(message, "pre-existing shared memory block") || // tried again, or told by the start's error
		(strings.HasPrefix(message, "database ") && strings.HasSuffix(message, "does not exist"))
}

func (l *serverLog) keep(message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.complain) == maxComplaints {
		l.complain = l.complain[1:]
	}
	l.complain = append(l.complain, message)
}

func (l *serverLog) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.complain, "; ")
}
