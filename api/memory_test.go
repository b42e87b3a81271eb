package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// memory implements the API's interfaces with maps, for the tests of the handlers. The real stores
// are tested with PostgreSQL, and with the API in the end-to-end tests.
type memory struct {
	mu         sync.Mutex
	now        func() time.Time
	tenants    map[string]webhook.Tenant
	keys       []webhook.Key
	endpoints  []webhook.Endpoint
	troubled   []webhook.TroubledTenant
	secrets    map[webhook.EndpointID]string
	events     []webhook.NewEvent // with their results, by index
	accepted   []webhook.Accepted
	batches    []webhook.NewBatch
	deliveries []webhook.Delivery
	attempts   map[webhook.DeliveryID][]webhook.Attempt
	replays    []webhook.Replay
	seen       []webhook.Observation // of every endpoint
	stale      bool                  // the owner of every endpoint does not answer
	statistics []webhook.StatisticsPoint
	counted    []webhook.StatisticsQuery // the queries for statistics
	waits      int                       // reads of what waits
	backlog    webhook.Backlog

	lastFailure *webhook.LastFailure

	deleted       []webhook.DeletedEndpoint
	ahead         int // of every waiting delivery
	down, sentAt  time.Time
	observations  int // reads of what is observed
	releases      map[webhook.EndpointID]webhook.Release
	notifications map[string]webhook.NotificationSettings
	uncounted     error // returned by UndeliveredOf, if set
	unexplained   error // returned by the reads for explanations, if set

	test func(ctx context.Context, eventType string, payload []byte) (webhook.Attempt, error)

	requests map[[32]byte]webhook.KeptRequest

	types    map[string]webhook.EventType
	imported []webhook.TypeImport
	audit    []webhook.AuditEntry
	links    []webhook.ConsoleLink

	calls      []string // calls of the intake and the event store, in order
	actors     []webhook.Actor
	signals    []webhook.PendingCommand
	woken      []webhook.Replay
	lookups    int // of keys
	tokenReads int // look-ups of portal tokens
	searches   int // how many deliveries a page of the list looks at; 0: all
	deletions  map[string]webhook.TenantDeletion
	broken     error        // returned by every call, if set
	exportRead func() error // called by every read of payloads, if set
	panicWith  any          // the value of a panic when an event is posted, if set

	refuseKeys webhook.KeyError // the cause with which every key is refused, if set
}

func newMemory(now func() time.Time) *memory {
	return &memory{
		now: now, tenants: map[string]webhook.Tenant{}, secrets: map[webhook.EndpointID]string{},
		attempts: map[webhook.DeliveryID][]webhook.Attempt{}, deletions: map[string]webhook.TenantDeletion{},
		requests: map[[32]byte]webhook.KeptRequest{}, types: map[string]webhook.EventType{},
	}
}

func (m *memory) lock() func() {
	m.mu.Lock()
	return m.mu.Unlock
}

func (m *memory) Request(_ context.Context, k *webhook.RequestKey) (*webhook.KeptRequest, error) {
	defer m.lock()()
	kept, there := m.requests[k.ID]
	if !there {
		return nil, m.broken
	}
	return &kept, m.broken
}

func (m *memory) KeepAnswer(_ context.Context, k *webhook.RequestKey, a webhook.KeptAnswer) (bool, error) {
	defer m.lock()()
	m.requests[k.ID] = webhook.KeptRequest{Body: k.Body, Answer: a}
	return m.broken == nil, m.broken
}

func (m *memory) PutTenant(_ context.Context, by webhook.Actor, t webhook.Tenant) (webhook.Tenant, bool, error) {
	defer m.lock()()
	old, there := m.tenants[t.ID]
	if there {
		t.CreatedAt = old.CreatedAt
	}
	m.tenants[t.ID] = t
	m.actors = append(m.actors, by)
	return t, !there, m.broken
}

func (m *memory) UpdateTenant(_ context.Context, by webhook.Actor, id string, change func(*webhook.Tenant) error) (webhook.Tenant, error) {
	defer m.lock()()
	t, ok := m.tenants[id]
	if !ok {
		return t, webhook.NotFound("tenant")
	}
	if err := change(&t); err != nil {
		return t, err
	}
	m.tenants[id] = t
	m.actors = append(m.actors, by)
	return t, m.broken
}

