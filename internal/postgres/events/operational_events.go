package events

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Operational writes operational events: ordinary events of the tenant that they are about, and once more
// of the operator's tenant. Those of a change are written with it, in its transaction;
// the others by Notify. See docs/adr/0016, operational events.
type Operational struct {
	core *postgres.Core

	endpoints      endpoints.Reader
	cache          *endpoints.Cache
	tenants        *tenants.Tenants
	events         *Events
	operatorTenant string // "" for none
}

// NewOperational makes an Operational, which stores events as in does. Without an operator's tenant ("")
// events are only of the tenant that they are about.
func NewOperational(s *postgres.Core, in *Events, t *tenants.Tenants, operatorTenant string) *Operational {
	return &Operational{core: s, endpoints: in.endpoints, cache: in.cache, tenants: t, events: in, operatorTenant: operatorTenant}
}

// NoteState writes, with a change of an endpoint's state, its operational event.
func (s *Operational) NoteState(ctx context.Context, tx pgx.Tx, e *webhook.Endpoint) error {
	n := webhook.OperationalEvent{TenantID: e.TenantID, Endpoint: e, Summary: explain.StateChanged(e)}
	switch e.State {
	case webhook.EndpointActive:
		n.Type = webhook.EventEndpointResumed
	case webhook.EndpointPaused:
		n.Type = webhook.EventEndpointPaused
	case webhook.EndpointDisabled:
		n.Type = webhook.EventEndpointDisabled
	}
	return s.note(ctx, tx, &n)
}

// NoteReplay writes, with the end of a replay, its operational event.
func (s *Operational) NoteReplay(ctx context.Context, tx pgx.Tx, r *webhook.Replay) error {
	return s.note(ctx, tx, &webhook.OperationalEvent{
		Type: webhook.EventReplayCompleted, TenantID: r.TenantID, Replay: r,
		Summary: explain.ReplayCompleted(r),
	})
}

// NoteBacklog writes, in a transaction of a worker, the operational event that an endpoint's held deliveries will be given up. It writes nothing if the
// endpoint is gone.
func (s *Operational) NoteBacklog(ctx context.Context, tx pgx.Tx, id webhook.EndpointID, summary string) error {
	e := webhook.Endpoint{ID: id}
	var state int16
	err := tx.QueryRow(ctx, `select tenant_id, url, description, state, state_reason from endpoints where id = $1 and deleted_at is null`, id).
		Scan(&e.TenantID, &e.URL, &e.Description, &state, &e.StateReason)
	if postgres.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return err
	}
	e.State = webhook.EndpointState(state) //nolint:gosec // written by us
	return s.note(ctx, tx, &webhook.OperationalEvent{Type: webhook.EventBacklogExpiring, TenantID: e.TenantID, Endpoint: &e, Summary: summary})
}

// note writes an operational event in a transaction, for the endpoints that subscribe to it:
// nothing, if none does. The relay starts its deliveries within about a second.
func (s *Operational) note(ctx context.Context, tx pgx.Tx, n *webhook.OperationalEvent) error {
	n.At = s.core.Now().Truncate(time.Microsecond)
	if err := s.noteFor(ctx, tx, n, n.TenantID); err != nil || s.operatorTenant == "" || s.operatorTenant == n.TenantID {
		return err
	}
	// The only place where a transaction of one tenant writes rows of another: it sets the
	// other tenant, and then its own again.
	if _, err := tx.Exec(ctx, postgres.SetLocally, postgres.SettingTenant, s.operatorTenant); err != nil {
		return err
	}
	if err := s.noteFor(ctx, tx, n, s.operatorTenant); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, postgres.SetLocally, postgres.SettingTenant, n.TenantID)
	return err
}

