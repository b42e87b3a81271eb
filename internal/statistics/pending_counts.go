package statistics

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// key is an endpoint and a minute, in minutes since 1970.
type key struct {
	endpoint webhook.EndpointID
	minute   int64
}

func minuteOf(at time.Time) int64 { return at.Unix() / 60 } //nolint:mnd // seconds

// before reports whether the minute began before a time.
func (k key) before(limit time.Time) bool { return time.Unix(k.minute*60, 0).Before(limit) }

// nearlyFull reports whether n of a limit are four fifths or more.
func nearlyFull(n, limit int) bool { return 5*n >= 4*limit }

// signal tells the writer that there is much to be written.
func signal(filled chan<- struct{}) {
	select {
	case filled <- struct{}{}:
	default: // it is known
	}
}

// entry has the counts of a key.
type entry struct {
	tenant string
	counts webhook.Counts
}

// pendingCounts are the counts that no flush has taken yet.
type pendingCounts struct {
	mu      sync.Mutex
	entries map[key]*entry
	held    int // rows that are being written, or wait for that, without those of verdicts alone
	max     int // of entries and held rows
	dropped int64

	filled chan struct{} // receives a value while it is four fifths full
}

func newPendingCounts(limit int) pendingCounts {
	return pendingCounts{entries: map[key]*entry{}, max: limit, filled: make(chan struct{}, 1)}
}

// add counts an attempt, unless a is nil, and the end of its delivery in a state, if ended is set.
func (c *pendingCounts) add(ref webhook.Ref, at time.Time, a *webhook.Attempt, state webhook.State, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.of(ref.TenantID, ref.EndpointID, at)
	if e == nil {
		c.drop(a, ended)
		return
	}
	if a != nil {
		e.counts.AddAttempt(a)
	}
	if ended {
		e.counts.AddEnd(state)
	}
}

// of is the entry of an endpoint at a time; nil if there is no more room. The caller holds the lock.
func (c *pendingCounts) of(tenantID string, id webhook.EndpointID, at time.Time) *entry {
	k := key{id, minuteOf(at)}
	e := c.entries[k]
	if e != nil {
		return e
	}
	if len(c.entries)+c.held >= c.max {
		return nil
	}
	e = &entry{tenant: tenantID}
	c.entries[k] = e
	if nearlyFull(len(c.entries)+c.held, c.max) {
		signal(c.filled)
	}
	return e
}

// drop counts what add would have counted as dropped. The caller holds the lock.
func (c *pendingCounts) drop(a *webhook.Attempt, ended bool) {
	if a != nil {
		c.dropped++
	}
	if ended {
		c.dropped++
	}
}

// take removes and returns what was counted.
func (c *pendingCounts) take() map[key]*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.entries
	c.entries = make(map[key]*entry, len(taken))
	return taken
}

// hold notes that rows wait to be written; fewer than none: that they are written, or given up.
func (c *pendingCounts) hold(rows int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held += rows
}

// dropBefore drops entries from before a time.
func (c *pendingCounts) dropBefore(limit time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.entries {
		if k.before(limit) {
			c.dropped += lost(&e.counts)
			delete(c.entries, k)
		}
	}
}

// giveUp counts as dropped what is in a row that waits to be written.
func (c *pendingCounts) giveUp(row *webhook.StatisticsRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !row.EndpointID.IsZero() { // totals say the same again
		c.dropped += lost(&row.Counts)
	}
}

func (c *pendingCounts) droppedCount() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// lost is how many attempts, ends and verdicts are in counts.
func lost(c *webhook.Counts) (n int64) {
	for _, ends := range c.Ended {
		n += ends
	}
	return n + c.Total() + c.FilterMatched + c.Filtered
}

// withTotals returns the rows of what was counted, with one for each tenant and one for all of them,
// per minute, in the order of their keys. So a total is one row to read, however many endpoints
// there are.
func withTotals(entries map[key]*entry) []webhook.StatisticsRow {
	type total struct {
		tenant string
		minute int64
	}
	rows := make([]webhook.StatisticsRow, 0, len(entries)+2)
	totals := map[total]*webhook.Counts{}
	for k, e := range entries {
		rows = append(rows, webhook.StatisticsRow{TenantID: e.tenant, EndpointID: k.endpoint, Minute: time.Unix(k.minute*60, 0).UTC(), Counts: e.counts})
		for _, of := range []total{{e.tenant, k.minute}, {"", k.minute}} {
			if totals[of] == nil {
				totals[of] = &webhook.Counts{}
			}
			totals[of].Add(&e.counts)
		}
	}
	for of, counts := range totals {
		rows = append(rows, webhook.StatisticsRow{TenantID: of.tenant, Minute: time.Unix(of.minute*60, 0).UTC(), Counts: *counts})
	}
	slices.SortFunc(rows, func(a, b webhook.StatisticsRow) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), bytes.Compare(a.EndpointID[:], b.EndpointID[:]), a.Minute.Compare(b.Minute))
	})
	return rows
}
