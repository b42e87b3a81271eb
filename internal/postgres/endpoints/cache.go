package endpoints

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxCachedTargets   = 20_000
	maxCachedEndpoints = 50_000 // KiB, about, over all tenants; a tenant without any counts as one
)

// Cache keeps endpoints in memory: by id with their secrets, for sending, and by tenant, for matching. A
// change by this process takes effect at once, one by another process within 2 s (see DB.Listen).
//
// Callers must not change what it returns, because it is shared.
type Cache struct {
	targets *cache.Cache[webhook.EndpointID, *webhook.Target]
	tenants *cache.Cache[string, *Roster]
}

// NewCache returns a Cache. Call Close when it is not used any more.
func NewCache(s Reader) *Cache {
	c := &Cache{
		targets: postgres.NewCache(s.core, maxCachedTargets, func(ctx context.Context, id webhook.EndpointID) (cache.Filled[*webhook.Target], error) {
			target, until, err := s.TargetUntil(ctx, s.core.AsWorker(), id)
			if !until.IsZero() {
				until = time.Now().Add(until.Sub(s.core.Now())) // the cache knows this process's clock
			}
			return cache.Filled[*webhook.Target]{Value: &target, Until: until}, err
		}),
		// A tenant may be larger than the share that it is counted with: its quota of endpoints is the bound.
		tenants: postgres.NewRenewingCache(s.core, maxCachedEndpoints, newRoster, func(ctx context.Context, tenantID string, of *Roster) (int, error) {
			weight, err := of.renew(ctx, s, tenantID)
			return min(weight, maxCachedEndpoints/2), err //nolint:mnd // half, so that there is room for others
		}),
	}
	s.core.Subscribe(c)
	return c
}

// Changed implements postgres.ChangeHandler.
func (c *Cache) Changed(of postgres.Change) {
	switch of.Kind {
	case postgres.ChangeEndpoint:
		c.ForgetTenant(of.Tenant)
		if id, err := webhook.ParseEndpointID(of.ID); err == nil {
			c.forget(id)
		}
	case postgres.ChangeTenant:
		c.ForgetTenant(of.Tenant)
		if of.Policy {
			c.forgetTargetsOf(of.Tenant)
		}
	case postgres.ChangeKey, postgres.ChangeMoved, postgres.ChangeEventType:
	}
}

// Target is Endpoints.Target, cached. CodeNotFound is not cached: the ids come from the store, so it is rare.
func (c *Cache) Target(ctx context.Context, id webhook.EndpointID) (*webhook.Target, error) {
	return c.targets.Get(ctx, id)
}

// Known is Target for an endpoint that is in the cache. It does not read the store.
func (c *Cache) Known(id webhook.EndpointID) (*webhook.Target, bool) {
	return c.targets.Known(id)
}

// Filling returns how many targets are being read.
func (c *Cache) Filling() int { return c.targets.Filling() }

// Expect starts reading an endpoint that is not in the cache, because it will be needed soon.
func (c *Cache) Expect(ctx context.Context, id webhook.EndpointID) {
	c.targets.Expect(ctx, id)
}

// OfTenant returns the endpoints of a tenant, as they are or later. CodeNotFound: there is no such tenant.
func (c *Cache) OfTenant(ctx context.Context, tenantID string) (*Roster, error) {
	return c.tenants.Get(ctx, tenantID)
}

// AsksFor reports whether an endpoint of the tenant subscribes to an operational event.
func (c *Cache) AsksFor(ctx context.Context, tenantID, eventType string) (asks bool, err error) {
	of, err := c.tenants.Get(ctx, tenantID)
	if err != nil {
		return false, err
	}
	of.Read(func(v View) { asks = len(v.Match(eventType, 1)) > 0 })
	return asks, nil
}

// ForgetTenant makes the next OfTenant read what has changed of the tenant's endpoints.
func (c *Cache) ForgetTenant(tenantID string) { c.tenants.Forget(tenantID) }

// forgetTargetsOf makes the next Target of each endpoint of the tenant read it again.
func (c *Cache) forgetTargetsOf(tenantID string) {
	c.targets.ForgetIf(func(t *webhook.Target) bool { return t.TenantID == tenantID })
}

func (c *Cache) forget(id webhook.EndpointID) { c.targets.Forget(id) }

// ForgetAll empties the cache.
func (c *Cache) ForgetAll() {
	c.targets.ForgetAll()
	c.tenants.ForgetAll()
}

// Close ends the reads under way.
func (c *Cache) Close() {
	c.targets.Close()
	c.tenants.Close()
}
