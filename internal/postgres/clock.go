package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// clockIsOff is the difference between the clocks from which on it is logged.
	clockIsOff = time.Second
	// idPrecision is how far the time in an event's id may be off the database's clock.
	idPrecision = 10 * time.Millisecond
)

// clock estimates the database's clock. Every time that processes compare is by that clock, so a
// host whose own clock is minutes off acts at the same time as all others.
//
// Between two readings the estimate advances with the process's monotonic clock, so steps of its
// wall clock have no effect.
type clock struct {
	local func() time.Time
	log   *slog.Logger
	At    atomic.Pointer[reading]

	mu     sync.Mutex    // held by learn
	logged time.Duration // the difference that was logged last
}

// reading is one moment on both clocks.
type reading struct{ Local, Database time.Time }

// newClock starts with the local clock, until the first reading.
func newClock(local func() time.Time, log *slog.Logger) *clock {
	c := &clock{local: local, log: log}
	now := local()
	c.At.Store(&reading{Local: now, Database: now.UTC().Round(0)})
	return c
}

// now has no monotonic reading: use it for times that are stored or compared, not to measure durations.
func (c *clock) now() time.Time {
	at := c.At.Load()
	return at.Database.Add(c.local().Sub(at.Local))
}

// offset is how far the local clock is ahead of the database's.
func (c *clock) offset() time.Duration { return c.local().Round(0).Sub(c.now()) }

// ask reads the database's clock.
func (c *clock) ask(ctx context.Context, db Querier) error {
	var database time.Time
	sent := c.local()
	if err := db.QueryRow(ctx, `select clock_timestamp()`).Scan(&database); err != nil {
		return err
	}
	c.learn(sent, database, c.local())
	return nil
}

// learn updates the estimate with a reading of the database's clock, made at some moment between
// sent and received. The estimate stays as it is unless the reading contradicts it.
func (c *clock) learn(sent, database, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	earliest := database.UTC()
	latest := earliest.Add(received.Sub(sent))
	at := c.At.Load()
	switch known := at.Database.Add(received.Sub(at.Local)); {
	case known.Before(earliest):
		c.At.Store(&reading{Local: received, Database: earliest})
	case known.After(latest):
		c.At.Store(&reading{Local: received, Database: latest})
	}
	if off := c.offset(); (off - c.logged).Abs() >= clockIsOff {
		c.logged = off
		if off.Abs() >= clockIsOff {
			c.log.Warn("this process's clock differs from the database's; times are the database's", slog.Duration("ahead", off))
		} else {
			c.log.Info("this process's clock agrees with the database's again")
		}
	}
}

// idShift is what to add to the machine's clock when making ids; 0 when the difference is too
// small to matter.
func (c *clock) idShift() time.Duration {
	if shift := time.Until(c.now()); shift.Abs() >= idPrecision {
		return shift.Round(time.Millisecond)
	}
	return 0
}
