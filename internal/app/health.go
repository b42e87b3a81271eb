package app

import (
	"cmp"
	"context"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// shareEvery is how often a worker tells the other processes of its endpoints that
	// are not well. What it says is believed for ten times as long.
	shareEvery = 3 * time.Second
	// shareTimeout bounds one time of telling.
	shareTimeout = 5 * time.Second
	// maxShared is of how many at most: a statement of about 2 MB.
	maxShared = 5000
)

// checkup tells the API how endpoints fare, and lets it try them.
type checkup struct {
	store *postgres.Store
	gate  *admission.Controller // nil without a worker
	owner string                // the name under which this process shares what its gate sees
	tests *activities.Tests
}

// Health puts together what this process's gate sees, what other workers have told, and
// what the record counts.
func (c checkup) Health(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Health, error) {
	but := ""
	if c.gate != nil {
		but = c.owner
	}
	e, backlog, seen, err := c.store.Health(ctx, tenantID, id, but)
	if err != nil {
		return webhook.Health{}, err
	}
	if c.gate != nil {
		if own := c.gate.Health(id); own != (admission.Health{}) {
			seen = append(seen, seenOf(own, c.store.Now))
		}
	}
	h := webhook.Health{Endpoint: e, Seen: webhook.Together(seen), Known: len(seen) > 0, Backlog: backlog}
	if c.gate != nil && e.AutoTimeout {
		h.Seen.Timeout = max(h.Seen.Timeout, c.timeout(&e))
	}
	return h, nil
}

// Circuit is an endpoint's circuit as all processes that send see it.
func (c checkup) Circuit(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Seen, error) {
	but := ""
	if c.gate != nil {
		but = c.owner
	}
	seen, err := c.store.Seen(ctx, tenantID, id, but)
	if err != nil {
		return webhook.Seen{}, err
	}
	if c.gate != nil {
		seen = append(seen, seenOf(c.gate.Health(id), c.store.Now))
	}
	return webhook.Together(seen), nil
}

// CloseCircuit lets the endpoint's circuits, which are open, become half open: this process's
// at once, those of others within a second or so, by the record.
func (c checkup) CloseCircuit(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.ClosedCircuit, error) {
	closed, err := c.store.CloseCircuit(ctx, by, tenantID, id)
	if err == nil && c.gate != nil {
		c.gate.CloseCircuit(id, closed.At)
	}
	return closed, err
}

// timeout is how long a first attempt may take that this process makes now, and a test.
func (c checkup) timeout(e *webhook.Endpoint) time.Duration {
	if c.gate == nil || !e.AutoTimeout {
		return e.Timeout
	}
	return cmp.Or(c.gate.Health(e.ID).Timeout, e.Timeout)
}

// TestEndpoint sends one request. The endpoint is read anew, so that it is tested as it
// was changed a moment ago by whichever process.
func (c checkup) TestEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, eventType string, payload []byte,
) (webhook.Attempt, error) {
	target, err := c.store.TargetOf(ctx, tenantID, id)
	if err != nil {
		return webhook.Attempt{}, err
	}
	giveBack, err := c.tests.Take(tenantID, id)
	if err != nil {
		return webhook.Attempt{}, err
	}
	defer giveBack()
	if err := c.store.NoteTest(ctx, by, tenantID, id); err != nil {
		return webhook.Attempt{}, err
	}
	target.Timeout = c.timeout(&target.Endpoint)
	return c.tests.Send(ctx, &target, eventType, payload)
}

// seenOf is what a gate says of an endpoint, for everybody: its times are by the database's clock, which is now.
func seenOf(h admission.Health, now func() time.Time) webhook.Seen {
	s := webhook.Seen{
		Circuit: webhook.CircuitState(h.Circuit.String()), Since: h.Since, Why: h.Why, NextProbe: h.NextProbe, ProbeOver: h.ProbeOver,
		BarredUntil: h.BlockedUntil, BarredFor: h.BlockedFor, WaitsFor: h.WaitsFor,
		Latency: h.Latency, Rate: h.Rate, Recovering: h.Recovering, Timeout: h.Timeout, InFlight: h.InFlight,
		Delivered: h.Delivered, Failed: h.Failed, First: h.First, Retries: h.Retries,
		SuccessStreak: h.SuccessStreak, FailureStreak: h.FailureStreak,
	}
	for _, t := range []*time.Time{&s.Since, &s.NextProbe, &s.ProbeOver, &s.BarredUntil} {
		if !t.IsZero() {
			*t = byClock(now, *t).UTC().Round(time.Millisecond) // the two clocks are not read at once
		}
	}
	return s
}

// shareHealth tells the other processes, every few seconds, which endpoints are not well
// as this one sees it. While none is, it writes nothing.
func (a *App) shareHealth(ctx context.Context) {
	tick := time.NewTicker(a.shareEvery)
	defer tick.Stop()
	told, failed := true, false // an earlier process of this name may have told something
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if told { // nothing is seen by a process that is gone
				_ = a.tellHealth(ctx, nil)
			}
			return
		}
		unwell := a.unwell(a.store.Now)
		if len(unwell) == 0 && !told {
			continue
		}
		err := a.tellHealth(ctx, unwell)
		if err != nil && !failed && ctx.Err() == nil {
			a.log.WarnContext(ctx, "how endpoints fare cannot be shared with other processes; trying on", "error", err)
		}
		failed = err != nil
		told = failed || len(unwell) > 0
	}
}

// tellHealth is not cut off by the end of the process: what was cut off might be written
// after what is written last.
func (a *App) tellHealth(ctx context.Context, unwell map[webhook.EndpointID]webhook.Seen) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shareTimeout)
	defer cancel()
	return a.store.WriteSeen(ctx, a.options.Owner, unwell)
}

// unwell is what the gate sees of endpoints that are not plainly well. When there are too
// many, those to which nothing goes come first.
func (a *App) unwell(now func() time.Time) map[webhook.EndpointID]webhook.Seen {
	shut, others := map[webhook.EndpointID]webhook.Seen{}, map[webhook.EndpointID]webhook.Seen{}
	a.gate.EachUnhealthy(func(id webhook.EndpointID, h admission.Health) {
		into := others
		if h.Rate == 0 {
			into = shut
		}
		if len(into) < maxShared {
			into[id] = seenOf(h, now)
		}
	})
	for id := range others {
		if len(shut) >= maxShared {
			break
		}
		shut[id] = others[id]
	}
	return shut
}

// startSender makes what sends requests, for a worker and for tests of endpoints.
func (a *App) startSender() {
	a.sender = egress.New(egress.Config{
		Guard: a.guard, Version: a.options.Version, RootCAs: a.roots, Proxy: a.options.Config.EgressProxyURL(), Logger: a.log,
	})
	a.push(phaseSender, func(context.Context) { a.sender.Close() })
}