// noteFor is note for the endpoints of one tenant. The contact is read on the way, when
// it is the tenant's own.
func (s *Operational) noteFor(ctx context.Context, tx pgx.Tx, n *webhook.OperationalEvent, tenantID string) error {
	if tenantID == n.TenantID {
		if err := tx.QueryRow(ctx, `select contact from tenants where id = $1`, n.TenantID).Scan(&n.Contact); err != nil {
			return err
		}
	}
	endpoints, err := s.audience(ctx, tx, n.Type, tenantID)
	if err != nil || len(endpoints) == 0 {
		return err
	}
	payload, err := n.Payload()
	if err != nil {
		return err
	}
	event := webhook.NewEvent{TenantID: tenantID, Type: n.Type, Payload: payload}
	seen := event.Filtered()
	endpoints = slices.DeleteFunc(endpoints, func(e webhook.Endpoint) bool { return !e.Filter.Match(seen) })
	if len(endpoints) == 0 {
		return nil
	}
	return s.write(ctx, tx, tenantID, event, n.At, endpoints)
}

// PostTo writes, in a transaction of a worker, an event for one endpoint alone, whatever it subscribes to: for the internal endpoint of a chat. The
// relay starts its delivery within about a second. It writes nothing if the endpoint is gone.
func (s *Operational) PostTo(ctx context.Context, tx pgx.Tx, id webhook.EndpointID, eventType string, payload []byte) error {
	var (
		e        = webhook.Endpoint{ID: id}
		own      *retry.Policy
		inherits *retry.Policy
	)
	err := tx.QueryRow(ctx, `
		select tenant_id, retry_policy, `+tenants.PolicyOfEndpoint+` from endpoints e where id = $1 and deleted_at is null`, id).
		Scan(&e.TenantID, &own, &inherits)
	if postgres.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return err
	}
	e.RetryPolicy, e.Inherited = tenants.PolicyOf(own), s.endpoints.Inherited(inherits)
	return s.write(ctx, tx, e.TenantID, webhook.NewEvent{
		TenantID: e.TenantID, Type: eventType, Payload: payload, EndpointIDs: []webhook.EndpointID{id},
	}, s.core.Now().Truncate(time.Microsecond), []webhook.Endpoint{e})
}

// write writes an event with deliveries to endpoints of its tenant, which the relay starts.
func (s *Operational) write(ctx context.Context, tx pgx.Tx, tenantID string, e webhook.NewEvent, at time.Time, to []webhook.Endpoint) error {
	in := &posting{TenantID: tenantID, created: at}
	in.add(e, "")
	a := &in.Arrivals[0]
	a.id = newEventID(s.core.IDShift())
	for i := range to {
		in.start(a, &to[i])
	}
	var (
		ev    eventBatch
		ob    deliveries.OutboxBatch
		batch pgx.Batch
	)
	ev = append(ev, eventRow{a, in})
	for _, start := range a.Starts {
		ob = append(ob, deliveries.OutboxRow{Start: &start, After: 0})
	}
	ev.queue(&batch)
	ob.QueueFirst(&batch)
	return tx.SendBatch(ctx, &batch).Close()
}

// audience are a tenant's endpoints that subscribe to an operational event, whatever their filters, at most webhook.MaxOperational of them. An index
// has those that subscribe to any.
func (s *Operational) audience(ctx context.Context, tx pgx.Tx, eventType, tenantID string) ([]webhook.Endpoint, error) {
	rows, err := tx.Query(ctx, `
		select id, event_types, coalesce(filter, ''), retry_policy, `+tenants.PolicyOfEndpoint+` from endpoints e
		where tenant_id = $1 and deleted_at is null and operational and event_types && $2 order by id limit $3`,
		tenantID, webhook.MatchingFilters(eventType), webhook.MaxOperational)
	if err != nil {
		return nil, err
	}
	var (
		id       [16]byte
		types    []string
		filters  string
		own      *retry.Policy
		inherits *retry.Policy
		audience []webhook.Endpoint
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &types, &filters, &own, &inherits}, func() error {
		e := webhook.Endpoint{
			ID: id, TenantID: tenantID, EventTypes: types, Filter: filter.Stored(filters),
			RetryPolicy: tenants.PolicyOf(own), Inherited: s.endpoints.Inherited(inherits),
		}
		if e.Wants(eventType) {
			audience = append(audience, e)
		}
		types, own, inherits = nil, nil, nil
		return nil
	})
	return audience, err
}