func (m *memory) Tenant(_ context.Context, id string) (webhook.Tenant, error) {
	defer m.lock()()
	t, ok := m.tenants[id]
	if !ok {
		return t, webhook.NotFound("tenant")
	}
	return t, m.broken
}

func (m *memory) TenantLimits(_ context.Context, id string) (webhook.Limits, error) {
	defer m.lock()()
	return m.tenants[id].Limits.Or(webhook.Limits{}), nil
}

func (m *memory) ListAudit(_ context.Context, f webhook.AuditFilter, p webhook.Page) ([]webhook.AuditEntry, error) {
	defer m.lock()()
	return pageIn(m.audit, p, func(e webhook.AuditEntry) ([16]byte, bool) {
		return e.ID, (f.TenantID == "" || f.TenantID == e.TenantID) && (f.Action == "" || f.Action == e.Action) &&
			(f.KeyID.IsZero() || f.KeyID == e.By.KeyID)
	}), m.broken
}

func (m *memory) ListTenants(_ context.Context, prefix string, limit int, after string) ([]webhook.Tenant, error) {
	defer m.lock()()
	var all []webhook.Tenant
	for _, t := range m.tenants {
		if t.ID > after && strings.HasPrefix(t.ID, prefix) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b webhook.Tenant) int { return strings.Compare(a.ID, b.ID) })
	return all[:min(limit, len(all))], m.broken
}

func (m *memory) DeleteTenant(_ context.Context, _ webhook.Actor, id string) error {
	defer m.lock()()
	if _, ok := m.tenants[id]; !ok {
		return webhook.NotFound("tenant")
	}
	if slices.ContainsFunc(m.endpoints, func(e webhook.Endpoint) bool { return e.TenantID == id }) {
		return &webhook.Error{Code: webhook.CodeConflict, Message: "the tenant still has endpoints"}
	}
	delete(m.tenants, id)
	return m.broken
}

func (m *memory) CreateKey(_ context.Context, _ webhook.Actor, k webhook.Key) error {
	defer m.lock()()
	m.keys = append(m.keys, k)
	return m.broken
}

func (m *memory) ListKeys(_ context.Context, tenant string, p webhook.Page) ([]webhook.Key, error) {
	defer m.lock()()
	return pageIn(m.keys, p, func(k webhook.Key) ([16]byte, bool) { return k.ID, k.TenantID == tenant }), m.broken
}

func (m *memory) RevokeKey(_ context.Context, _ webhook.Actor, tenant string, id webhook.KeyID) error {
	defer m.lock()()
	i := slices.IndexFunc(m.keys, func(k webhook.Key) bool { return k.ID == id && k.TenantID == tenant })
	if i < 0 {
		return webhook.NotFound("key")
	}
	m.keys = slices.Delete(m.keys, i, i+1)
	return m.broken
}

func (m *memory) Authenticate(_ context.Context, id webhook.KeyID, sum [32]byte) (webhook.Key, error) {
	defer m.lock()()
	m.lookups++
	if m.refuseKeys != "" {
		return webhook.Key{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Err: m.refuseKeys}
	}
	for _, k := range m.keys {
		if k.ID == id && k.SHA256 == sum {
			return k, nil
		}
	}
	return webhook.Key{}, &webhook.Error{Code: webhook.CodeUnauthenticated}
}

func (m *memory) Check(ctx context.Context, id webhook.KeyID, sum [32]byte) (webhook.Key, error) {
	return m.Authenticate(ctx, id, sum)
}

func (m *memory) CreateEndpoint(_ context.Context, by webhook.Actor, e webhook.Endpoint, secret string) (webhook.Endpoint, error) {
	defer m.lock()()
	if _, ok := m.tenants[e.TenantID]; !ok {
		return e, webhook.NotFound("tenant")
	}
	m.endpoints, m.secrets[e.ID] = append(m.endpoints, e), secret
	m.actors = append(m.actors, by)
	return m.inheriting(e), m.broken
}

