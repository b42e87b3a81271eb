package api

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// Situations reads what explanations need besides what is explained. An error only makes them less
// exact.
type Situations interface { //nolint:interfacebloat // what one sentence needs
	// TenantEndpoints returns all endpoints of a tenant from a cache, without headers and credentials, in
	// the order of their ids. They are shared and must not be changed.
	TenantEndpoints(ctx context.Context, tenantID string) ([]*webhook.Endpoint, error)
	// DeletedEndpoints returns the endpoints that were deleted last, at most limit.
	DeletedEndpoints(ctx context.Context, tenantID string, limit int) ([]webhook.DeletedEndpoint, error)
	// Observed returns what the sending processes observe of endpoints, in one read. stale: the process that admits the requests was asked
	// and did not answer.
	Observed(ctx context.Context, tenantID string, ids []webhook.EndpointID) (
		observed map[webhook.EndpointID]webhook.Observation, stale bool, err error,
	)
	// WaitsOf returns what waits for endpoints and when they last got a delivery, in one read.
	WaitsOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Waits, error)
	Backlog
}

// Backlog reads what waiting and held deliveries wait behind.
type Backlog interface {
	// Ahead counts the deliveries that go to the endpoint before a waiting one.
	Ahead(ctx context.Context, d webhook.Delivery) (n int, more bool, err error)
	// ReleasesOf returns the releases of some of a tenant's endpoints, in no order.
	ReleasesOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) ([]webhook.Release, error)
}

// Engine is what this process knows of the engine that carries deliveries out.
type Engine interface {
	// TemporalDownSince is since when Temporal has not been available; zero if it is.
	TemporalDownSince() time.Time
	// SentAt is when this process began the request that a delivery has under way; zero if it makes none.
	SentAt(d *webhook.Delivery) time.Time
}

// maxDeleted bounds the deleted endpoints that are read to explain why an event matched none.
const maxDeleted = 20

func showExplanation(e explain.Explanation) *client.Explanation {
	v := client.Explanation{
		Code: string(e.Code), Brief: nullable(e.Brief),
		Cause: nullable(e.Cause), Next: nullable(e.Next), Remedy: nullable(e.Remedy), Operator: nullable(e.Operator),
		Actions: make([]client.Action, len(e.Actions)), Workflow: nullable(e.Workflow), Until: timestamp(e.Until),
	}
	for i, action := range e.Actions {
		method, path := action.Call()
		v.Actions[i] = client.Action{Act: string(action.Act), ID: nullable(action.ID), Method: method, Path: path, Body: action.Body}
	}
	return &v
}

// explanations explains deliveries and events.
type explanations struct {
	situations      Situations
	engine          Engine
	deliveries      Deliveries
	erasures        PayloadErasures
	deadLettersKept time.Duration
	workflowsKept   func() time.Duration
	now             func() time.Time
	log             *slog.Logger
}

// explainer explains the deliveries and events of one response.
type explainer struct {
	*explanations

	c         call
	at        time.Time
	known     bool                // endpoints could be read
	endpoints []*webhook.Endpoint // of the tenant, in the order of their ids
	deleted   []webhook.DeletedEndpoint
	observed  map[webhook.EndpointID]webhook.Observation
	stale     bool // see Situations.Observed
	releases  []webhook.Release
	removed   map[webhook.EventID]webhook.PayloadRemoval
}

// explainer reads the tenant's endpoints.
func (e *explanations) explainer(c call) *explainer {
	x := &explainer{explanations: e, c: c, at: e.now()}
	var err error
	x.endpoints, err = e.situations.TenantEndpoints(c.Request().Context(), c.tenant)
	x.known = x.noted("endpoints", err)
	return x
}

// endpoint is one of the tenant's endpoints; nil if it has none of this id.
func (x *explainer) endpoint(id webhook.EndpointID) *webhook.Endpoint {
	i, found := slices.BinarySearchFunc(x.endpoints, id, func(e *webhook.Endpoint, id webhook.EndpointID) int { return bytes.Compare(e.ID[:], id[:]) })
	if !found {
		return nil
	}
	return x.endpoints[i]
}

