package monitor

import (
	"context"
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

// retryStorms remembers which endpoints are to be checked, when they were last, and when they were warned about.
type retryStorms struct {
	mu              sync.Mutex
	checked, warned map[webhook.EndpointID]time.Time
	unchecked       []webhook.EndpointID // maxStormEntries at most
	wake            chan struct{}
}

func newRetryStorms() *retryStorms {
	return &retryStorms{
		checked: map[webhook.EndpointID]time.Time{}, warned: map[webhook.EndpointID]time.Time{}, wake: make(chan struct{}, 1),
	}
}

// retried notes a retry: the endpoint is to be checked, unless it was lately.
func (s *retryStorms) retried(id webhook.EndpointID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unchecked) >= maxStormEntries || !due(s.checked, id, now, stormCheckEvery) {
		return
	}
	s.unchecked = append(s.unchecked, id)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the endpoints that are to be checked.
func (s *retryStorms) take() []webhook.EndpointID {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.unchecked
	s.unchecked = nil
	return all
}

// warningDue reports whether a warning about the endpoint is due now, and counts as that warning.
func (s *retryStorms) warningDue(id webhook.EndpointID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return due(s.warned, id, now, stormWarnEvery)
}

func due(last map[webhook.EndpointID]time.Time, id webhook.EndpointID, now time.Time, every time.Duration) bool {
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

// watchRetryStorms checks the endpoints that are sent retries, until ctx ends.
func (m *Monitor) watchRetryStorms(ctx context.Context) {
	for {
		select {
		case <-m.notes.storms.wake:
			m.checkRetryStorms()
		case <-ctx.Done():
			return
		}
	}
}

func (m *Monitor) checkRetryStorms() {
	for _, id := range m.notes.storms.take() {
		m.checkRetryStorm(id, time.Now())
	}
}

// checkRetryStorm announces that the endpoint is in a retry storm, once an hour.
func (m *Monitor) checkRetryStorm(id webhook.EndpointID, now time.Time) {
	state, _ := m.admission.State(id)
	if !inRetryStorm(&state) || !m.notes.storms.warningDue(id, now) {
		return
	}
	m.metrics.RetryStorm()
	m.log.Warn("an endpoint is sent mostly retries", "endpoint", id, "retries", state.Retries, "first_attempts", state.First)
	m.notes.announce(pendingEvent{endpoint: id, event: webhook.OperationalEvent{
		Type: webhook.EventRetryStorm, At: now,
		Summary: explain.RetryStorm(state.First, state.Retries),
		// All processes use the same key for an hour, so that the event is stored once.
		Key: fmt.Sprintf("%s/%s/%s", webhook.EventRetryStorm, id, ByClock(m.now, now).UTC().Format("2006-01-02T15")),
	}})
}
