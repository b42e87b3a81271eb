package e2e_test

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

const (
	startPatience = 90 * time.Second // a first start on a busy machine
	stopPatience  = 40 * time.Second // what 60-running promises
)

// settings are environment variables.
type settings map[string]string

// with returns a copy in which other wins.
func (s settings) with(other settings) settings {
	all := maps.Clone(s)
	maps.Copy(all, other)
	return all
}

// environ is the test's environment without any setting of Everpost or Temporal, and s.
func (s settings) environ() []string {
	all := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "EVERPOST_") || strings.HasPrefix(entry, "TEMPORAL_")
	})
	for name, value := range s {
		all = append(all, name+"="+value)
	}
	return all
}

// process is one run of the binary.
type process struct {
	command *exec.Cmd
	exited  chan struct{} // closed when it has ended and its output is complete
	err     error         // of Wait; read it after exited

	mu    sync.Mutex
	lines []string // of its standard output
}

// launch starts the binary. Its log is appended to the writer.
func launch(env settings, log io.Writer, args ...string) (*process, error) {
	return launchProgram(binary, env, log, args...)
}

func launchProgram(program string, env settings, log io.Writer, args ...string) (*process, error) {
	p := &process{command: exec.Command(program, args...), exited: make(chan struct{})}
	p.command.Env, p.command.Stderr = env.environ(), log
	p.command.SysProcAttr = endWithParent()
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent whose death ends the child is a thread
		err := p.command.Start()
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
		p.err = p.command.Wait()
	}()
	return p, <-started
}

// said returns its standard output so far.
func (p *process) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// ready waits for the line that says all is up and returns its fields.
func (p *process) ready(ctx context.Context) (map[string]string, error) {
	for {
		for _, line := range p.said() {
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

// terminate sends SIGTERM and expects exit 0 in time.
func (p *process) terminate() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
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
		p.kill()
		return fmt.Errorf("still running %s after SIGTERM", time.Since(begun).Round(time.Second))
	}
}

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	_ = p.command.Process.Kill() // its only error: it has ended already
	<-p.exited
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// finished is a run of the binary that has ended.
type finished struct {
	code           int
	stdout, stderr string
}

// runToEnd runs the binary until it ends by itself.
func runToEnd(ctx context.Context, env settings, args ...string) (finished, error) {
	return runToEndOf(ctx, binary, env, args...)
}

// runToEndOf is runToEnd of another binary.
func runToEndOf(ctx context.Context, binary string, env settings, args ...string) (finished, error) {
	var log strings.Builder
	p, err := launchProgram(binary, env, &log, args...)
	if err != nil {
		return finished{}, err
	}
	select {
	case <-p.exited:
		return finished{p.command.ProcessState.ExitCode(), strings.Join(p.said(), "\n"), log.String()}, nil
	case <-ctx.Done():
		p.kill()
		return finished{}, fmt.Errorf("everpost %s does not end: %w\n%s", strings.Join(args, " "), ctx.Err(), log.String())
	}
}
