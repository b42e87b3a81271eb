package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/starter"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// startSender makes the client that sends requests to receivers, for a worker and for tests of endpoints.
func (a *App) startSender() {
	a.sender = egress.New(egress.Config{
		Guard: a.guard, Version: a.options.Version, RootCAs: a.roots, Proxy: a.options.Config.EgressProxyURL(),
		Exempt: a.options.Exempt, Logger: a.log,
	})
	a.push(phaseSender, func(context.Context) { a.sender.Close() })
}

// urls lets the API check URLs with the egress guard.
type urls struct{ guard *egress.Guard }

func (u urls) CheckURL(raw string) error {
	_, err := u.guard.CheckURL(raw)
	refusal, ok := errors.AsType[*egress.DeniedError](err)
	if !ok {
		return err
	}
	reasons := make([]error, len(refusal.Reasons))
	for i, reason := range refusal.Reasons {
		reasons[i] = errors.New(reason)
	}
	return errors.Join(reasons...)
}

// makeGuard makes the guard of requests to receivers. It needs the addresses of all listeners, so they are open by now.
func (a *App) makeGuard(ctx context.Context) error { //nolint:contextcheck // what it starts outlives the context of Start
	own, err := a.ownListeners(ctx)
	if err != nil {
		return err
	}
	a.guard = newGuard(a.options.Config, own.list)
	if err := a.guard.LearnOwnAddrs(); err != nil {
		return fmt.Errorf("no request may go to this machine's own addresses, and they are not known: %w", err)
	}
	life, end := context.WithCancel(a.life)
	var watching sync.WaitGroup
	watching.Go(func() { own.watch(life) })
	a.push(phaseGuard, func(context.Context) {
		end()
		watching.Wait()
	})
	return nil
}

func newGuard(c config.Config, listeners func() []netip.AddrPort) *egress.Guard {
	return egress.NewGuard(egress.GuardConfig{
		AllowHTTP: c.AllowHTTP, AllowedCIDRs: c.AllowedCIDRs, DeniedCIDRs: c.DeniedCIDRs, ExtraPorts: c.ExtraPorts.List, AnyPort: c.ExtraPorts.Any,
		Listeners: listeners,
	})
}

// tenantLimits are the limits of tenants without limits of their own.
func tenantLimits(c config.Config) webhook.Limits {
	return webhook.Limits{
		RequestsPerSecond: c.TenantRequestsPerSecond, Burst: c.TenantBurst, Endpoints: c.TenantEndpoints,
		PendingDeliveries: c.TenantPendingDeliveries, EndpointsPerEvent: c.TenantEndpointsPerEvent,
		RunningReplays: c.TenantRunningReplays, OtherRequestsPerSecond: c.TenantOtherRequestsPerSecond, OtherBurst: c.TenantOtherBurst,
	}
}

// observedEvents counts the events that the store accepts, makes a span of their commit, and puts their
// deliveries into the request's trace.
type observedEvents struct {
	*events.Events

	metrics *telemetry.Metrics
}

func (c observedEvents) Accept(ctx context.Context, e webhook.NewEvent) (webhook.Accepted, error) {
	below, span := tracing.Below(ctx, "commit events")
	accepted, err := c.Events.Accept(below, e)
	span.End(err)
	if err == nil && !accepted.Repeated {
		c.metrics.Accepted()
		putInTrace(tracing.Of(ctx), &accepted)
	}
	return accepted, err
}

func (c observedEvents) AcceptBatch(ctx context.Context, b webhook.NewBatch) ([]webhook.Accepted, error) {
	below, span := tracing.Below(ctx, "commit events")
	span.Number("everpost.events", len(b.Events))
	all, err := c.Events.AcceptBatch(below, b)
	span.End(err)
	for i := range all {
		if !all[i].Repeated {
			c.metrics.Accepted()
			putInTrace(tracing.Of(ctx), &all[i])
		}
	}
	return all, err
}

// exports reads what only an export of a tenant needs.
type exports struct {
	*tenants.Tenants
	*events.Events
	*deliveries.Deliveries
}

// tenantDeletions deletes tenants in the store and in Temporal.
type tenantDeletions struct {
	*tenants.Tenants

	starter *starter.Starter
}

func (d tenantDeletions) BeginDeletion(ctx context.Context, by webhook.Actor, id string) (webhook.TenantDeletion, error) {
	deletion, err := d.Tenants.BeginDeletion(ctx, by, id)
	if err == nil {
		d.starter.WakeTenantDeletion(ctx, id)
	}
	return deletion, err
}

func (d tenantDeletions) DeleteWorkflows(ctx context.Context, tenantID string) (int64, error) {
	return d.starter.DeleteWorkflows(ctx, tenantID)
}

func putInTrace(trace webhook.Trace, accepted *webhook.Accepted) {
	for i := range accepted.Deliveries {
		accepted.Deliveries[i].Trace = trace
	}
}
