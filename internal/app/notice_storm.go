package app

import (
	"fmt"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// An endpoint is in a retry storm when, over 15 min, it is sent more than stormRetries
	// retries and more than stormRatio for each first attempt.
	stormRetries = 100
	stormRatio   = 5
	// stormLook is how often an endpoint is looked at, stormPause how often it is warned of.
	stormLook  = 10 * time.Second
	stormPause = time.Hour
	// maxStorms bounds the endpoints that are remembered in either way; beyond it, an
	// endpoint may be looked at, or warned of, sooner.
	maxStorms = 20_000
)

// storms remembers which endpoints were looked at, and which were warned of, and when.
type storms struct {
	mu             *sync.Mutex
	looked, warned map[webhook.EndpointID]time.Time
}

func newStorms() storms {
	return storms{mu: &sync.Mutex{}, looked: map[webhook.EndpointID]time.Time{}, warned: map[webhook.EndpointID]time.Time{}}
}

// due says whether the endpoint is to be looked at now.
func (s *storms) due(id webhook.EndpointID, now time.Time) bool {
	return s.first(s.looked, id, now, stormLook)
}

// warn says whether it is to be warned of now.
func (s *storms) warn(id webhook.EndpointID, now time.Time) bool {
	return s.first(s.warned, id, now, stormPause)
}

// first is true once in a while for each id.
func (s *storms) first(seen map[webhook.EndpointID]time.Time, id webhook.EndpointID, now time.Time, pause time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := seen[id]; known && now.Sub(at) < pause {
		return false
	}
	if len(seen) >= maxStorms {
		for other, at := range seen {
			if now.Sub(at) >= pause {
				delete(seen, other)
			}
		}
	}
	if len(seen) >= maxStorms {
		clear(seen)
	}
	seen[id] = now
	return true
}

// inStorm reports whether these attempts are a retry storm.
func inStorm(r admission.Recent) bool { return r.Retries > stormRetries && r.RetryRatio() > stormRatio }

// checkStorm warns when the endpoint is in a retry storm, once an hour.
func (w *watch) checkStorm(id webhook.EndpointID, now time.Time) {
	recent := w.gate.Health(id).Recent
	if !inStorm(recent) || !w.storms.warn(id, now) {
		return
	}
	w.RetryStorm()
	w.log.Warn("an endpoint is sent mostly retries", "endpoint", id, "retries", recent.Retries, "first_attempts", recent.First)
	w.note(job{endpoint: id, notice: webhook.Notice{
		Type: webhook.NoticeRetryStorm, At: now,
		Summary: fmt.Sprintf("within 15 minutes the endpoint was sent %s, and %s",
			plural(recent.First, "first attempt"), retries(recent.Retries)),
		Key: fmt.Sprintf("%s/%s/%s", webhook.NoticeRetryStorm, id, now.UTC().Format("2006-01-02T15")), // of several processes, one tells
	}})
}

func retries(n int) string {
	if n == 1 {
		return "1 retry"
	}
	return fmt.Sprintf("%d retries", n)
}