// inheriting returns an endpoint as the store does: with its tenant's retry policy.
func (m *memory) inheriting(e webhook.Endpoint) webhook.Endpoint {
	if t := m.tenants[e.TenantID]; !t.RetryPolicy.IsZero() {
		e.Inherited = webhook.InheritedPolicy{Policy: t.RetryPolicy, Source: webhook.PolicyOfTenant}
	}
	return e
}

func (m *memory) endpoint(tenant string, id webhook.EndpointID) (*webhook.Endpoint, error) {
	for i := range m.endpoints {
		if e := &m.endpoints[i]; e.ID == id && e.TenantID == tenant {
			return e, m.broken
		}
	}
	return &webhook.Endpoint{}, webhook.NotFound("endpoint")
}

func (m *memory) Endpoint(_ context.Context, tenant string, id webhook.EndpointID) (webhook.Endpoint, error) {
	defer m.lock()()
	e, err := m.endpoint(tenant, id)
	return m.inheriting(*e), err
}

func (m *memory) ListEndpoints(_ context.Context, tenant string, p webhook.Page) ([]webhook.Endpoint, error) {
	defer m.lock()()
	return pageIn(m.endpoints, p, func(e webhook.Endpoint) ([16]byte, bool) { return e.ID, e.TenantID == tenant }), m.broken
}

func (m *memory) UpdateEndpoint(_ context.Context, _ webhook.Actor, tenant string, id webhook.EndpointID,
	change func(*webhook.Endpoint) error,
) (webhook.Endpoint, error) {
	defer m.lock()()
	e, err := m.endpoint(tenant, id)
	if err != nil {
		return *e, err
	}
	changed := *e
	if err := change(&changed); err != nil { // the change is discarded
		return webhook.Endpoint{}, err
	}
	if !webhook.SecretFits(changed.Signature, m.secrets[id]) {
		made := knownSecret(changed.Signature)
		m.secrets[id], changed.PublicKey = made.Secret, made.PublicKey
	}
	changed.Version++
	*e = changed
	return m.inheriting(changed), nil
}

// knownSecret stands for a generated secret.
func knownSecret(scheme string) webhook.NewSecret {
	if scheme == webhook.SignatureV1a {
		return webhook.NewSecret{Secret: knownPrivateKey, PublicKey: knownPublicKey}
	}
	return webhook.NewSecret{Secret: "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3"}
}

func (m *memory) RotateSecret(_ context.Context, by webhook.Actor, tenant string, id webhook.EndpointID, r webhook.Rotation) (webhook.Rotated, error) {
	defer m.lock()()
	e, err := m.endpoint(tenant, id)
	if err != nil {
		return webhook.Rotated{}, err
	}
	if r.Secret == "" {
		r.NewSecret = knownSecret(e.Signature)
	}
	if !webhook.SecretFits(e.Signature, r.Secret) {
		return webhook.Rotated{}, webhook.UnfitSecret(e.Signature)
	}
	m.secrets[id], e.PublicKey = r.Secret, r.PublicKey
	m.actors = append(m.actors, by)
	done := webhook.Rotated{NewSecret: r.NewSecret}
	if r.Grace > 0 {
		done.OldUntil = m.now().Add(r.Grace)
	}
	return done, nil
}

func (m *memory) PauseEndpoint(_ context.Context, by webhook.Actor, tenant string, id webhook.EndpointID, reason string) (webhook.Endpoint, error) {
	defer m.lock()()
	e, err := m.endpoint(tenant, id)
	if err == nil && e.State == webhook.EndpointDisabled {
		err = &webhook.Error{Code: webhook.CodeConflict, Message: "the endpoint is disabled"}
	}
	if err == nil {
		e.State, e.StateReason, e.StateSince, e.StateBy = webhook.EndpointPaused, reason, m.now(), by.Who()
	}
	return *e, err
}