// noted logs an error. It reports whether there is none.
func (x *explainer) noted(what string, err error) bool {
	if err != nil {
		x.log.DebugContext(x.c.Request().Context(), "an explanation is less exact", "without", what, "error", err)
	}
	return err == nil
}

// expect reads, at once, what the explanations of deliveries need.
func (x *explainer) expect(deliveries []webhook.Delivery) {
	open, held, ended := map[webhook.EndpointID]bool{}, map[webhook.EndpointID]bool{}, map[webhook.EventID]bool{}
	for i := range deliveries {
		d := &deliveries[i]
		if d.State.Open() {
			open[d.EndpointID] = true
		} else {
			ended[d.EventID] = true
		}
		if e := x.endpoint(d.EndpointID); d.State == webhook.StateHeld && e != nil && e.State == webhook.EndpointActive {
			held[d.EndpointID] = true
		}
	}
	var err error
	if len(ended) > 0 {
		x.removed, err = x.erasures.RemovedPayloads(x.c.Request().Context(), x.c.tenant, slices.Collect(maps.Keys(ended)))
		x.noted("removed payloads", err)
	}
	if len(open) == 0 {
		return
	}
	if len(held) > 0 {
		x.releases, err = x.situations.ReleasesOf(x.c.Request().Context(), x.c.tenant, slices.Collect(maps.Keys(held)))
		x.noted("releases", err)
	}
	x.observed, x.stale, err = x.situations.Observed(x.c.Request().Context(), x.c.tenant, slices.Collect(maps.Keys(open)))
	x.noted("observations", err)
}

// situation is what is known of a delivery without another read.
func (x *explainer) situation(d webhook.Delivery) explain.Situation {
	s := explain.Situation{
		Now: x.at, Delivery: d, Endpoint: x.endpoint(d.EndpointID), Kept: x.deadLettersKept,
		EngineAway: x.engine.TemporalDownSince(), SentAt: x.engine.SentAt(&d),
		WorkflowsKept: x.workflowsKept(), Removed: x.removed[d.EventID], Stale: x.stale,
	}
	s.EndpointDeleted = x.known && s.Endpoint == nil
	if observed, known := x.observed[d.EndpointID]; known {
		s.Observed = &observed
	}
	s.ReleaseStopped = slices.ContainsFunc(x.releases, func(r webhook.Release) bool { return r.EndpointID == d.EndpointID && r.Stops(&d) })
	return s
}

// summary is one sentence about a delivery that expect has seen.
func (x *explainer) summary(d webhook.Delivery) string {
	return explain.Delivery(x.situation(d)).Summary
}

// delivery explains one delivery in full, with the error of its last attempt and what goes before it.
func (x *explainer) delivery(d webhook.Delivery) explain.Explanation {
	ctx := x.c.Request().Context()
	x.expect([]webhook.Delivery{d})
	s := x.situation(d)
	if d.LastOutcome != nil {
		last, err := x.deliveries.Attempts(ctx, x.c.tenant, d.DeliveryID, 1, 0)
		if x.noted("the last attempt", err) && len(last) > 0 {
			s.Error, s.Times, s.WaitedFor, s.Late = last[0].Error, last[0].Times, last[0].WaitedFor, last[0].Late
		}
	}
	if d.Deferred() || d.State == webhook.StateHeld && d.Reason == webhook.ReasonBacklog {
		n, more, err := x.situations.Ahead(ctx, d)
		if x.noted("what goes first", err) {
			s.Ahead = &explain.Ahead{N: n, More: more}
		}
	}
	return explain.Delivery(s)
}

// event explains an event that matched nothing; nil for others, and if the endpoints are not known.
func (x *explainer) event(e webhook.Event) *explain.Explanation {
	if e.Reason != webhook.ReasonNoMatch || !x.known {
		return nil
	}
	if x.deleted == nil {
		deleted, err := x.situations.DeletedEndpoints(x.c.Request().Context(), x.c.tenant, maxDeleted)
		x.noted("deleted endpoints", err)
		x.deleted = append([]webhook.DeletedEndpoint{}, deleted...) // not nil: it is read once
	}
	explained := explain.Event(e, x.endpoints, x.deleted, x.at)
	return &explained
}
