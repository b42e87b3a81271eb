package statistics

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// verdictCounts are the verdicts of filters that no flush has taken yet. They have a lock of their own: an event can have a verdict for each of a
// thousand endpoints, and the attempts of others do not wait for these to be counted.
type verdictCounts struct {
	mu      sync.Mutex
	entries map[key]verdicts
	held    int // rows of verdicts alone that are being written, or wait for that
	max     int // of entries and held rows
	dropped int64

	filled chan<- struct{} // that of pendingCounts
}

// verdicts are those of an endpoint in a minute.
type verdicts struct {
	tenant            string
	matched, filtered int64
}

func newVerdictCounts(limit int, filled chan<- struct{}) verdictCounts {
	return verdictCounts{entries: map[key]verdicts{}, max: limit, filled: filled}
}

// add counts what filters said of an event.
func (c *verdictCounts) add(tenantID string, at time.Time, all []webhook.FilterVerdict) {
	minute := minuteOf(at)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range all {
		k := key{v.EndpointID, minute}
		n, known := c.entries[k]
		if !known && len(c.entries)+c.held >= c.max {
			c.dropped++
			continue
		}
		if n.tenant = tenantID; v.Matched {
			n.matched++
		} else {
			n.filtered++
		}
		c.entries[k] = n
	}
	if nearlyFull(len(c.entries)+c.held, c.max) {
		signal(c.filled)
	}
}

// moveTo adds what was counted to the entries of the attempts, and begins anew.
func (c *verdictCounts) moveTo(entries map[key]*entry) {
	c.mu.Lock()
	taken := c.entries
	c.entries = make(map[key]verdicts, len(taken))
	c.mu.Unlock()
	for k, n := range taken {
		e := entries[k]
		if e == nil {
			e = &entry{tenant: n.tenant}
			entries[k] = e
		}
		e.counts.FilterMatched += n.matched
		e.counts.Filtered += n.filtered
	}
}

// dropBefore drops entries from before a time.
func (c *verdictCounts) dropBefore(limit time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.entries {
		if k.before(limit) {
			c.dropped += n.matched + n.filtered
			delete(c.entries, k)
		}
	}
}

// verdictRows is how many rows have verdicts alone.
func verdictRows(rows []webhook.StatisticsRow) (n int) {
	for i := range rows {
		counts := rows[i].Counts
		if counts.FilterMatched, counts.Filtered = 0, 0; counts == (webhook.Counts{}) {
			n++
		}
	}
	return n
}

// hold notes that rows of verdicts alone wait to be written; fewer than none: that they are written, or given up.
func (c *verdictCounts) hold(rows int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held += rows
}

func (c *verdictCounts) droppedCount() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}
