package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// clockIsOff is from when on a process says that its clock differs from the database's.
	clockIsOff = time.Second
	// idPrecision is how far the time in an event's id may be off the database's clock.
	idPrecision = 10 * time.Millisecond
)

// clock is the database's clock as this process knows it. Processes compare times only
// through the database, so its clock is the one that counts: a host whose own clock is minutes
// off does the same at the same time as all others.
//
// Between two looks at the database the time goes on by the process's monotonic clock, so a
// step of its wall clock is not seen at all.
type clock struct {
	local func() time.Time
	log   *slog.Logger
	At    atomic.Pointer[reading]

	mu     sync.Mutex    // of learn
	logged time.Duration // the difference that was logged last
}

// reading is one moment on both clocks.
type reading struct{ Local, Database time.Time }

// newClock believes the local clock until the database was asked.
func newClock(local func() time.Time, log *slog.Logger) *clock {
	c := &clock{local: local, log: log}
	now := local()
	c.At.Store(&reading{Local: now, Database: now.UTC().Round(0)})
	return c
}

// now has no monotonic reading: it is for what others compare, and not to measure time with.
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

// learn takes in what the database's clock said at some moment between sent and received.
// What is known already is kept unless that contradicts it: a round trip says no more.
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
			c.log.Warn("this process's clock differs from the database's, which counts", slog.Duration("ahead", off))
		} else {
			c.log.Info("this process's clock agrees with the database's again")
		}
	}
}

// IDShift is by how much new ids are off, which are made with the machine's clock; 0 when that
// is of no consequence.
func (c *clock) idShift() time.Duration {
	if shift := time.Until(c.now()); shift.Abs() >= idPrecision {
		return shift.Round(time.Millisecond)
	}
	return 0
}