func (m *memory) ResumeEndpoint(_ context.Context, by webhook.Actor, tenant string, id webhook.EndpointID, rate int, reason string,
) (webhook.Endpoint, webhook.Release, error) {
	defer m.lock()()
	e, err := m.endpoint(tenant, id)
	if err == nil && e.State != webhook.EndpointActive {
		e.State, e.StateReason, e.StateSince, e.StateBy = webhook.EndpointActive, reason, m.now(), by.Who()
		m.putRelease(webhook.Release{EndpointID: id, TenantID: tenant, Rate: rate, StartedAt: m.now()})
	}
	return *e, m.releases[id], err
}

func (m *memory) putRelease(r webhook.Release) {
	if m.releases == nil {
		m.releases = map[webhook.EndpointID]webhook.Release{}
	}
	m.releases[r.EndpointID] = r
}

func (m *memory) ReleaseOf(_ context.Context, tenant string, id webhook.EndpointID) (webhook.Release, error) {
	defer m.lock()()
	_, err := m.endpoint(tenant, id)
	r, known := m.releases[id]
	if !known {
		r = webhook.Release{EndpointID: id, TenantID: tenant, State: webhook.ReleaseDone}
	}
	return r, err
}

func (m *memory) ChangeRelease(_ context.Context, by webhook.Actor, tenant string, id webhook.EndpointID, change webhook.ReleaseChange,
) (webhook.Release, error) {
	defer m.lock()()
	m.actors = append(m.actors, by)
	e, err := m.endpoint(tenant, id)
	if err == nil && e.State != webhook.EndpointActive {
		err = &webhook.Error{Code: webhook.CodeConflict, Message: "the endpoint is not active"}
	}
	if err != nil {
		return webhook.Release{}, err
	}
	r := m.releases[id]
	if change.State != nil {
		r.State = *change.State
	}
	if change.Rate != nil {
		r.Rate = *change.Rate
	}
	m.putRelease(r)
	return r, nil
}

func (m *memory) Circuit(context.Context, string, webhook.EndpointID) (webhook.Observation, bool, error) {
	defer m.lock()()
	return webhook.Aggregate(m.seen), m.stale, m.broken
}

func (m *memory) CloseCircuit(_ context.Context, by webhook.Actor, tenant string, id webhook.EndpointID) (webhook.ClosedCircuit, error) {
	defer m.lock()()
	m.actors = append(m.actors, by)
	e, err := m.endpoint(tenant, id)
	closed := webhook.ClosedCircuit{Endpoint: *e, At: m.now()}
	for _, d := range m.deliveries {
		if d.EndpointID == id && d.State.Open() {
			closed.Delivery, closed.Command = d, webhook.PendingCommand{ID: 8, Command: webhook.CommandRetry}
			break
		}
	}
	return closed, err
}

func (m *memory) EndpointSecret(_ context.Context, _ webhook.Actor, tenant string, id webhook.EndpointID) (string, error) {
	defer m.lock()()
	_, err := m.endpoint(tenant, id)
	return m.secrets[id], err
}

func (m *memory) DeleteEndpoint(_ context.Context, _ webhook.Actor, tenant string, id webhook.EndpointID) error {
	defer m.lock()()
	_, err := m.endpoint(tenant, id)
	m.endpoints = slices.DeleteFunc(m.endpoints, func(e webhook.Endpoint) bool { return e.ID == id && e.TenantID == tenant })
	return err
}

func (m *memory) Accept(_ context.Context, e webhook.NewEvent) (webhook.Accepted, error) {
	defer m.lock()()
	m.calls = append(m.calls, "accept")
	return m.accept(e)
}

