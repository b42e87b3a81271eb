package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// wrongClock is terminate, with a clock that is ten minutes ahead or behind in the part's next life. The one after that has a right one.
func wrongClock(name string) injection {
	return func(ctx context.Context, s *scene) error {
		p, by := s.in.part(name), "10m"
		if s.load.plan.seed%2 == 0 {
			by = "-10m"
		}
		p.env["EVERPOST_FAILPOINT_CLOCK"] = by
		defer delete(p.env, "EVERPOST_FAILPOINT_CLOCK")
		if err := errors.Join(terminate(name)(ctx, s), s.wait(ctx)); err != nil {
			return err
		}
		delete(p.env, "EVERPOST_FAILPOINT_CLOCK")
		return terminate(name)(ctx, s)
	}
}

// clockPostgres is the class of a wrong clock of the database.
const clockPostgres = "clock-postgres"

const (
	clockStep = 5 * time.Second  // leases, which last 8 s, and claims, of 6 s, do not end by it
	clockSoon = 15 * time.Second // until a step is seen
)

// faketime is the library that gives PostgreSQL another clock, "" if it is not installed.
func faketime() string {
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// stepClock steps the database's clock, which all processes use, forward, and back after a while. PostgreSQL runs with libfaketime meanwhile; it
// is restarted before and after.
func stepClock(ctx context.Context, s *scene) error {
	file := filepath.Join(s.in.home, "clock")
	set := func(by time.Duration) error { return os.WriteFile(file, fmt.Appendf(nil, "%+g", by.Seconds()), 0o644) }
	step := func(by time.Duration) error { return errors.Join(set(by), s.awaitClock(ctx, by), s.wait(ctx)) }
	restart := func(env ...string) error {
		s.in.preload = env
		if err := s.in.database.Load().Stop(ctx); err != nil {
			return fmt.Errorf("stop PostgreSQL: %w", err)
		}
		return s.in.superviseDatabase(ctx)
	}
	if err := set(0); err != nil {
		return err
	}
	if err := restart("LD_PRELOAD="+faketime(), "FAKETIME_TIMESTAMP_FILE="+file, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"); err != nil {
		return err
	}
	return errors.Join(step(clockStep), step(0), restart())
}

// awaitClock waits until the database's clock is ahead by so much.
func (s *scene) awaitClock(ctx context.Context, by time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, clockSoon, errors.New("the database's clock did not step"))
	defer cancel()
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
		for {
			var now time.Time
			if err := conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
				return fmt.Errorf("read the database's clock: %w", err)
			}
			if (time.Until(now) - by).Abs() < time.Second {
				return nil
			}
			if err := pause(ctx, leftTick); err != nil {
				return fmt.Errorf("wait for another clock: %w", err)
			}
		}
	})
}
