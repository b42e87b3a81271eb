package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// record is what the database says of a tenant.
type record struct {
	deliveries map[string]delivery  // by id
	attempts   map[string][]attempt // by the delivery's id, in order
	left       []string             // what should have gone
	strange    []string             // what no delivery may do, and one did
}

type delivery struct {
	event, endpoint      string
	state                webhook.State
	run, attempts, inRun int
	due                  time.Time // of the first attempt
}

type attempt struct {
	run, number    int
	started, ended time.Time
	status         int
	delivered      bool
	permanent      bool
	reused         bool // it met the end of a kept connection: it does not count, and the next one follows at once
}

// readRecord reads what the database says of a tenant.
func readRecord(ctx context.Context, conn *pgx.Conn, tenant string) (*record, error) {
	r := &record{deliveries: map[string]delivery{}, attempts: map[string][]attempt{}}
	var (
		id, event, endpoint [16]byte
		state               int16
		d                   delivery
	)
	rows, _ := conn.Query(ctx, `select d.id, d.event_id, d.endpoint_id, d.state, d.run, d.attempts, d.run_attempts,
		coalesce(e.deliver_at, d.created_at) from deliveries d join events e on e.id = d.event_id where d.tenant_id = $1`, tenant)
	if _, err := pgx.ForEachRow(rows, []any{&id, &event, &endpoint, &state, &d.run, &d.attempts, &d.inRun, &d.due}, func() error {
		d.event, d.endpoint = webhook.EventID(event).String(), webhook.EndpointID(endpoint).String()
		d.state = webhook.State(state)
		r.deliveries[webhook.DeliveryID(id).String()] = d
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	var (
		a       attempt
		latency int64
		reason  int16
	)
	rows, _ = conn.Query(ctx, `select a.delivery_id, a.run, a.number, a.started_at, a.latency_us, a.status, a.decision, a.reason = $2
		from attempts a join deliveries d on d.id = a.delivery_id where d.tenant_id = $1 order by a.delivery_id, a.run, a.number`,
		tenant, string(retry.ReasonConnectionReused))
	if _, err := pgx.ForEachRow(rows, []any{&id, &a.run, &a.number, &a.started, &latency, &a.status, &reason, &a.reused}, func() error {
		a.ended = a.started.Add(time.Duration(latency) * time.Microsecond)
		a.delivered, a.permanent = reason == decisionDelivered, reason == decisionPermanent
		key := webhook.DeliveryID(id).String()
		r.attempts[key] = append(r.attempts[key], a)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	return r, nil
}

// The numbers of the decisions in the store.
const (
	decisionDelivered = 1
	decisionPermanent = 3
)

// attemptKey names an attempt.
type attemptKey struct {
	delivery string
	number   int
}

// readRecorded are the attempts of a tenant that the database knows now.
func readRecorded(ctx context.Context, conn *pgx.Conn, tenant string) (map[attemptKey]bool, error) {
	r, err := readRecord(ctx, conn, tenant)
	if err != nil {
		return nil, err
	}
	known := map[attemptKey]bool{}
	for id, all := range r.attempts {
		for _, a := range all {
			known[attemptKey{id, a.number}] = true
		}
	}
	return known, nil
}

// open counts what of a tenant is not at rest. Outbox rows count before their deliveries exist.
const open = `select
	(select count(*) from outbox where tenant_id = $1),
	(select count(*) from deliveries where tenant_id = $1 and state < 3),
	(select count(*) from deliveries where tenant_id = $1 and command <> 0)`

// atRest describes what of a tenant is not at rest, "" when all is.
func atRest(ctx context.Context, conn *pgx.Conn, tenant string) (string, error) {
	var outbox, deliveries, commands int
	if err := conn.QueryRow(ctx, open, tenant).Scan(&outbox, &deliveries, &commands); err != nil {
		return "", fmt.Errorf("count what is open: %w", err)
	}
	if outbox+deliveries+commands == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d outbox rows, %d open deliveries, %d commands", outbox, deliveries, commands), nil
}

// claims counts claims that outlived their delivery, of all tenants.
const claims = `select count(*) from deliveries where owner is not null and owner_until > now()`

// replays counts those of all tenants that go on.
const replays = `select count(*) from replays where completed_at is null`

// deadLetters counts the workflows of those of all tenants: each runs.
const deadLetters = `select count(distinct workflow_id) from deliveries where state = 4`
