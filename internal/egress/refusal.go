package egress

import (
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
)

const (
	// maxRefusals bounds the names that are remembered as logged.
	maxRefusals = 1000
	// refusalEvery is how often a name is logged that leads to where no request may go. It
	// is a tenant who chooses the name, and how often it is asked for.
	refusalEvery = time.Hour
	// refusalBurst bounds the lines of a minute over all names: with a wildcard in the DNS a
	// tenant has as many names as there are events.
	refusalBurst  = 20
	refusalWindow = time.Minute
)

// refusals tells the operator what a tenant is not told: that a name exists, and leads to
// an address that is refused.
type refusals struct {
	mu     sync.Mutex
	logged *cache.Map[string, time.Time] // by endpoint and host
	window time.Time                     // when the minute began in which lines are counted
	lines  int
	left   int // lines that were left out since the last one
}

func newRefusals() *refusals { return &refusals{logged: cache.NewMap[string, time.Time](maxRefusals)} }

func (r *refusals) log(logger *slog.Logger, t target, refusal *DeniedError) {
	now, key := time.Now(), t.endpoint+" "+t.host
	r.mu.Lock()
	before, _ := r.logged.Get(key, now)
	due := before.IsZero() || now.Sub(before) >= refusalEvery
	if now.Sub(r.window) >= refusalWindow {
		r.window, r.lines = now, 0
	}
	left := r.left
	switch {
	case due && r.lines < refusalBurst:
		r.logged.Put(key, now, now)
		r.lines++
		r.left = 0
	case due:
		r.left++
		due = false
	}
	r.mu.Unlock()
	if due {
		logger.Warn("a name leads to where no request may go; its tenant is told that it does not exist (dns_not_found)",
			"endpoint", t.endpoint, "host", t.host, "address", refusal.addr.String(), "why", refusal.Error(), "left_out_before", left)
	}
}