// AcceptBatch handles external ids, but no Idempotency-Key: that belongs to the store and is tested
// there.
func (m *memory) AcceptBatch(_ context.Context, b webhook.NewBatch) ([]webhook.Accepted, error) {
	defer m.lock()()
	m.calls = append(m.calls, "accept batch")
	m.batches = append(m.batches, b)
	var all []webhook.Accepted
	for _, e := range b.Events {
		e.TenantID = b.TenantID
		a, err := m.accept(e)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

func (m *memory) accept(e webhook.NewEvent) (webhook.Accepted, error) {
	if m.panicWith != nil {
		panic(m.panicWith)
	}
	if _, ok := m.tenants[e.TenantID]; !ok {
		return webhook.Accepted{}, webhook.NotFound("tenant")
	}
	for i, old := range m.events {
		same := e.ExternalID != "" && old.ExternalID == e.ExternalID || e.IdempotencyKey != "" && old.IdempotencyKey == e.IdempotencyKey
		if old.TenantID != e.TenantID || !same {
			continue
		}
		if old.BodySHA256 != e.BodySHA256 {
			return webhook.Accepted{}, &webhook.Error{Code: webhook.CodeMismatch, Message: "this external_id came with another body"}
		}
		again := m.accepted[i]
		again.Repeated = true
		return again, nil
	}

	now := m.now()
	a := webhook.Accepted{Event: webhook.Event{
		ID: webhook.NewEventID(), TenantID: e.TenantID, Type: e.Type, ExternalID: e.ExternalID, CreatedAt: now,
		DeliverAt: e.DeliverAt, PayloadSize: len(e.Payload), Version: e.Version, Tags: e.Tags, OrderingKey: e.OrderingKey,
		HeaderSize: webhook.HeaderSize(e.Headers),
	}}
	for _, endpoint := range m.endpoints {
		chosen := slices.Contains(e.EndpointIDs, endpoint.ID) || e.EndpointIDs == nil && endpoint.Wants(e.Type)
		if endpoint.TenantID != e.TenantID || !chosen {
			continue
		}
		ref := webhook.Ref{
			DeliveryID: webhook.DeliveryIDOf(a.Event.ID, endpoint.ID), EventID: a.Event.ID, EndpointID: endpoint.ID,
			TenantID: e.TenantID, EventType: e.Type,
		}
		a.Event.EndpointIDs = append(a.Event.EndpointIDs, endpoint.ID)
		a.Deliveries = append(a.Deliveries, webhook.Start{Ref: ref, Run: 1, CreatedAt: now})
		m.deliveries = append(m.deliveries, webhook.Delivery{
			Ref: ref, Progress: webhook.Progress{Run: 1, GiveUpAt: now.Add(72 * time.Hour)}, CreatedAt: now, WorkflowID: ref.WorkflowID(1),
		})
	}
	if len(a.Deliveries) == 0 {
		a.Event.Reason = webhook.ReasonNoMatch
	}
	m.events, m.accepted = append(m.events, e), append(m.accepted, a)
	return a, m.broken
}

func (m *memory) Event(_ context.Context, tenant string, id webhook.EventID) (webhook.Event, []webhook.Delivery, error) {
	defer m.lock()()
	for i, a := range m.accepted {
		if a.Event.ID == id && a.Event.TenantID == tenant {
			a.Event.Headers = m.events[i].Headers
			return a.Event, slices.DeleteFunc(slices.Clone(m.deliveries), func(d webhook.Delivery) bool { return d.EventID != id }), m.broken
		}
	}
	return webhook.Event{}, nil, webhook.NotFound("event")
}

func (m *memory) Payload(_ context.Context, tenant string, id webhook.EventID) ([]byte, error) {
	defer m.lock()()
	for i, a := range m.accepted {
		if a.Event.ID == id && a.Event.TenantID == tenant {
			if removed := a.Event.Removed; !removed.IsZero() {
				return nil, &webhook.Error{Code: webhook.CodeRemoved, Message: removed.String()}
			}
			return m.events[i].Payload, m.broken
		}
	}
	return nil, webhook.NotFound("event")
}

func (m *memory) ListEvents(_ context.Context, tenant string, f webhook.EventFilter, p webhook.Page) ([]webhook.Event, [16]byte, error) {
	defer m.lock()()
	var all []webhook.Event
	for _, a := range m.accepted {
		all = append(all, a.Event)
	}
	return pageIn(all, p, func(e webhook.Event) ([16]byte, bool) {
		return e.ID, e.TenantID == tenant && (f.Type == "" || webhook.FilterMatches(f.Type, e.Type)) && (f.ExternalID == "" || f.ExternalID == e.ExternalID) &&
			(f.Tag == "" || slices.Contains(e.Tags, f.Tag))
	}), [16]byte{}, m.broken
}

func (m *memory) delivery(tenant string, id webhook.DeliveryID) (*webhook.Delivery, error) {
	for i := range m.deliveries {
		if d := &m.deliveries[i]; d.DeliveryID == id && d.TenantID == tenant {
			return d, m.broken
		}
	}
	return &webhook.Delivery{}, webhook.NotFound("delivery")
}

func (m *memory) Delivery(_ context.Context, tenant string, id webhook.DeliveryID) (webhook.Delivery, error) {
	defer m.lock()()
	d, err := m.delivery(tenant, id)
	return *d, err
}

func (m *memory) ListDeliveries(_ context.Context, tenant string, f webhook.DeliveryFilter, p webhook.Page) ([]webhook.Delivery, [16]byte, error) {
	defer m.lock()()
	searchable, searched := m.deliveries, [16]byte{}
	if m.searches > 0 { // looks at so many deliveries of a page only
		every := func(d webhook.Delivery) ([16]byte, bool) { return d.DeliveryID, true }
		searchable = pageIn(m.deliveries, webhook.Page{Limit: m.searches, After: p.After}, every)
		if len(searchable) == m.searches {
			searched = searchable[m.searches-1].DeliveryID
		}
	}
	found := pageIn(searchable, p, func(d webhook.Delivery) ([16]byte, bool) {
		return d.DeliveryID, d.TenantID == tenant && (f.States == nil || slices.Contains(f.States, d.State)) &&
			(f.EndpointID.IsZero() || f.EndpointID == d.EndpointID) && (f.EventID.IsZero() || f.EventID == d.EventID) &&
			(f.Reason == "" || f.Reason == d.Reason) && (f.Status == 0 || d.LastOutcome != nil && f.Status == d.LastOutcome.Status)
	})
	if len(found) == p.Limit {
		searched = [16]byte{}
	}
	return found, searched, m.broken
}

func (m *memory) Attempts(_ context.Context, tenant string, id webhook.DeliveryID, limit, after int) ([]webhook.Attempt, error) {
	defer m.lock()()
	if _, err := m.delivery(tenant, id); err != nil {
		return nil, err
	}
	var out []webhook.Attempt
	for _, a := range slices.Backward(m.attempts[id]) {
		if (after == 0 || a.Number < after) && len(out) < limit {
			out = append(out, a)
		}
	}
	return out, nil
}

func (m *memory) Outcomes(_ context.Context, tenant string, ids []webhook.EventID) (map[webhook.EventID]webhook.EventOutcomes, error) {
	defer m.lock()()
	outcomes := map[webhook.EventID]webhook.EventOutcomes{}
	for _, d := range m.deliveries {
		if d.TenantID == tenant && slices.Contains(ids, d.EventID) {
			of := outcomes[d.EventID]
			of.Add(d.State, 1)
			outcomes[d.EventID] = of
		}
	}
	return outcomes, m.broken
}

func (m *memory) ExternalIDs(_ context.Context, tenant string, ids []webhook.EventID) (map[webhook.EventID]string, error) {
	defer m.lock()()
	all := map[webhook.EventID]string{}
	for _, a := range m.accepted {
		if a.Event.TenantID == tenant && a.Event.ExternalID != "" && slices.Contains(ids, a.Event.ID) {
			all[a.Event.ID] = a.Event.ExternalID
		}
	}
	return all, m.broken
}

func (m *memory) ListAttempts(_ context.Context, tenant string, f webhook.AttemptFilter, limit int, after webhook.DeliveryAttempt) (
	found []webhook.DeliveryAttempt, searched webhook.DeliveryID, err error,
) {
	defer m.lock()()
	all := slices.Clone(m.deliveries)
	slices.SortFunc(all, func(a, b webhook.Delivery) int { return bytes.Compare(b.DeliveryID[:], a.DeliveryID[:]) })
	for _, d := range all {
		if d.TenantID != tenant || d.EndpointID != f.EndpointID && d.EventID != f.EventID {
			continue
		}
		for _, a := range slices.Backward(m.attempts[d.DeliveryID]) {
			one := webhook.DeliveryAttempt{Attempt: a, DeliveryID: d.DeliveryID}
			past := bytes.Compare(d.DeliveryID[:], after.DeliveryID[:])
			if (after.DeliveryID.IsZero() || past < 0 || past == 0 && a.Number < after.Number) && len(found) < limit {
				found = append(found, one)
			}
		}
	}
	return found, searched, m.broken
}

func (m *memory) CancelEvent(_ context.Context, by webhook.Actor, tenant string, id webhook.EventID, reason string) (
	cancelled []webhook.CommandedDelivery, err error,
) {
	defer m.lock()()
	m.actors = append(m.actors, by)
	known := false
	for _, a := range m.accepted {
		known = known || a.Event.TenantID == tenant && a.Event.ID == id
	}
	if !known {
		return nil, webhook.NotFound("event")
	}
	for _, d := range m.deliveries {
		if d.EventID == id && d.State.Open() {
			c := webhook.PendingCommand{Command: webhook.CommandCancel, ID: 7, Reason: reason}
			cancelled = append(cancelled, webhook.CommandedDelivery{Delivery: d, Command: c})
		}
	}
	return cancelled, m.broken
}

func (m *memory) Command(_ context.Context, _ webhook.Actor, tenant string, id webhook.DeliveryID,
	c webhook.PendingCommand,
) (webhook.Delivery, webhook.PendingCommand, error) {
	defer m.lock()()
	d, err := m.delivery(tenant, id)
	if err != nil {
		return *d, c, err
	}
	if !c.Command.TakenIn(d.State, !d.DueAt.IsZero()) {
		return *d, c, &webhook.Error{Code: webhook.CodeConflict, Message: "the delivery is " + d.State.String(), State: d.State}
	}
	c.ID = 7
	return *d, c, nil
}

func (m *memory) ReserveRoom(context.Context, string, int) (func(), error) {
	defer m.lock()()
	if webhook.CodeOf(m.broken) == webhook.CodeUnavailable {
		return nil, m.broken
	}
	m.calls = append(m.calls, "reserve")
	return func() {
		defer m.lock()()
		m.calls = append(m.calls, "release")
	}, nil
}

func (m *memory) Accepted(all ...webhook.Accepted) {
	defer m.lock()()
	call := "accepted"
	if len(all) > 1 {
		call += " " + strconv.Itoa(len(all))
	}
	m.calls = append(m.calls, call)
}

func (m *memory) Commanded(_ context.Context, _ webhook.Delivery, c webhook.PendingCommand) {
	defer m.lock()()
	m.signals = append(m.signals, c)
}

func (m *memory) CheckURL(raw string) []string {
	if !strings.HasPrefix(raw, "https://") {
		return []string{"only https is allowed"}
	}
	if strings.HasPrefix(raw, "https://10.") {
		return []string{"the address is not public", "port 22 is not allowed"}
	}
	return nil
}

// pageIn returns a page of entries ordered by id, newest first.
func pageIn[T any](all []T, p webhook.Page, key func(T) (id [16]byte, wanted bool)) []T {
	var out []T
	for _, entry := range all {
		id, wanted := key(entry)
		if wanted && (p.After == [16]byte{} || bytes.Compare(id[:], p.After[:]) < 0) {
			out = append(out, entry)
		}
	}
	slices.SortFunc(out, func(a, b T) int {
		x, _ := key(a)
		y, _ := key(b)
		return bytes.Compare(y[:], x[:])
	})
	if p.Limit > maxLimit {
		panic("a page of more than 250 was requested")
	}
	return out[:min(len(out), p.Limit)]
}

// instant accepts every event and stores none, to measure the cost of the handler.
type instant struct{ Events }

func (instant) Accept(_ context.Context, e webhook.NewEvent) (webhook.Accepted, error) {
	id := webhook.NewEventID()
	ref := webhook.Ref{EventID: id, EventType: e.Type}
	return webhook.Accepted{Event: webhook.Event{ID: id, Type: e.Type}, Deliveries: []webhook.Start{{Ref: ref}}}, nil
}

// discard is a response that is not kept.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
