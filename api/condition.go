package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointCondition is the condition of an endpoint, with a sentence. What waits for the endpoint is in its health.
type endpointCondition struct {
	id webhook.EndpointID
	client.EndpointCondition
}

// unhealthy reports whether a condition needs attention.
func unhealthy(code explain.Code) bool {
	return code != explain.EndpointOK && code != explain.EndpointIdle && code != explain.EndpointRises
}

const (
	conditionsFor     = 2 * time.Second
	maxConditionLists = 64
)

// conditionReader reads the conditions of endpoints.
type conditionReader struct {
	situations Situations
	now        func() time.Time
}

// cached makes a cache of conditions, by tenant and newest endpoint first, so that many readers
// cost as much as one. The caller closes it.
func (r conditionReader) cached() *cache.Cache[string, []endpointCondition] {
	return cache.New(cache.Config[string, []endpointCondition]{
		Limit: maxConditionLists, Life: func() time.Duration { return conditionsFor }, Fill: r.read,
		Translate: func(err error) error { return &webhook.Error{Code: webhook.CodeUnavailable, Err: err} },
	})
}

// read reads the conditions of all endpoints of a tenant.
func (r conditionReader) read(ctx context.Context, tenantID string) (read cache.Filled[[]endpointCondition], err error) {
	read.Value, err = r.matching(ctx, tenantID, "")
	return read, err
}

// matching reads the conditions of a tenant's endpoints with a text, which is in lower case; "" is in all.
func (r conditionReader) matching(ctx context.Context, tenantID, text string) (found []endpointCondition, err error) {
	endpoints, err := r.situations.TenantEndpoints(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e *webhook.Endpoint) bool {
		return e.Internal || !hasText(text, e.URL, e.Description, e.ID.String())
	})
	found = make([]endpointCondition, 0, len(endpoints))
	if text != "" && len(endpoints) == 0 { // as in most tenants of a search over all
		return found, nil
	}
	ids := make([]webhook.EndpointID, len(endpoints))
	for i := range endpoints {
		ids[i] = endpoints[i].ID
	}
	observed, stale, err := r.situations.Observed(ctx, tenantID, ids)
	if err != nil {
		return nil, err
	}
	now := r.now()
	for _, e := range slices.Backward(endpoints) {
		seen, known := observed[e.ID]
		health := &webhook.Health{Endpoint: *e, Observed: seen, Known: known, Stale: stale}
		explained, short := explain.Condition(health, now), explain.ConditionOf(health, now)
		found = append(found, endpointCondition{e.ID, client.EndpointCondition{
			EndpointID: e.ID.String(), TenantID: e.TenantID, URL: e.URL, Description: e.Description, EventTypes: e.EventTypes, State: stateOf(e.State),
			Condition: string(short.Code), Cause: nullable(short.Cause), Since: timestamp(short.Since), Code: string(explained.Code),
			Trouble: unhealthy(explained.Code), Summary: explained.Summary, CreatedAt: timestamp(e.CreatedAt),
		}})
	}
	return found, nil
}

// hasText reports whether a text in lower case is part of the URL, the description or the id of an endpoint.
func hasText(text, url, description, id string) bool {
	return text == "" || strings.Contains(strings.ToLower(url+"\n"+description+"\n"+id), text)
}

// isCondition reports whether the text is the code of a condition.
func isCondition(text string) bool {
	return slices.Contains(explain.ConditionCodes(), explain.ConditionCode(text))
}

// conditionHandler lists the conditions of endpoints.
type conditionHandler struct {
	reader  conditionReader
	cached  *cache.Cache[string, []endpointCondition] // by tenant
	tenants tenantReader
}

// conditions are those of a tenant's endpoints, at least of those with a text. A search over many tenants does not push the lists of others out of the cache.
func (h *conditionHandler) conditions(ctx context.Context, tenantID, text string) ([]endpointCondition, error) {
	if text == "" {
		return h.cached.Get(ctx, tenantID)
	}
	if known, ok := h.cached.Known(tenantID); ok {
		return known, nil
	}
	found, err := h.reader.matching(ctx, tenantID, text)
	if err != nil {
		return nil, &webhook.Error{Code: webhook.CodeUnavailable, Err: err}
	}
	return found, nil
}

// list lists the conditions of a tenant's endpoints, newest endpoint first.
func (h *conditionHandler) list(c call) error {
	q := c.query("endpoint-conditions", "state", "condition", "trouble", "text")
	state := q.text("state", func(v string) bool { return slices.Contains([]string{"active", "paused", "disabled"}, v) },
		`must be "active", "paused" or "disabled"`)
	condition := q.text("condition", isCondition, `must be "healthy", "slow", "at_limit", "failing", "circuit_open", "paused" or "disabled"`)
	trouble := q.text("trouble", func(v string) bool { return v == "true" || v == "false" }, `must be "true" or "false"`)
	text := strings.ToLower(q.text("text", func(v string) bool { return printable(v, maxName) }, notPrintable(maxName)))
	if err := q.problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	all, err := h.conditions(c.Request().Context(), c.tenant, text)
	if err != nil {
		return err
	}
	wanted := func(v endpointCondition) bool {
		return (state == "" || string(v.State) == state) && (condition == "" || v.Condition == condition) &&
			(trouble == "" || v.Trouble == (trouble == "true")) &&
			hasText(text, v.URL, v.Description, v.EndpointID)
	}
	fetch := func(limit int, after string) (found []endpointCondition, err error) {
		for _, v := range all {
			if after != "" && idPosition(v.id) >= after || !wanted(v) {
				continue
			}
			if found = append(found, v); len(found) == limit {
				break
			}
		}
		return found, nil
	}
	show := func(v endpointCondition) client.EndpointCondition { return v.EndpointCondition }
	return list(c, q, fetch, func(v endpointCondition) string { return idPosition(v.id) }, show)
}
