package api

import (
	"context"
	"net/http"

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
	return c.json(http.StatusOK, struct {
		Total *int64 `json:"total"`
	}{total})
}

// groupView is the API's view of a group of dead letters.
type groupView struct {
	EndpointID webhook.EndpointID `json:"endpoint_id"`
	Reason     string             `json:"reason"`
	Status     *int               `json:"status"`
	Count      int                `json:"count"`
	Oldest     timestamp          `json:"oldest_at"`
	Newest     timestamp          `json:"newest_at"`
	Example    webhook.DeliveryID `json:"example_id"`
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
	views := make([]groupView, 0, len(found.Groups))
	for _, g := range found.Groups {
		views = append(views, groupView{
			EndpointID: g.EndpointID, Reason: g.Reason, Status: nullable(g.Status), Count: g.Count,
			Oldest: timestamp(g.Oldest), Newest: timestamp(g.Newest), Example: g.Example,
		})
	}
	return c.json(http.StatusOK, struct {
		Groups  []groupView `json:"groups"`
		Counted int         `json:"counted"`
		More    bool        `json:"more"`
	}{views, found.Counted, found.More})
}
