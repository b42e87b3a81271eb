package monitor

import (
	"fmt"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// An endpoint is in a retry storm when, over 15 minutes, it is sent more than stormRetries retries and more than
	// stormRatio for each first attempt.
	stormRetries = 100
	stormRatio   = 5
	// stormCheckEvery is how often an endpoint is checked, stormWarnEvery how often a warning about it is repeated.
	stormCheckEvery = 10 * time.Second
	stormWarnEvery  = time.Hour
	// maxStormEntries bounds the endpoints that are remembered for each of the two. Beyond it, an endpoint may be
	// checked, or warned about, sooner.
	maxStormEntries = 20_000
)

// retryStorms remembers when endpoints were checked and when they were warned about.
type retryStorms struct {
	mu              sync.Mutex
	checked, warned map[webhook.EndpointID]time.Time
}

func newRetryStorms() *retryStorms {
	return &retryStorms{checked: map[webhook.EndpointID]time.Time{}, warned: map[webhook.EndpointID]time.Time{}}
}

// checkDue reports whether the endpoint is to be checked now, and counts as that check.
func (s *retryStorms) checkDue(id webhook.EndpointID, now time.Time) bool {
	return s.due(s.checked, id, now, stormCheckEvery)
}

// warningDue reports whether a warning about the endpoint is due now, and counts as that warning.
func (s *retryStorms) warningDue(id webhook.EndpointID, now time.Time) bool {
	return s.due(s.warned, id, now, stormWarnEvery)
}

func (s *retryStorms) due(last map[webhook.EndpointID]time.Time, id webhook.EndpointID, now time.Time, every time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := last[id]; known && now.Sub(at) < every {
		return false
	}
	if len(last) >= maxStormEntries {
		for other, at := range last {
			if now.Sub(at) >= every {
				delete(last, other)
			}
		}
	}
	if len(last) >= maxStormEntries {
		clear(last)
	}
	last[id] = now
	return true
}

// inRetryStorm reports whether the attempts of the last 15 minutes are a retry storm.
func inRetryStorm(s *webhook.Observation) bool {
	return s.Retries > stormRetries && s.RetryRatio() > stormRatio
}

// checkRetryStorm announces that the endpoint is in a retry storm, once an hour.
func (m *Monitor) checkRetryStorm(id webhook.EndpointID, now time.Time) {
	state, _ := m.admission.State(id)
	if !inRetryStorm(&state) || !m.retryStorms.warningDue(id, now) {
		return
	}
	m.metrics.RetryStorm()
	m.log.Warn("an endpoint is sent mostly retries", "endpoint", id, "retries", state.Retries, "first_attempts", state.First)
	m.events.announce(pendingEvent{endpoint: id, event: webhook.OperationalEvent{
		Type: webhook.EventRetryStorm, At: now,
		Summary: explain.RetryStorm(state.First, state.Retries),
		// All processes use the same key for an hour, so that the event is stored once.
		Key: fmt.Sprintf("%s/%s/%s", webhook.EventRetryStorm, id, now.UTC().Format("2006-01-02T15")),
	}})
}
