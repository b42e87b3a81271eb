package monitor

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// rememberFor is how long a success is remembered at least: until the failures that were stored before it are read.
	rememberFor = 2 * refreshEvery
	// maxPending bounds the endpoints whose failures wait to be stored, while PostgreSQL is away.
	maxPending = 50_000
	// maxSuccesses bounds the endpoints whose last success is remembered, twice.
	maxSuccesses = 100_000
)

// counter gathers what this process sees of endpoints until it is stored. The success of an endpoint without failures
// needs no write: it is remembered for a while, in case another process has stored failures from before it.
type counter struct {
	mu      sync.Mutex
	pending map[webhook.EndpointID]*webhook.EndpointFailures
	failing map[webhook.EndpointID]struct{} // have stored failures, as far as this process knows
	wake    chan struct{}

	// The last successes: those since rotated, and those of the time before.
	recent, previous map[webhook.EndpointID]time.Time
	rotated          time.Time
}

func newCounter() *counter {
	return &counter{
		pending: map[webhook.EndpointID]*webhook.EndpointFailures{}, failing: map[webhook.EndpointID]struct{}{},
		wake: make(chan struct{}, 1), recent: map[webhook.EndpointID]time.Time{}, previous: map[webhook.EndpointID]time.Time{},
	}
}

// succeeded counts a success.
func (c *counter) succeeded(id webhook.EndpointID, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, failing := c.failing[id]
	if failing || c.pending[id] != nil {
		c.add(webhook.EndpointFailures{EndpointID: id, Succeeded: at})
	}
	if len(c.recent) < maxSuccesses {
		c.recent[id] = at
	}
}

// failed counts failures.
func (c *counter) failed(f webhook.EndpointFailures) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(f)
}

// add appends what was seen to what is pending. The caller holds the lock.
func (c *counter) add(seen webhook.EndpointFailures) {
	if pending := c.pending[seen.EndpointID]; pending != nil {
		pending.Add(seen)
	} else if len(c.pending) < maxPending {
		c.pending[seen.EndpointID] = &seen
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take removes and returns what is pending.
func (c *counter) take() []webhook.EndpointFailures {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]webhook.EndpointFailures, 0, len(c.pending))
	for _, pending := range c.pending {
		all = append(all, *pending)
	}
	clear(c.pending)
	return all
}

// restore makes pending again what could not be stored. What was seen since comes after it.
func (c *counter) restore(unstored []webhook.EndpointFailures) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seen := range unstored {
		if since := c.pending[seen.EndpointID]; since != nil {
			seen.Add(*since)
		}
		if len(c.pending) < maxPending {
			c.pending[seen.EndpointID] = &seen
		}
	}
}

// stored notes which endpoints have stored failures after a write.
func (c *counter) stored(seen []webhook.EndpointFailures, failing []webhook.FailingEndpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range seen {
		delete(c.failing, seen[i].EndpointID)
	}
	for i := range failing {
		c.failing[failing[i].EndpointID] = struct{}{}
		c.endWithSuccess(&failing[i])
	}
}

// loaded notes all endpoints that have stored failures.
func (c *counter) loaded(failing []webhook.FailingEndpoint, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.failing)
	for i := range failing {
		c.failing[failing[i].EndpointID] = struct{}{}
		c.endWithSuccess(&failing[i])
	}
	if now.Sub(c.rotated) >= rememberFor {
		c.recent, c.previous, c.rotated = c.previous, c.recent, now
		clear(c.recent)
	}
}

// endWithSuccess ends stored failures by a success that this process saw before it knew of the failures. What is pending
// came after that success. The caller holds the lock.
func (c *counter) endWithSuccess(e *webhook.FailingEndpoint) {
	at, ok := c.recent[e.EndpointID]
	if !ok {
		at = c.previous[e.EndpointID]
	}
	if at.Before(e.Since) {
		return
	}
	if pending := c.pending[e.EndpointID]; pending == nil {
		c.add(webhook.EndpointFailures{EndpointID: e.EndpointID, Succeeded: at})
	} else if pending.Succeeded.IsZero() {
		pending.Succeeded = at
	}
}
