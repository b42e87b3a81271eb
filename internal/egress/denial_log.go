package egress

import (
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
)

const (
	// maxDenials bounds the endpoint and host pairs that are kept as logged.
	maxDenials = 1000
	// denialEvery is how often the same endpoint and host is logged. The tenant controls
	// the name and how often it is resolved.
	denialEvery = time.Hour
	// denialBurst bounds the log lines per minute over all names: with a DNS wildcard a
	// tenant can use a new name for each event.
	denialBurst  = 20
	denialWindow = time.Minute
)

// denialLog logs for the operator what must not be shown to a tenant: that a name exists and
// resolves to a denied address.
type denialLog struct {
	mu     sync.Mutex
	logged *cache.Map[string, time.Time] // by endpoint and host
	window time.Time                     // start of the minute in which lines are counted
	lines  int
	left   int // lines suppressed since the last one
}

func newDenialLog() *denialLog {
	return &denialLog{logged: cache.NewMap[string, time.Time](maxDenials)}
}

func (r *denialLog) log(logger *slog.Logger, t target, refusal *DeniedError) {
	now, key := time.Now(), t.endpoint+" "+t.host
	r.mu.Lock()
	before, _ := r.logged.Get(key, now)
	due := before.IsZero() || now.Sub(before) >= denialEvery
	if now.Sub(r.window) >= denialWindow {
		r.window, r.lines = now, 0
	}
	left := r.left
	switch {
	case due && r.lines < denialBurst:
		r.logged.Put(key, now, now)
		r.lines++
		r.left = 0
	case due:
		r.left++
		due = false
	}
	r.mu.Unlock()
	if due {
		logger.Warn("a name resolves to a denied address; its tenant sees that the name does not exist (dns_not_found)",
			"endpoint", t.endpoint, "host", t.host, "address", refusal.addr.String(), "why", refusal.Error(), "suppressed_before", left)
	}
}
