package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"sync"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/statistics"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// newSender makes the client that sends requests to receivers, for a worker and for tests of endpoints.
func newSender(o *Options, guard *egress.Guard, roots *x509.CertPool) *egress.Client {
	return egress.New(egress.Config{
		Guard: guard, Version: o.Version, RootCAs: roots, Proxy: o.Config.EgressProxyURL(),
		ProxyNames: o.Config.EgressProxyNames, NoProxy: egress.NewHostList(o.Config.NoProxy...),
		Exempt: o.Exempt, Logger: o.Logger,
	})
}

// urls lets the API check URLs with the egress guard.
type urls struct{ guard *egress.Guard }

func (u urls) CheckURL(raw string) []string {
	_, err := u.guard.CheckURL(raw)
	refusal, denied := errors.AsType[*egress.DeniedError](err)
	switch {
	case denied:
		return refusal.Reasons
	case err != nil:
		return []string{err.Error()}
	}
	return nil
}

// makeGuard makes the guard of requests to receivers. It needs the addresses of all listeners, so they are open by now.
func (a *App) makeGuard(ctx context.Context) error { //nolint:contextcheck // what it starts outlives the context of Start
	own, err := a.ownListeners(ctx)
	if err != nil {
		return err
	}
	a.guard = newGuard(a.options.Config, a.options.Temporal.HostPort, own.list)
	if err := a.guard.LearnOwnAddrs(); err != nil {
		return fmt.Errorf("no request may go to this machine's own addresses, and they are not known: %w", err)
	}
	if proxy := a.options.Config.EgressProxyURL(); proxy != nil && a.options.Config.EgressProxyNames {
		a.log.InfoContext(ctx, "the egress proxy looks names up; "+proxysDuty)
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

// newGuard makes the guard. temporal is the host:port of Temporal.
func newGuard(c config.Config, temporal string, listeners func() []netip.AddrPort) *egress.Guard {
	var names *egress.NamesConfig
	if proxy := c.EgressProxyURL(); proxy != nil && c.EgressProxyNames {
		names = &egress.NamesConfig{Own: append(ownNames(c, temporal), proxy.Hostname()), NoProxy: egress.NewHostList(c.NoProxy...)}
	}
	return egress.NewGuard(egress.GuardConfig{
		DeniedHosts: egress.NewHostList(c.DeniedHosts...), Names: names,
		AllowHTTP: c.AllowHTTP, AllowedCIDRs: c.AllowedCIDRs, DeniedCIDRs: c.DeniedCIDRs, ExtraPorts: c.ExtraPorts.List, AnyPort: c.ExtraPorts.Any,
		Listeners: listeners,
	})
}

// ownNames are the host names of this machine and of what the settings name, as far as they are names.
func ownNames(c config.Config, temporal string) []string {
	name, _ := os.Hostname() // without one there is none to refuse
	all := []string{name}
	for _, address := range []string{c.DatabaseURL, c.ConsoleURL} {
		if u, err := url.Parse(address); err == nil {
			all = append(all, u.Hostname())
		}
	}
	for _, address := range []string{c.Listen, c.AdminListen, c.LaneListen, c.LaneAddress, temporal} {
		if host, _, err := net.SplitHostPort(address); err == nil {
			all = append(all, host)
		}
	}
	return all
}

// tenantLimits are the limits of tenants without limits of their own.
func tenantLimits(c config.Config) webhook.Limits {
	return webhook.Limits{
		RequestsPerSecond: c.TenantRequestsPerSecond, Burst: c.TenantBurst, Endpoints: c.TenantEndpoints,
		PendingDeliveries: c.TenantPendingDeliveries, EndpointsPerEvent: c.TenantEndpointsPerEvent,
		RunningReplays: c.TenantRunningReplays, OtherRequestsPerSecond: c.TenantOtherRequestsPerSecond, OtherBurst: c.TenantOtherBurst,
	}
}

// observedEvents counts the events that the store accepts and the verdicts of filters, makes a span of their commit, and puts their
// deliveries into the request's trace.
type observedEvents struct {
	*events.Events

	metrics    *telemetry.Metrics
	statistics *statistics.Recorder
}

// observe counts an event and what filters said of it, unless it was stored before, and puts its deliveries into the request's trace.
func (c observedEvents) observe(ctx context.Context, a *webhook.Accepted) {
	if a.Repeated {
		return
	}
	c.metrics.Accepted(&a.Event)
	c.statistics.Judged(a.Event.TenantID, a.Verdicts)
	putInTrace(tracing.Of(ctx), a)
}

func (c observedEvents) Accept(ctx context.Context, e webhook.NewEvent) (webhook.Accepted, error) {
	below, span := tracing.Below(ctx, "commit events")
	accepted, err := c.Events.Accept(below, e)
	span.End(err)
	if err != nil {
		c.metrics.NotAccepted(err)
		return accepted, err
	}
	c.observe(ctx, &accepted)
	return accepted, nil
}

func (c observedEvents) AcceptBatch(ctx context.Context, b webhook.NewBatch) ([]webhook.Accepted, error) {
	below, span := tracing.Below(ctx, "commit events")
	span.Number("everpost.events", len(b.Events))
	all, err := c.Events.AcceptBatch(below, b)
	span.End(err)
	c.metrics.NotAccepted(err)
	for i := range all {
		c.observe(ctx, &all[i])
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

	workflows *engine.TenantDeletions
}

func (d tenantDeletions) BeginDeletion(ctx context.Context, by webhook.Actor, id string) (webhook.TenantDeletion, error) {
	deletion, err := d.Tenants.BeginDeletion(ctx, by, id)
	if err == nil {
		d.workflows.WakeTenantDeletion(ctx, id)
	}
	return deletion, err
}

func (d tenantDeletions) DeleteWorkflows(ctx context.Context, tenantID string) (int64, error) {
	return d.workflows.DeleteWorkflows(ctx, tenantID)
}

func putInTrace(trace webhook.Trace, accepted *webhook.Accepted) {
	for i := range accepted.Deliveries {
		accepted.Deliveries[i].Trace = trace
	}
}
