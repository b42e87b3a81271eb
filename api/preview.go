package api

import (
	"context"
	"net/http"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// ReplayCounts counts sets of replays.
type ReplayCounts interface {
	// CountReplay counts the set that Replays.CreateReplay would fix now; nil if that takes too long. Its errors are
	// those of CreateReplay.
	CountReplay(ctx context.Context, r webhook.Replay) (*int64, error)
}

// DeadLetterGroups groups dead letters.
type DeadLetterGroups interface {
	// GroupDeadLetters groups a tenant's newest dead letters by endpoint, reason and last status.
	GroupDeadLetters(ctx context.Context, tenantID string, f webhook.DeliveryFilter) (webhook.DeadLetterGroups, error)
}

// previewReplay counts the deliveries that a replay would send, and changes nothing.
func (s *Server) previewReplay(c call) error {
	r, err := readReplay(c)
	if err != nil {
		return err
	}
	total, err := s.config.ReplayCounts.CountReplay(c.Request().Context(), r)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, client.ReplayPreview{Total: total})
}

func (s *Server) groupDeadLetters(c call) error {
	q := c.parameters(deadLetterFilters()...)
	f := deadLetterFilter(q)
	if err := q.problem(); err != nil {
		return err
	}
	if err := s.requireTenant(c); err != nil {
		return err
	}
	found, err := s.config.DeadLetterGroups.GroupDeadLetters(c.Request().Context(), c.tenant, f)
	if err != nil {
		return err
	}
	view := client.DeadLetterGroups{Groups: make([]client.DeadLetterGroup, 0, len(found.Groups)), Counted: found.Counted, More: found.More}
	for _, g := range found.Groups {
		view.Groups = append(view.Groups, client.DeadLetterGroup{
			EndpointID: g.EndpointID.String(), Reason: g.Reason, Status: nullable(g.Status), Count: g.Count,
			OldestAt: timestamp(g.Oldest), NewestAt: timestamp(g.Newest), ExampleID: g.Example.String(),
		})
	}
	return c.json(http.StatusOK, view)
}
