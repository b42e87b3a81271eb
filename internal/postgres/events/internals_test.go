package events

import (
	"context"

	"github.com/everpost/everpost/internal/postgres"
)

// WriteBy replaces the function that writes a flush.
func (s *Events) WriteBy(flush func(context.Context, []*posting) error) {
	s.ingest.Stop()
	s.ingest = postgres.NewWriter("accept event", postingWeight, flush, nil)
}

// InFlight is the keys of requests under way.
func (s *Events) InFlight() *keysUnderWay { return &s.inFlight }

// SendsDeliveries makes the process one that sends to endpoints.
func (s *Events) SendsDeliveries() { s.sends = true }
