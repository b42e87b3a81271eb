// Package processtest runs the real binaries for tests and for the fault harness: it starts them, waits until they
// are ready, stops them and kills them.
package processtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StartPatience bounds a first start on a busy machine.
const StartPatience = 90 * time.Second

const (
	stopPatience = 40 * time.Second // what the documentation promises
	tick         = 25 * time.Millisecond
)

// Settings are environment variables.
type Settings map[string]string

// With returns a copy in which other wins.
func (s Settings) With(other Settings) Settings {
	all := maps.Clone(s)
	maps.Copy(all, other)
	return all
}

// Environ is this process's environment without any setting of Everpost or Temporal, and s.
func (s Settings) Environ() []string {
	all := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "EVERPOST_") || strings.HasPrefix(entry, "TEMPORAL_")
	})
	for name, value := range s {
		all = append(all, name+"="+value)
	}
	return all
}

// Process is one run of a program.
type Process struct {
	Command *exec.Cmd

	exited chan struct{} // closed when it has ended and its output is complete
	err    error         // of Wait; read it after exited

	mu    sync.Mutex
	lines []string // of its standard output
}

// Launch starts a program. Its log is appended to the writer. It dies with this process.
func Launch(program string, env Settings, log io.Writer, args ...string) (*Process, error) {
	p := &Process{Command: exec.Command(program, args...), exited: make(chan struct{})} //nolint:gosec // a binary that is tested
	p.Command.Env, p.Command.Stderr = env.Environ(), log
	p.Command.SysProcAttr = endWithParent()
	output, err := p.Command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent whose death ends the child is a thread
		err := p.Command.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(p.exited)
		scanner := bufio.NewScanner(output)
		for scanner.Scan() {
			p.mu.Lock()
			p.lines = append(p.lines, scanner.Text())
			p.mu.Unlock()
		}
		p.err = p.Command.Wait()
	}()
	return p, <-started
}

// Said returns its standard output so far.
func (p *Process) Said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// Ready waits for the line that says all is up and returns its fields.
func (p *Process) Ready(ctx context.Context) (map[string]string, error) {
	for {
		for _, line := range p.Said() {
			if rest, ok := strings.CutPrefix(line, "ready"); ok { // no other line before it begins like this
				return fields(rest), nil
			}
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("it ended before it was ready: %w", errors.Join(p.err, errEnded))
		case <-ctx.Done():
			return nil, fmt.Errorf("it is not ready: %w", ctx.Err())
		case <-time.After(tick):
		}
	}
}

var errEnded = errors.New("the process has ended")

func fields(line string) map[string]string {
	all := map[string]string{}
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		all[name] = value
	}
	return all
}

// Terminate sends SIGTERM and expects exit 0 in time.
func (p *Process) Terminate() error {
	if err := p.Command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("SIGTERM: %w", err)
	}
	begun := time.Now()
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("after SIGTERM: %w", p.err)
		}
		return nil
	case <-time.After(stopPatience):
		p.Kill()
		return fmt.Errorf("still running %s after SIGTERM", time.Since(begun).Round(time.Second))
	}
}

// Kill is kill -9. It returns when the process is gone.
func (p *Process) Kill() {
	_ = p.Command.Process.Kill() // its only error: it has ended already
	<-p.exited
}

// Exited is closed when it has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether it has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// ExitCode is the code that it has ended with, or -1 after a signal. It must have ended.
func (p *Process) ExitCode() int { return p.Command.ProcessState.ExitCode() }

// Finished is a run of a program that has ended.
type Finished struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a program until it ends by itself.
func Run(ctx context.Context, program string, env Settings, args ...string) (Finished, error) {
	var log strings.Builder
	p, err := Launch(program, env, &log, args...)
	if err != nil {
		return Finished{}, err
	}
	select {
	case <-p.exited:
		return Finished{p.ExitCode(), strings.Join(p.Said(), "\n"), log.String()}, nil
	case <-ctx.Done():
		p.Kill()
		return Finished{}, fmt.Errorf("everpost %s does not end: %w\n%s", strings.Join(args, " "), ctx.Err(), log.String())
	}
}
