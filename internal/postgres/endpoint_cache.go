package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxCachedTargets   = 20_000
	maxCachedEndpoints = 50_000 // over all tenants; a tenant without any counts as one
)

// EndpointCache keeps endpoints in memory: by id with their secrets, for sending,
// and by tenant, for matching. A change made by this process takes effect in it at
// once, one made by another within 2 s (see DB.Listen).
//
// What it returns is shared: it must not be changed.
type EndpointCache struct {
	targets *cache.Cache[webhook.EndpointID, *webhook.Target]
	tenants *cache.Cache[string, tenantEndpoints]
}

// tenantEndpoints is every endpoint of a tenant at one version of them.
type tenantEndpoints struct {
	endpoints   []webhook.Endpoint
	version     int64
	operational []string // the filters for operational events, of all of them
}

// operationalFilters are those of some endpoints that let operational events through.
func operationalFilters(endpoints []webhook.Endpoint) []string {
	var filters []string
	for i := range endpoints {
		for _, filter := range endpoints[i].EventTypes {
			if webhook.IsOperational(filter) && !slices.Contains(filters, filter) {
				filters = append(filters, filter)
			}
		}
	}
	return filters
}

func newEndpointCache(s endpointReader) *EndpointCache {
	c := &EndpointCache{
		targets: newCache(s.core, maxCachedTargets, func(ctx context.Context, id webhook.EndpointID) (cache.Filled[*webhook.Target], error) {
			target, until, err := s.target(ctx, s.asWorker(), id)
			if !until.IsZero() {
				until = time.Now().Add(until.Sub(s.now())) // the cache knows this process's clock
			}
			return cache.Filled[*webhook.Target]{Value: &target, Until: until}, err
		}),
		tenants: newCache(s.core, maxCachedEndpoints, func(ctx context.Context, tenantID string) (cache.Filled[tenantEndpoints], error) {
			endpoints, version, err := s.EndpointsOf(ctx, tenantID)
			of := tenantEndpoints{endpoints, version, operationalFilters(endpoints)}
			return cache.Filled[tenantEndpoints]{Value: of, Weight: len(endpoints)}, err
		}),
	}
	s.subscribe(c)
	return c
}

// changed implements changeHandler.
func (c *EndpointCache) changed(of change) {
	switch of.Kind {
	case changeEndpoint:
		c.ForgetTenant(of.Tenant)
		if id, err := webhook.ParseEndpointID(of.ID); err == nil {
			c.forget(id)
		}
	case changeTenant:
		c.ForgetTenant(of.Tenant)
		if of.Policy {
			c.forgetTargetsOf(of.Tenant)
		}
	case changeKey, changeMoved:
	}
}

// Target is Endpoints.Target, cached. CodeNotFound is not cached: the ids come from our
// own record, so it is rare.
func (c *EndpointCache) Target(ctx context.Context, id webhook.EndpointID) (*webhook.Target, error) {
	return c.targets.Get(ctx, id)
}

// Known is Target for an endpoint that is in the cache; it reads nothing.
func (c *EndpointCache) Known(id webhook.EndpointID) (*webhook.Target, bool) {
	return c.targets.Known(id)
}

// expect begins to read an endpoint that is not in the cache: it will be asked for soon.
func (c *EndpointCache) expect(ctx context.Context, id webhook.EndpointID) {
	c.targets.Expect(ctx, id)
}

// OfTenant is Endpoints.EndpointsOf, cached.
func (c *EndpointCache) OfTenant(ctx context.Context, tenantID string) ([]webhook.Endpoint, int64, error) {
	t, err := c.tenants.Get(ctx, tenantID)
	return t.endpoints, t.version, err
}

// asksFor reports whether an endpoint of the tenant asked for an operational event.
func (c *EndpointCache) asksFor(ctx context.Context, tenantID, eventType string) (bool, error) {
	t, err := c.tenants.Get(ctx, tenantID)
	return slices.ContainsFunc(t.operational, func(filter string) bool { return webhook.FilterMatches(filter, eventType) }), err
}

// ForgetTenant makes the next OfTenant read the tenant's endpoints anew.
func (c *EndpointCache) ForgetTenant(tenantID string) { c.tenants.Forget(tenantID) }

// forgetTargetsOf makes the next Target of each endpoint of the tenant read it anew.
func (c *EndpointCache) forgetTargetsOf(tenantID string) {
	c.targets.ForgetIf(func(t *webhook.Target) bool { return t.TenantID == tenantID })
}

func (c *EndpointCache) forget(id webhook.EndpointID) { c.targets.Forget(id) }

func (c *EndpointCache) forgetAll() {
	c.targets.ForgetAll()
	c.tenants.ForgetAll()
}

func (c *EndpointCache) close() {
	c.targets.Close()
	c.tenants.Close()
}
