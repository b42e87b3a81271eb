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
	lists      *cache.Cache[string, conditionList] // by tenant
}

// conditionList is the conditions of a tenant's endpoints, newest endpoint first.
type conditionList struct {
	of  []*webhook.Endpoint // which they were when the conditions were read
	all []endpointCondition
}

// isOf reports whether a list is of these endpoints, each in this version. So the list that follows a change has it.
func (l conditionList) isOf(endpoints []*webhook.Endpoint) bool {
	return slices.EqualFunc(l.of, endpoints, func(a, b *webhook.Endpoint) bool { return a.ID == b.ID && a.Version == b.Version })
}

// newConditionReader makes a reader with a cache, so that many readers cost as much as one. The caller closes it.
func newConditionReader(situations Situations, now func() time.Time) *conditionReader {
	r := &conditionReader{situations: situations, now: now}
	r.lists = cache.New(cache.Config[string, conditionList]{
		Limit: maxConditionLists, Life: func() time.Duration { return conditionsFor }, Fill: r.read, Translate: unavailable,
	})
	return r
}

func unavailable(err error) error { return &webhook.Error{Code: webhook.CodeUnavailable, Err: err} }

func (r *conditionReader) close() { r.lists.Close() }

// ofTenant are the conditions of a tenant's endpoints, not older than conditionsFor.
func (r *conditionReader) ofTenant(ctx context.Context, tenantID string) ([]endpointCondition, error) {
	list, err := r.lists.Get(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	endpoints, err := r.situations.TenantEndpoints(ctx, tenantID)
	if err != nil {
		return nil, unavailable(err)
	}
	if !list.isOf(endpoints) {
		r.lists.Forget(tenantID)
		list, err = r.lists.Get(ctx, tenantID)
	}
	return list.all, err
}

// withText are the conditions of a tenant's endpoints, at least of those with a text, which is in lower case; "" is in all. A search over many tenants
// does not push the lists of others out of the cache.
func (r *conditionReader) withText(ctx context.Context, tenantID, text string) ([]endpointCondition, error) {
	if text == "" {
		return r.ofTenant(ctx, tenantID)
	}
	endpoints, err := r.situations.TenantEndpoints(ctx, tenantID)
	if err != nil {
		return nil, unavailable(err)
	}
	if list, ok := r.lists.Known(tenantID); ok && list.isOf(endpoints) {
		return list.all, nil
	}
	found, err := r.observe(ctx, tenantID, endpoints, text)
	if err != nil {
		return nil, unavailable(err)
	}
	return found, nil
}

// read reads the conditions of all endpoints of a tenant.
func (r *conditionReader) read(ctx context.Context, tenantID string) (read cache.Filled[conditionList], err error) {
	if read.Value.of, err = r.situations.TenantEndpoints(ctx, tenantID); err == nil {
		read.Value.all, err = r.observe(ctx, tenantID, read.Value.of, "")
	}
	return read, err
}

// observe reads the conditions of those of a tenant's endpoints that have a text, newest first.
func (r *conditionReader) observe(ctx context.Context, tenantID string, endpoints []*webhook.Endpoint, text string) ([]endpointCondition, error) {
	endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e *webhook.Endpoint) bool {
		return e.Internal || !hasText(text, e.URL, e.Description, e.ID.String())
	})
	found := make([]endpointCondition, 0, len(endpoints))
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
	reader  *conditionReader
	tenants tenantReader
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
	all, err := h.reader.withText(c.Request().Context(), c.tenant, text)
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
