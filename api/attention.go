package api

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// Attention reads what needs attention.
type Attention interface {
	// TroubledTenants returns the tenants that may need attention, at most limit, first those with endpoints that are not entirely healthy.
	TroubledTenants(ctx context.Context, limit int) ([]webhook.TroubledTenant, error)
	// UndeliveredOf counts what has not arrived of a tenant's endpoints. An endpoint without any is not in the result.
	UndeliveredOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Undelivered, error)
	// OpenCounts counts what waits and what was given up of a tenant.
	OpenCounts(ctx context.Context, tenantID string) (webhook.OpenCounts, error)
}

const (
	attentionFor       = 5 * time.Second
	maxAttentionCounts = 1000
	maxTroubled        = 20              // tenants that are shown
	maxTroubledLooks   = 2 * maxTroubled // that are looked at closely, as some turn out to need none; each costs its list of conditions and three counts
	maxTroubledShown   = 50              // endpoints
)

// attentionReader reads what needs attention. Its answers are kept for attentionFor, so that many readers cost as much as one.
type attentionReader struct {
	log        *slog.Logger
	store      Attention
	conditions *conditionReader
	ofTenant   *cache.Cache[string, client.TenantAttention]
	ofAll      *cache.Cache[struct{}, client.Attention]
}

// newAttentionReader makes a reader. The caller closes its caches.
func newAttentionReader(log *slog.Logger, store Attention, conditions *conditionReader) *attentionReader {
	r := &attentionReader{log: log, store: store, conditions: conditions}
	unavailable := func(err error) error { return &webhook.Error{Code: webhook.CodeUnavailable, Err: err} }
	life := func() time.Duration { return attentionFor }
	r.ofTenant = cache.New(cache.Config[string, client.TenantAttention]{Limit: maxAttentionCounts, Life: life, Fill: r.readTenant, Translate: unavailable})
	r.ofAll = cache.New(cache.Config[struct{}, client.Attention]{Limit: 1, Life: life, Fill: r.readAll, Translate: unavailable})
	return r
}

func (r *attentionReader) close() {
	r.ofTenant.Close()
	r.ofAll.Close()
}

func (r *attentionReader) readTenant(ctx context.Context, tenantID string) (read cache.Filled[client.TenantAttention], err error) {
	troubled, err := r.troubled(ctx, tenantID)
	if err != nil {
		return read, err
	}
	counts, err := r.store.OpenCounts(ctx, tenantID)
	read.Value = client.TenantAttention{
		Endpoints: len(troubled), Waiting: counts.Waiting, DeadLetters: counts.DeadLetters, DeadLettersLastHour: counts.LastHour,
	}
	return read, err
}

// troubled are the endpoints of a tenant that need attention.
func (r *attentionReader) troubled(ctx context.Context, tenantID string) (troubled []endpointCondition, err error) {
	all, err := r.conditions.ofTenant(ctx, tenantID)
	for i := range all {
		if all[i].Trouble {
			troubled = append(troubled, all[i])
		}
	}
	return troubled, err
}

// addUndelivered adds to the endpoints what has not arrived, by a read for each tenant. What cannot be read is left out.
func (r *attentionReader) addUndelivered(ctx context.Context, troubled []endpointCondition) []client.TroubledEndpoint {
	ofTenant := map[string][]webhook.EndpointID{}
	for i := range troubled {
		ofTenant[troubled[i].TenantID] = append(ofTenant[troubled[i].TenantID], troubled[i].id)
	}
	counts, unread := map[webhook.EndpointID]webhook.Undelivered{}, map[string]bool{}
	for tenantID, ids := range ofTenant {
		read, err := r.store.UndeliveredOf(ctx, tenantID, ids)
		if err != nil {
			r.log.WarnContext(ctx, "what has not arrived at endpoints could not be counted", "tenant_id", tenantID, "error", err)
			unread[tenantID] = true
			continue
		}
		maps.Copy(counts, read)
	}
	shown := make([]client.TroubledEndpoint, len(troubled))
	for i := range troubled {
		shown[i].EndpointCondition = troubled[i].EndpointCondition
		if n := counts[troubled[i].id]; !unread[troubled[i].TenantID] {
			shown[i].Waiting, shown[i].Held, shown[i].GivenUp = &n.Waiting, &n.Held, &n.GivenUp
		}
	}
	return shown
}

func (r *attentionReader) readAll(ctx context.Context, _ struct{}) (read cache.Filled[client.Attention], err error) {
	tenants, err := r.store.TroubledTenants(ctx, maxTroubledLooks+1)
	if err != nil {
		return read, err
	}
	v, worst := client.Attention{Tenants: []client.TroubledTenant{}}, []endpointCondition{}
	if len(tenants) > maxTroubledLooks {
		v.More, tenants = true, tenants[:maxTroubledLooks]
	}
	for _, t := range tenants {
		if len(v.Tenants) == maxTroubled {
			v.More = true
			break
		}
		counts, err := r.ofTenant.Get(ctx, t.TenantID)
		if webhook.CodeOf(err) == webhook.CodeNotFound { // deleted a moment ago
			continue
		}
		var troubled []endpointCondition
		if err == nil {
			troubled, err = r.troubled(ctx, t.TenantID)
		}
		if err != nil { // the others are shown all the same
			r.log.WarnContext(ctx, "what needs attention at a tenant could not be read", "tenant_id", t.TenantID, "error", err)
			v.More = true
			continue
		}
		if len(troubled) == 0 && counts.DeadLettersLastHour == 0 { // those that came within the hour were sent again or discarded
			continue
		}
		v.Tenants = append(v.Tenants, client.TroubledTenant{TenantID: t.TenantID, Name: t.Name, TenantAttention: counts})
		worst = append(worst, troubled...)
	}
	slices.SortStableFunc(worst, worstFirst)
	if len(worst) > maxTroubledShown {
		v.More, worst = true, worst[:maxTroubledShown]
	}
	v.Endpoints = r.addUndelivered(ctx, worst)
	read.Value = v
	return read, nil
}

// worstFirst orders conditions: what fails or was disabled, the newest first; then what is slow or at a limit; then what a person paused.
func worstFirst(a, b endpointCondition) int {
	return cmp.Or(cmp.Compare(urgency(a.Condition), urgency(b.Condition)), b.Since.Compare(a.Since.Time))
}

func urgency(condition string) int {
	switch explain.ConditionCode(condition) {
	case explain.ConditionFailing, explain.ConditionOpen, explain.ConditionDisabled:
		return 0
	case explain.ConditionSlow, explain.ConditionAtLimit, explain.ConditionHealthy:
		return 1
	case explain.ConditionPaused:
	}
	return 2 //nolint:mnd // the last
}

// attentionHandler shows what needs attention.
type attentionHandler struct {
	reader  *attentionReader
	tenants tenantReader
}

func (h *attentionHandler) get(c call) error {
	if err := c.parameters().problem(); err != nil {
		return err
	}
	all, err := h.reader.ofAll.Get(c.Request().Context(), struct{}{})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, all)
}

func (h *attentionHandler) getOfTenant(c call) error {
	if err := c.parameters().problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	of, err := h.reader.ofTenant.Get(c.Request().Context(), c.tenant)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, of)
}
