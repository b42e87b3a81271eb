package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/everpost/everpost/internal/processtest"
)

// part is one process of an installation. It may live several times, always on the same addresses.
type part struct {
	name    string
	program string
	args    []string
	env     processtest.Settings
	log     *os.File
	process *processtest.Process
	address map[string]string // the fields of its ready line
}

// listens are the settings of addresses, with their fields in the ready line.
func listens() map[string]string {
	return map[string]string{
		"EVERPOST_LISTEN": "api", "EVERPOST_ADMIN_LISTEN": "admin", "EVERPOST_UI_LISTEN": "ui", "EVERPOST_TEMPORAL_LISTEN": "temporal",
	}
}

const startAgainAfter = 500 * time.Millisecond

// launch starts the process and does not wait for it.
func (p *part) launch() error {
	process, err := processtest.Launch(p.program, p.env, p.log, p.args...)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.process = process
	return nil
}

// ready waits until the process is up, and keeps its addresses for later lives. One that ends because something that it needs is not ready yet
// is started again, as by systemd.
func (p *part) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, processtest.StartPatience)
	defer cancel()
	address, err := p.process.Ready(ctx)
	for err != nil && pause(ctx, startAgainAfter) == nil {
		if err := p.launch(); err != nil {
			return err
		}
		address, err = p.process.Ready(ctx)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.address = address
	for setting, field := range listens() {
		if at := strings.TrimPrefix(address[field], "http://"); at != "" && p.env[setting] != "" {
			p.env[setting] = at
		}
	}
	if p.args[0] == temporalCommand {
		p.args = append(p.args[:1:1], "-database", p.args[2], "-listen", address["temporal"])
	}
	return nil
}

func (p *part) signal(s syscall.Signal) error {
	if err := p.process.Command.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// restart starts the process again when it has ended.
func (p *part) restart(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return err
	}
	return p.ready(ctx)
}

func (p *part) stop() error {
	if p.process == nil || !p.process.Running() {
		return nil
	}
	_ = p.signal(syscall.SIGCONT) // it may have been stopped
	if err := p.process.Terminate(); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

// restartDead starts all parts again that do not run, all at once.
func restartDead(ctx context.Context, parts []*part) error {
	var dead []*part
	for _, p := range parts {
		if !p.process.Running() {
			if err := p.launch(); err != nil {
				return err
			}
			dead = append(dead, p)
		}
	}
	var all []error
	for _, p := range dead {
		all = append(all, p.ready(ctx))
	}
	return errors.Join(all...)
}

// awaitEndOrAnswer waits until the process has ended, or answers: one that is about to end does not.
func (p *part) awaitEndOrAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	for p.process.Running() {
		if _, err := p.metric(ctx, "go_goroutines"); err == nil {
			return nil
		}
		if err := pause(ctx, startAgainAfter); err != nil {
			return fmt.Errorf("%s neither ends nor answers: %w", p.name, err)
		}
	}
	return nil
}

// metric reads a metric of the process that has no labels.
func (p *part) metric(ctx context.Context, name string) (float64, error) {
	failed := func(err error) (float64, error) { return 0, fmt.Errorf("read %s of %s: %w", name, p.name, err) }
	at := "http://" + strings.TrimPrefix(p.address["admin"], "http://") + "/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return failed(err)
	}
	caller := http.Client{Timeout: callTimeout}
	answer, err := caller.Do(request)
	if err != nil {
		return failed(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return failed(cmp.Or(lines.Err(), errors.New("there is no such metric")))
}
