// Package statistics counts attempts and ends of deliveries per endpoint and minute, in memory, and
// writes the counts every few seconds.
package statistics

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// defaultFlushEvery is how often what was counted is written. A crash loses what was counted since.
	defaultFlushEvery = 10 * time.Second
	// flushTimeout bounds one write.
	flushTimeout = 10 * time.Second
	// stopPatience bounds how long Stop tries to write.
	stopPatience = 2 * time.Second
	// flushRows is how many rows one write has at most.
	flushRows = 5000
	// maxEntries bounds the endpoints and minutes with attempts and ends in memory, while PostgreSQL is away, with the totals that wait to be written.
	// maxVerdicts bounds those with verdicts of filters alone, which take no room from them. An entry has about 400 bytes, and 100 of verdicts that no
	// flush has taken.
	maxEntries  = 50_000
	maxVerdicts = 50_000
	// staleAfter is when counts that could not be written are dropped: the hour that they belong to
	// is about to be summed up (see internal/postgres/statistics).
	staleAfter = 24 * time.Hour
)

// Store stores statistics.
type Store interface {
	// AddStatistics adds the counts of a flush to those that are stored, once for each writer and
	// sequence number.
	AddStatistics(ctx context.Context, f webhook.StatisticsFlush) error
}

// Config is what a Recorder needs. All fields are required unless they say otherwise.
type Config struct {
	Store  Store
	Logger *slog.Logger
	Now    func() time.Time // the database's clock
	// FlushEvery is how often what was counted is written. Defaults to 10 s.
	FlushEvery time.Duration
}

// Recorder counts attempts and ends of deliveries, and verdicts of filters. It is safe for concurrent use.
type Recorder struct {
	store  Store
	log    *slog.Logger
	now    func() time.Time
	every  time.Duration
	writer [16]byte

	counts   pendingCounts
	verdicts verdictCounts

	// Used by one goroutine at a time: that of Start, and Stop after it.
	pending []webhook.StatisticsFlush
	seq     int64
	failed  bool // the last write has failed

	running sync.WaitGroup
	end     context.CancelFunc
}

// New makes a Recorder that has not been started.
func New(c Config) *Recorder {
	if c.FlushEvery == 0 {
		c.FlushEvery = defaultFlushEvery
	}
	r := &Recorder{store: c.Store, log: c.Logger, now: c.Now, every: c.FlushEvery, counts: newPendingCounts(maxEntries)}
	r.verdicts = newVerdictCounts(maxVerdicts, r.counts.filled)
	_, _ = rand.Read(r.writer[:]) // never fails: it crashes the process instead
	return r
}

// Counted counts what a write of a delivery has added: an attempt, unless a is nil, and the end of
// the delivery in a state, if ended is set. What goes to people's chats is not counted: it is no delivery of the tenant's.
func (r *Recorder) Counted(ref webhook.Ref, a *webhook.Attempt, state webhook.State, ended bool) {
	if ref.EventType == webhook.NotificationType {
		return
	}
	at := r.now()
	if a != nil {
		at = a.StartedAt.Add(a.Latency)
	}
	r.counts.add(ref, at, a, state, ended)
}

// Judged counts what filters of a tenant's endpoints said of an event that is stored.
func (r *Recorder) Judged(tenantID string, verdicts []webhook.FilterVerdict) {
	if len(verdicts) > 0 {
		r.verdicts.add(tenantID, r.now(), verdicts)
	}
}

// Dropped is how many attempts, ends and verdicts were not counted because too much waits to be written, or
// has waited for too long.
func (r *Recorder) Dropped() int64 { return r.counts.droppedCount() + r.verdicts.droppedCount() }

// Start begins to write in the background, until Stop or the end of ctx.
func (r *Recorder) Start(ctx context.Context) {
	ctx, r.end = context.WithCancel(ctx)
	r.running.Go(func() {
		tick := time.NewTicker(r.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.flush(ctx)
			case <-r.counts.filled:
				if !r.failed { // else the next tick tries again
					r.flush(ctx)
				}
			case <-ctx.Done():
				return
			}
		}
	})
}

// Stop ends the work in the background and writes what was counted, for two seconds or until ctx
// ends. What is left then is lost.
func (r *Recorder) Stop(ctx context.Context) {
	r.end()
	r.running.Wait() // a write that this cuts off is repeated now
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if !r.flush(ctx) {
		r.log.WarnContext(ctx, "the statistics of the last seconds are lost: they cannot be written, and the process ends")
	}
}

// flush writes what was counted; false if that did not succeed.
func (r *Recorder) flush(ctx context.Context) bool {
	r.dropStale()
	if !r.writePending(ctx) {
		return false
	}
	r.prepare()
	return r.writePending(ctx)
}

// writePending writes what is pending. A write that fails is repeated with its number at the next
// flush, because it may have been committed: then it does not count again.
func (r *Recorder) writePending(ctx context.Context) bool {
	for len(r.pending) > 0 {
		if err := r.write(ctx, r.pending[0]); err != nil {
			if !r.failed && ctx.Err() == nil {
				r.log.WarnContext(ctx, "statistics cannot be written; trying again", "error", err)
			}
			r.failed = true
			return false
		}
		r.failed = false
		r.release(r.pending[0].Rows)
		r.pending = r.pending[1:]
	}
	return true
}

// prepare makes flushes of what was counted, in the order of the rows' keys: writers that lock rows in
// different orders would deadlock.
func (r *Recorder) prepare() {
	taken := r.counts.take()
	r.verdicts.moveTo(taken)
	rows := withTotals(taken)
	verdicts := verdictRows(rows)
	r.counts.hold(len(rows) - verdicts)
	r.verdicts.hold(verdicts)
	for len(rows) > 0 {
		n := min(len(rows), flushRows)
		r.seq++
		r.pending = append(r.pending, webhook.StatisticsFlush{Writer: r.writer, Seq: r.seq, Rows: rows[:n:n]})
		rows = rows[n:]
	}
}

// release notes that rows are written, or given up.
func (r *Recorder) release(rows []webhook.StatisticsRow) {
	verdicts := verdictRows(rows)
	r.counts.hold(verdicts - len(rows))
	r.verdicts.hold(-verdicts)
}

// dropStale drops counts that are too old to be written.
func (r *Recorder) dropStale() {
	limit := r.now().Add(-staleAfter)
	r.counts.dropBefore(limit)
	r.verdicts.dropBefore(limit)
	for i := range r.pending {
		f := &r.pending[i]
		kept := f.Rows[:0]
		for _, row := range f.Rows {
			if row.Minute.Before(limit) {
				r.release([]webhook.StatisticsRow{row})
				r.counts.giveUp(&row)
				continue
			}
			kept = append(kept, row)
		}
		f.Rows = kept
	}
}

func (r *Recorder) write(ctx context.Context, f webhook.StatisticsFlush) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return r.store.AddStatistics(ctx, f)
}
