// Command withpg runs a command with a temporary PostgreSQL server:
//
//	withpg -- go test ./...
//
// The command gets the server's address in EVERPOST_TEST_DATABASE_URL. If that is already
// set, withpg starts no server. It forwards SIGINT, SIGTERM and SIGHUP. The exit code is
// the command's, 128 plus the signal's number when a signal ended it, or 125 when it could
// not be run.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/everpost/everpost/internal/postgrestest"
)

const notRun = 125 // like env(1) and timeout(1)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return notRun, errors.New("usage: withpg -- command [argument …]")
	}
	// Register before the server starts, so that no signal ends this process alone.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	environment := os.Environ()
	if os.Getenv(postgrestest.URLVariable) == "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		address, stop, startErr := postgrestest.Start(context.Background(), log)
		if startErr != nil {
			return notRun, startErr
		}
		defer func() { // also when the command could not be run
			if stopErr := stop(); stopErr != nil {
				err = errors.Join(err, stopErr)
				code = max(code, 1)
			}
		}()
		environment = append(environment, postgrestest.URLVariable+"="+address)
	}
	return runCommand(args, environment, signals)
}

func runCommand(args, environment []string, signals <-chan os.Signal) (int, error) {
	// Not bound to a context: signals are forwarded and the command ends by itself.
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec // runs the given command on purpose
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, environment
	if err := cmd.Start(); err != nil {
		return notRun, fmt.Errorf("start the command: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			// The command may have ended, or the terminal may have sent it the signal, too.
			_ = cmd.Process.Signal(s)
		case err := <-done:
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
				return notRun, fmt.Errorf("run the command: %w", err)
			}
			return exitCode(cmd.ProcessState), nil
		}
	}
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
