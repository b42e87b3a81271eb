package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// scene is where a fault is injected.
type scene struct {
	in        *installation
	receivers *receivers
	load      *load
	tenant    string
	window    *window
}

// injection makes a fault. It returns when the fault is over and what it stopped is ready again.
type injection func(ctx context.Context, s *scene) error

func nothing(context.Context, *scene) error { return nil }

func (s *scene) parts(names []string) []*part {
	all := make([]*part, len(names))
	for i, name := range names {
		all[i] = s.in.part(name)
	}
	return all
}

// snapshot reads what is recorded just after a kill.
func (s *scene) snapshot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := s.in.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	s.window.recorded, err = readRecorded(ctx, conn, s.tenant)
	return err
}

// kill is kill -9 of some parts at once, and their start a moment later.
func kill(names ...string) injection {
	return func(ctx context.Context, s *scene) error {
		parts := s.parts(names)
		for _, p := range parts {
			p.process.Kill()
		}
		if s.in.database.Load() != nil {
			if err := s.snapshot(ctx); err != nil {
				return err
			}
		}
		return restartDead(ctx, parts)
	}
}

// killAll is kill -9 of every process at once, PostgreSQL included, and their immediate start.
func killAll(ctx context.Context, s *scene) error {
	postmaster, err := s.in.postmaster()
	if err != nil {
		return err
	}
	if err := errors.Join(signalAll(syscall.SIGKILL, s.in.parts...), syscall.Kill(postmaster, syscall.SIGKILL)); err != nil {
		return fmt.Errorf("kill everything: %w", err)
	}
	for _, p := range s.in.parts {
		<-p.process.Exited()
	}
	if s.in.database.Load() != nil {
		conn, err := s.in.dial(ctx)
		if err != nil {
			return err
		}
		_ = conn.Close(ctx)
	}
	for _, p := range s.in.parts { // Temporal first: the others need it to start
		if err := p.restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// terminate is SIGTERM, and a start when the process has ended.
func terminate(names ...string) injection {
	return func(ctx context.Context, s *scene) error {
		for _, p := range s.parts(names) {
			if err := p.stop(); err != nil {
				return err
			}
			if err := p.restart(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// awayFor is SIGTERM of Temporal, and a start much later.
func awayFor(d time.Duration) injection {
	return func(ctx context.Context, s *scene) error {
		temporal := s.in.part("temporal")
		if err := errors.Join(temporal.stop(), pause(ctx, d)); err != nil {
			return err
		}
		return temporal.restart(ctx)
	}
}

// runPrevious restarts a part with the previous release's binary, which gets new work beside the others for a while, and then with this release's.
func runPrevious(name string) injection {
	return func(ctx context.Context, s *scene) error {
		p, replace := s.in.part(name), terminate(name)
		p.program = s.in.binaries.previous
		err := replace(ctx, s)
		if err == nil {
			err = s.workBeside(ctx, p)
		}
		p.program = s.in.binaries.cluster
		return errors.Join(err, replace(ctx, s))
	}
}

// workBeside posts events until a process that has just started has its part of the work.
func (s *scene) workBeside(ctx context.Context, p *part) error {
	for n := range besideAtMost {
		s.load.post(ctx, 0, step{action: post, event: s.load.plan.events + n*besideEvents, events: besideEvents, endpoint: everyone})
		if err := pause(ctx, besideFor); err != nil {
			return err
		}
		if done, err := worked(ctx, p); done || err != nil {
			return err
		}
	}
	s.load.ledger.problemf("%s, of the previous release, has done nothing", p.name)
	return nil
}

// worked reports whether a process has done what it is there for: accept events, and make requests.
func worked(ctx context.Context, p *part) (bool, error) {
	metrics := []string{"everpost_events_accepted_total", "everpost_first_attempts_total"}
	switch {
	case strings.HasPrefix(p.name, "api"):
		metrics = metrics[:1]
	case strings.HasPrefix(p.name, "worker"):
		metrics = metrics[1:]
	}
	for _, name := range metrics {
		if n, err := p.metric(ctx, name); err != nil || n == 0 {
			return false, err
		}
	}
	return true, nil
}

// killAgain is kill of a part that has just recovered, three times over.
func killAgain(name string) injection {
	return func(ctx context.Context, s *scene) error {
		for range 3 {
			if err := kill(name)(ctx, s); err != nil {
				return err
			}
			s.window.recorded = nil // it is of one moment only
		}
		return nil
	}
}

// killAllButPostgres is kill -9 of every process at once but PostgreSQL, and their immediate start.
func killAllButPostgres(ctx context.Context, s *scene) error {
	for _, p := range s.in.parts {
		if err := p.signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	for _, p := range s.in.parts { // Temporal first: the others need it to start
		<-p.process.Exited()
		if err := p.restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopAll is stop of every process but PostgreSQL.
func stopAll(ctx context.Context, s *scene) error {
	names := make([]string, len(s.in.parts))
	for i, p := range s.in.parts {
		names[i] = p.name
	}
	return stopFor(names...)(ctx, s)
}

// failStore makes accesses to Temporal's store fail.
func failStore(ctx context.Context, s *scene) error {
	temporal := s.in.part("temporal")
	return s.during(ctx, func() error { return temporal.signal(storeFails) }, func() error { return temporal.signal(allWorks) })
}

// loseNamespace lets Temporal say that there is no such namespace.
func loseNamespace(ctx context.Context, s *scene) error {
	temporal := s.in.part("temporal")
	return errors.Join(temporal.signal(namespaceGone), pause(ctx, temporalGone), temporal.signal(allWorks))
}

// inTurn makes three faults, one after the other, that the seed chooses.
func inTurn(ctx context.Context, s *scene) error {
	random := rand.New(rand.NewPCG(s.load.plan.seed, 3))
	var all []class
	for _, c := range classes() {
		if slices.Contains(c.shapes, s.in.shape.name) && c.shortAndPlain() {
			all = append(all, c)
		}
	}
	for range 3 {
		c := all[random.IntN(len(all))]
		if err := c.inject(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		s.window.recorded, s.window.missed = nil, false // they are of one fault only
	}
	return nil
}

// stop is SIGSTOP and, after d, SIGCONT.
func stop(d time.Duration, names ...string) injection {
	return func(ctx context.Context, s *scene) error {
		parts := s.parts(names)
		s.window.frozen = true
		if err := signalAll(syscall.SIGSTOP, parts...); err != nil {
			return err
		}
		return errors.Join(pause(ctx, d), signalAll(syscall.SIGCONT, parts...))
	}
}

// stopFor is stop for as long as the plan says.
func stopFor(names ...string) injection {
	return func(ctx context.Context, s *scene) error { return stop(s.load.plan.faultFor, names...)(ctx, s) }
}

// during keeps something bad for as long as the plan says.
func (s *scene) during(ctx context.Context, begin, end func() error) error {
	return errors.Join(begin(), s.wait(ctx), end())
}

func (s *scene) wait(ctx context.Context) error { return pause(ctx, s.load.plan.faultFor) }

// onReceivers makes the links to all receivers bad.
func onReceivers(t toxic) injection {
	return func(ctx context.Context, s *scene) error { return s.poison(ctx, s.receivers.links[:], t) }
}

// onLinks makes the links bad whose names begin so.
func onLinks(prefix string, t toxic) injection {
	return func(ctx context.Context, s *scene) error { return s.poison(ctx, s.in.linksFrom(prefix), t) }
}

func (s *scene) poison(ctx context.Context, links []*link, t toxic) error {
	return s.during(ctx, func() error {
		var all []error
		for _, l := range links {
			all = append(all, l.poison(t))
		}
		return errors.Join(all...)
	}, func() error {
		for _, l := range links {
			l.heal()
		}
		return nil
	})
}

// cutLinks closes links and lets no new connection through.
func cutLinks(prefix string) injection {
	return func(ctx context.Context, s *scene) error {
		links := s.in.linksFrom(prefix)
		return s.during(ctx, func() error {
			for _, l := range links {
				l.cut()
			}
			return nil
		}, func() error {
			var all []error
			for _, l := range links {
				all = append(all, l.restore())
			}
			return errors.Join(all...)
		})
	}
}

func (in *installation) linksFrom(prefix string) []*link {
	var names []string
	for name := range in.links {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	links := make([]*link, len(names))
	for i, name := range names {
		links[i] = in.links[name]
	}
	return links
}

// holdReceivers lets no receiver answer.
func holdReceivers(ctx context.Context, s *scene) error {
	return s.held(func() error { return s.wait(ctx) })
}

// held calls f while no receiver answers.
func (s *scene) held(f func() error) error {
	for _, r := range s.receivers.all {
		r.Hold()
	}
	err := f()
	for _, r := range s.receivers.all {
		r.Release()
	}
	return err
}

// restartReceivers closes all receivers, with the requests under way, and starts them again.
func restartReceivers(ctx context.Context, s *scene) error {
	return s.during(ctx, func() error {
		for _, r := range s.receivers.all {
			r.Stop()
		}
		return nil
	}, func() error {
		var all []error
		for _, r := range s.receivers.all {
			all = append(all, r.Restart())
		}
		return errors.Join(all...)
	})
}

// reachTime bounds the wait for a process to reach a failpoint that the load leads to: the load is over by then.
const reachTime = 5 * time.Second

// atFailpoint arms a failpoint, waits until a process has died there, and starts that again. A point that is not reached does no harm.
func atFailpoint(name string) injection { return reach(name, reachTime) }

// reach is atFailpoint with another bound of the wait.
func reach(name string, within time.Duration) injection {
	return func(ctx context.Context, s *scene) error {
		if err := os.WriteFile(s.in.failpoint, []byte(name), 0o600); err != nil {
			return fmt.Errorf("arm failpoint %s: %w", name, err)
		}
		armed := time.Now()
		for s.in.allRun() {
			if time.Since(armed) > within {
				err := os.Remove(s.in.failpoint)
				if !errors.Is(err, fs.ErrNotExist) {
					s.window.missed = true
					return err
				}
				armed = time.Now() // a process has just reached it
			}
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
		s.window.start = time.Now()
		return restartDead(ctx, s.in.parts)
	}
}

func (in *installation) allRun() bool {
	return !slices.ContainsFunc(in.parts, func(p *part) bool { return !p.process.Running() })
}
