package monitor

import (
	"cmp"
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Healths reads what is stored about the health of endpoints. What the process of the name except has shared is left out.
type Healths interface {
	Health(ctx context.Context, tenantID string, id webhook.EndpointID, except string) (webhook.Health, []webhook.Observation, error)
	ObservationsOf(ctx context.Context, tenantID string, ids []webhook.EndpointID, except string) (map[webhook.EndpointID][]webhook.Observation, error)
	Observations(ctx context.Context, tenantID string, id webhook.EndpointID, except string) ([]webhook.Observation, error)
	CloseCircuit(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.ClosedCircuit, error)
}

// Owners asks the process that admits the requests to an endpoint: *fleet.Fleet.
type Owners interface {
	// Health is what the process observes, if that is another one. An error means that it did not answer in time.
	Health(ctx context.Context, id webhook.EndpointID) (observed webhook.Observation, elsewhere bool, err error)
}

// View shows the health of endpoints as all processes see it: what the admission of this process knows, if there is one,
// and what the other processes share.
type View struct {
	store     Healths
	admission Admission // nil in a process that does not send
	owners    Owners    // nil in a process that asks no other one
	process   string
}

// NewView makes a View. admission is nil in a process that does not send, and owners in one that asks no other process; process is
// Config.Process.
func NewView(store Healths, admission Admission, owners Owners, process string) *View {
	v := &View{store: store, admission: admission, owners: owners}
	if admission != nil {
		v.process = process
	}
	return v
}

// Health is the health of an endpoint, with the deliveries that wait for it.
func (v *View) Health(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Health, error) {
	h, seen, err := v.store.Health(ctx, tenantID, id, v.process)
	if err != nil {
		return webhook.Health{}, err
	}
	seen, h.Stale = v.newest(ctx, id, seen)
	h.Observed, h.Known = webhook.Aggregate(seen), len(seen) > 0
	h.Observed.Recall(&h.History)
	if v.admission != nil && h.Endpoint.AutoTimeout {
		h.Observed.Timeout = max(h.Observed.Timeout, v.Timeout(&h.Endpoint))
	}
	return h, nil
}

// Observed is what the sending processes observe of endpoints. Those of which nothing is known are left out. The process that admits the
// requests is asked for a single endpoint only; stale: it did not answer.
func (v *View) Observed(ctx context.Context, tenantID string, ids []webhook.EndpointID) (
	observed map[webhook.EndpointID]webhook.Observation, stale bool, err error,
) {
	seen, err := v.store.ObservationsOf(ctx, tenantID, ids, v.process)
	if err != nil {
		return nil, false, err
	}
	observed = make(map[webhook.EndpointID]webhook.Observation, len(ids))
	for _, id := range ids {
		all := seen[id]
		if len(ids) == 1 {
			all, stale = v.newest(ctx, id, all)
		} else {
			all = v.withOwn(id, all)
		}
		if len(all) > 0 {
			observed[id] = webhook.Aggregate(all)
		}
	}
	return observed, stale, nil
}

// Circuit is the circuit of an endpoint; stale: the process that admits the requests did not answer.
func (v *View) Circuit(ctx context.Context, tenantID string, id webhook.EndpointID) (seen webhook.Observation, stale bool, err error) {
	all, err := v.store.Observations(ctx, tenantID, id, v.process)
	if err != nil {
		return seen, false, err
	}
	all, stale = v.newest(ctx, id, all)
	return webhook.Aggregate(all), stale, nil
}

// newest is what the process that admits the requests to an endpoint says now or, if it does not answer, what is known without it.
func (v *View) newest(ctx context.Context, id webhook.EndpointID, seen []webhook.Observation) (all []webhook.Observation, stale bool) {
	if v.owners != nil {
		observed, elsewhere, err := v.owners.Health(ctx, id)
		if elsewhere && err == nil {
			return []webhook.Observation{observed}, false
		}
		stale = err != nil
	}
	return v.withOwn(id, seen), stale
}

// withOwn adds what the admission of this process sees.
func (v *View) withOwn(id webhook.EndpointID, seen []webhook.Observation) []webhook.Observation {
	if v.admission == nil {
		return seen
	}
	if own, known := v.admission.State(id); known {
		seen = append(seen, own)
	}
	return seen
}

// CloseCircuit makes the open circuits of an endpoint half open: that of this process at once, those of other processes
// when they look for it, which they do every second.
func (v *View) CloseCircuit(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.ClosedCircuit, error) {
	closed, err := v.store.CloseCircuit(ctx, by, tenantID, id)
	if err == nil && v.admission != nil {
		v.admission.CloseCircuit(id, closed.At)
	}
	return closed, err
}

// Timeout is the timeout of a first attempt, or of a test, that this process makes now.
func (v *View) Timeout(e *webhook.Endpoint) time.Duration {
	if v.admission == nil || !e.AutoTimeout {
		return e.Timeout
	}
	state, _ := v.admission.State(e.ID)
	return cmp.Or(state.Timeout, e.Timeout)
}
