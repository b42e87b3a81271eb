package api

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// conditionView says in a sentence how an endpoint is doing, for lists. What waits for the endpoint is
// in its health.
type conditionView struct {
	EndpointID  webhook.EndpointID    `json:"endpoint_id"`
	URL         string                `json:"url"`
	Description string                `json:"description"`
	EventTypes  []string              `json:"event_types"`
	State       webhook.EndpointState `json:"state"`
	Code        explain.Code          `json:"code"`
	Trouble     bool                  `json:"trouble"`
	Summary     string                `json:"summary"`
	CreatedAt   timestamp             `json:"created_at"`
}

// troubled reports whether a condition of an endpoint needs a person's look.
func troubled(code explain.Code) bool {
	return code != explain.EndpointOK && code != explain.EndpointIdle && code != explain.EndpointRises
}

// conditions keeps the conditions of the tenants whose lists were read last, so that many readers cost
// as much as one.
type conditions struct {
	mu sync.Mutex
	of map[string]*tenantConditions
}

// tenantConditions are read by one caller at a time.
type tenantConditions struct {
	mu   sync.Mutex
	at   time.Time
	list []conditionView // newest first
}

const (
	conditionsFor     = 2 * time.Second
	maxConditionLists = 64
)

// listEndpointConditions lists the conditions of a tenant's endpoints, newest endpoint first.
func (s *Server) listEndpointConditions(c call) error {
	q := c.query("endpoint-conditions", "state", "trouble", "text")
	state := q.text("state", func(v string) bool { return slices.Contains([]string{"active", "paused", "disabled"}, v) },
		`must be "active", "paused" or "disabled"`)
	trouble := q.text("trouble", func(v string) bool { return v == "true" || v == "false" }, `must be "true" or "false"`)
	text := strings.ToLower(q.text("text", func(v string) bool { return printable(v, maxName) }, notPrintable(maxName)))
	if err := q.problem(); err != nil {
		return err
	}
	if err := s.requireTenant(c); err != nil {
		return err
	}
	all, err := s.conditionsOf(c.Request().Context(), c.tenant)
	if err != nil {
		return err
	}
	wanted := func(v conditionView) bool {
		return (state == "" || v.State.String() == state) && (trouble == "" || v.Trouble == (trouble == "true")) &&
			(text == "" || strings.Contains(strings.ToLower(v.URL+"\n"+v.Description+"\n"+v.EndpointID.String()), text))
	}
	fetch := func(limit int, after string) (found []conditionView, err error) {
		for _, v := range all {
			if after != "" && idPosition(v.EndpointID) >= after || !wanted(v) {
				continue
			}
			if found = append(found, v); len(found) == limit {
				break
			}
		}
		return found, nil
	}
	return list(c, q, fetch, func(v conditionView) string { return idPosition(v.EndpointID) }, func(v conditionView) conditionView { return v })
}

// conditionsOf returns the conditions of all endpoints of a tenant, at most conditionsFor old.
func (s *Server) conditionsOf(ctx context.Context, tenantID string) ([]conditionView, error) {
	entry := s.conditions.entry(tenantID)
	entry.mu.Lock()
	defer entry.mu.Unlock()
	now := s.config.Now()
	if !entry.at.IsZero() && now.Sub(entry.at) < conditionsFor {
		return entry.list, nil
	}
	endpoints, err := s.config.Situations.TenantEndpoints(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	ids := make([]webhook.EndpointID, len(endpoints))
	for i := range endpoints {
		ids[i] = endpoints[i].ID
	}
	observed, err := s.config.Situations.Observed(ctx, tenantID, ids)
	if err != nil {
		return nil, err
	}
	fresh := make([]conditionView, 0, len(endpoints))
	for _, e := range slices.Backward(endpoints) {
		seen, known := observed[e.ID]
		explained := explain.Condition(&webhook.Health{Endpoint: e, Observed: seen, Known: known}, now)
		fresh = append(fresh, conditionView{
			EndpointID: e.ID, URL: e.URL, Description: e.Description, EventTypes: e.EventTypes, State: e.State,
			Code: explained.Code, Trouble: troubled(explained.Code), Summary: explained.Summary, CreatedAt: timestamp(e.CreatedAt),
		})
	}
	entry.list, entry.at = fresh, now
	return fresh, nil
}

// entry returns the tenant's entry. Beyond a bound all entries are forgotten, and read again when they are wanted.
func (c *conditions) entry(tenantID string) *tenantConditions {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.of[tenantID]; entry != nil {
		return entry
	}
	if len(c.of) >= maxConditionLists {
		clear(c.of)
	}
	entry := &tenantConditions{}
	c.of[tenantID] = entry
	return entry
}