// Listens reports whether any endpoint subscribes to an operational event of a tenant. It is
// cheap: the endpoints are in the cache.
func (s *Operational) Listens(ctx context.Context, tenantID, eventType string) (bool, error) {
	tenants, err := s.listeners(ctx, tenantID, eventType)
	return len(tenants) > 0, err
}

// listeners are the tenants that an operational event of a tenant is an event of: those
// of its own and of the operator's whose endpoints subscribe to it.
func (s *Operational) listeners(ctx context.Context, tenantID, eventType string) ([]string, error) {
	var tenants []string
	for _, tenant := range []string{tenantID, s.operatorTenant} {
		if tenant == "" || len(tenants) > 0 && tenants[0] == tenant {
			continue
		}
		asks, err := s.cache.AsksFor(ctx, tenant, eventType)
		if err != nil && webhook.CodeOf(err) != webhook.CodeNotFound { // no such tenant: it has no endpoints
			return nil, err
		}
		if asks {
			tenants = append(tenants, tenant)
		}
	}
	return tenants, nil
}

// Notify stores operational events for the endpoints that subscribe to them, many in a transaction,
// and returns what was stored, for the intake. One with a key that is known is
// not stored again. No quota of a tenant refuses them: they may be about a quota that is
// used up. What cannot be stored for one tenant is stored for the others; after an
// error that is returned too.
func (s *Operational) Notify(ctx context.Context, events []webhook.OperationalEvent) ([]webhook.Accepted, error) {
	batches, err := s.batches(ctx, events)
	if err != nil {
		return nil, err
	}
	var (
		stored  []webhook.Accepted
		refused []error
	)
	for _, b := range batches {
		in := postingOf(b)
		in.exempt = true
		all, err := s.events.take(ctx, in)
		if err != nil {
			refused = append(refused, fmt.Errorf("store operational events of %s: %w", b.TenantID, err))
		}
		for _, a := range all {
			if !a.Repeated {
				stored = append(stored, a)
			}
		}
	}
	return stored, errors.Join(refused...)
}

// batches are the events that operational events become, by the tenants that they become events of.
func (s *Operational) batches(ctx context.Context, events []webhook.OperationalEvent) ([]webhook.NewBatch, error) {
	var (
		batches  []webhook.NewBatch
		open     = map[string]int{} // the tenant's last batch
		keys     = map[[2]string]bool{}
		contacts = map[string]string{}
	)
	for i := range events {
		n := events[i]
		tenants, err := s.listeners(ctx, n.TenantID, n.Type)
		if err != nil {
			return nil, err
		}
		for _, tenant := range tenants {
			if n.Key != "" && keys[[2]string{tenant, n.Key}] {
				continue
			}
			keys[[2]string{tenant, n.Key}] = true
			if n.Contact, err = s.contact(ctx, contacts, n.TenantID); err != nil {
				return nil, err
			}
			payload, err := n.Payload()
			if err != nil {
				return nil, err
			}
			at, begun := open[tenant]
			if !begun || len(batches[at].Events) == webhook.MaxBatchEvents {
				at, batches = len(batches), append(batches, webhook.NewBatch{TenantID: tenant})
				open[tenant] = at
			}
			batches[at].Events = append(batches[at].Events, webhook.NewEvent{
				Type: n.Type, Payload: payload, ExternalID: n.Key, BodySHA256: sha256.Sum256([]byte(n.Key)),
			})
		}
	}
	return batches, nil
}

// contact is a tenant's, known or read; "" for a tenant that is gone.
func (s *Operational) contact(ctx context.Context, known map[string]string, tenantID string) (string, error) {
	if contact, ok := known[tenantID]; ok {
		return contact, nil
	}
	t, err := s.tenants.Tenant(ctx, tenantID)
	if err != nil && webhook.CodeOf(err) != webhook.CodeNotFound {
		return "", err
	}
	known[tenantID] = t.Contact
	return t.Contact, nil
}
