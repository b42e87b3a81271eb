package monitor

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// defaultShareEvery is how often a process publishes what it sees of unhealthy endpoints.
	defaultShareEvery = 3 * time.Second
	// closingsEvery is how often a process with an open circuit looks for circuits that a person has closed.
	closingsEvery = time.Second
	// shareTimeout bounds one read or write.
	shareTimeout = 5 * time.Second
	// maxShared bounds the endpoints that are published: a statement of about 2 MB.
	maxShared = 5000
)

// Shared stores what the processes share with each other.
type Shared interface {
	// WriteObservations replaces what the process of this name sees. Other processes use it for 30 s.
	WriteObservations(ctx context.Context, process string, seen map[webhook.EndpointID]webhook.Observation) error
	// CircuitClosings are those of the endpoints whose circuit a person has closed, and when.
	CircuitClosings(ctx context.Context, of []webhook.EndpointID) (map[webhook.EndpointID]time.Time, error)
}

// sharing publishes which endpoints are unhealthy as this process sees it, and closes the circuits that a person has
// closed through any process.
type sharing struct {
	store     Shared
	admission Admission
	log       *slog.Logger
	process   string
	every     time.Duration

	published bool // there is something to withdraw; only used by publish, and by withdraw after it
}

func newSharing(c Config) *sharing {
	return &sharing{
		store: c.Shared, admission: c.Admission, log: c.Logger, process: c.Process, every: cmp.Or(c.ShareEvery, defaultShareEvery),
		published: true, // an earlier process of this name may have published something
	}
}

// publish publishes what this process sees every few seconds, until ctx ends. While all endpoints are healthy it writes
// nothing. A write under way is not cut off with ctx, but with writing: one that was cut off might be carried out after
// a later one.
func (s *sharing) publish(ctx, writing context.Context) {
	tick := time.Tick(s.every)
	failed := false
	for {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
		unhealthy := s.unhealthy()
		if len(unhealthy) == 0 && !s.published {
			continue
		}
		err := s.write(writing, unhealthy)
		if err != nil && !failed && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the health of endpoints cannot be shared with other processes; trying again", "error", err)
		}
		failed = err != nil
		s.published = failed || len(unhealthy) > 0
	}
}

// withdraw removes what this process has published: a process that has ended sees nothing.
func (s *sharing) withdraw(ctx context.Context) {
	if s.published {
		_ = s.write(ctx, nil)
	}
}

func (s *sharing) write(ctx context.Context, seen map[webhook.EndpointID]webhook.Observation) error {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	return s.store.WriteObservations(ctx, s.process, seen)
}

// unhealthy is what the admission sees of unhealthy endpoints. When there are too many, those that are sent nothing come
// first.
func (s *sharing) unhealthy() map[webhook.EndpointID]webhook.Observation {
	blocked, others := map[webhook.EndpointID]webhook.Observation{}, map[webhook.EndpointID]webhook.Observation{}
	s.admission.EachUnhealthy(func(id webhook.EndpointID, seen webhook.Observation) {
		into := others
		if seen.Rate == 0 {
			into = blocked
		}
		if len(into) < maxShared {
			into[id] = seen
		}
	})
	for id := range others {
		if len(blocked) >= maxShared {
			break
		}
		blocked[id] = others[id]
	}
	return blocked
}

// followClosings closes the circuits of this process that a person has closed through any process, until ctx ends.
func (s *sharing) followClosings(ctx context.Context) {
	tick := time.Tick(closingsEvery)
	failed := false
	for {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
		open := s.admission.OpenCircuits()
		if len(open) == 0 {
			continue
		}
		err := s.closeCircuits(ctx, open)
		if err != nil && !failed && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the circuits that people have closed cannot be read; trying again", "error", err)
		}
		failed = err != nil
	}
}

// closeCircuits closes those of the open circuits that a person has closed.
func (s *sharing) closeCircuits(ctx context.Context, open []webhook.EndpointID) error {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	closed, err := s.store.CircuitClosings(ctx, open)
	if err != nil {
		return err
	}
	for id, at := range closed {
		s.admission.CloseCircuit(id, at)
	}
	return nil
}
