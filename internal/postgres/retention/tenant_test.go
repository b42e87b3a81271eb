package retention_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/retention"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// keep gives the tenant acme a retention.
func keep(t *testing.T, b *storetest.Bundle, r webhook.Retention) {
	t.Helper()
	_, err := b.UpdateTenant(t.Context(), storetest.TestActor(), "acme", func(t *webhook.Tenant) error {
		t.Retention = r
		return nil
	})
	require.NoError(t, err)
}

func retainTenants(t *testing.T, b *storetest.Bundle, after time.Duration) retention.TenantRetained {
	t.Helper()
	removed, err := b.RetainTenants(t.Context(), time.Now().Add(after))
	require.NoError(t, err)
	return removed
}

// Each part of a delivery goes after its own time, and not before.
func TestPartsGoInTheirOrder(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := storetest.NewEvent("order.paid")
	in.Headers, in.Tags = map[string]string{"X-Region": "eu"}, []string{"order:17"}
	accepted, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	d := b.EndIn(t, accepted.Deliveries[0], webhook.StateDelivered)
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 100*postgres.Day), "the installation's retention applies")

	keep(t, b, webhook.Retention{Payloads: time.Hour, Attempts: 2 * time.Hour, Deliveries: 24 * time.Hour})
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 59*time.Minute))

	require.Equal(t, retention.TenantRetained{Payloads: 1}, retainTenants(t, b, 61*time.Minute))
	e, _, err := b.Event(t.Context(), "acme", d.EventID)
	require.NoError(t, err)
	require.Equal(t, webhook.PayloadRetained, e.Removed.Reason)
	require.WithinDuration(t, time.Now(), e.Removed.At, time.Minute)
	require.Positive(t, e.PayloadSize)
	require.Nil(t, e.Headers)
	require.Equal(t, in.Tags, e.Tags)
	_, err = b.Payload(t.Context(), "acme", d.EventID)
	storetest.RequireCode(t, webhook.CodeRemoved, err)
	require.ErrorContains(t, err, "its payload was removed by retention")
	require.Zero(t, b.CountOf(t, "events where payload <> '' or payload_sha256 <> ''"))
	_, _, err = b.CommandOne(t, d.DeliveryID, webhook.CommandReplay)
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.Equal(t, 1, b.Count(t, "attempts"))

	require.Equal(t, retention.TenantRetained{Attempts: 1}, retainTenants(t, b, 121*time.Minute))
	stored, err := b.Delivery(t.Context(), "acme", d.DeliveryID)
	require.NoError(t, err)
	require.Equal(t, 1, stored.Attempts, "their number stays")

	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 23*time.Hour))
	require.Equal(t, retention.TenantRetained{Deliveries: 1, Events: 1}, retainTenants(t, b, 25*time.Hour))
	for _, table := range []string{"events", "deliveries", "attempts"} {
		require.Zero(t, b.Count(t, table), table)
	}
}

// What may still be sent keeps everything, and so does another tenant.
func TestWhatIsNeededStays(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	outbox := b.AcceptOne(t)
	dead := b.EndIn(t, b.AcceptOne(t), webhook.StateDeadLettered)
	b.Waiting(t, webhook.StateRetrying, "", time.Now())
	b.Waiting(t, webhook.StateHeld, webhook.ReasonPaused, time.Time{})
	b.Waiting(t, webhook.StatePending, "", time.Now().Add(time.Hour))
	later := storetest.NewEvent("order.paid")
	later.DeliverAt = time.Now().Add(1000 * time.Hour)
	_, err := b.Accept(t.Context(), later)
	require.NoError(t, err)
	require.NoError(t, b.PutNamed(t, "other"))
	others := storetest.NewEvent("no.match")
	others.TenantID = "other"
	_, err = b.Accept(t.Context(), others)
	require.NoError(t, err)
	keep(t, b, webhook.Retention{Payloads: time.Hour, Attempts: time.Hour, Deliveries: 24 * time.Hour})
	const much = 100 * postgres.Day
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, much))
	require.Equal(t, 7, b.CountOf(t, "events where payload <> ''"))

	// Of an event with a dead letter only the other delivery goes.
	mate := b.AddEndpoint(t, "*")
	a, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 2)
	for _, d := range a.Deliveries {
		b.EndIn(t, d, map[bool]webhook.State{true: webhook.StateDelivered, false: webhook.StateDeadLettered}[d.EndpointID == mate.ID])
	}
	require.Equal(t, retention.TenantRetained{Attempts: 1, Deliveries: 1}, retainTenants(t, b, much))
	_, err = b.Payload(t.Context(), "acme", a.Event.ID)
	require.NoError(t, err)

	// When nothing needs it any more, all of it goes.
	for _, start := range []webhook.Start{outbox, dead} {
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 2, webhook.StateDiscarded))
		require.NoError(t, err)
	}
	require.Equal(t, retention.TenantRetained{Payloads: 2, Attempts: 1, Deliveries: 2, Events: 2}, retainTenants(t, b, much))
	require.Equal(t, 1, b.CountOf(t, "attempts where delivery_id in (select id from deliveries where state = 4)"))
}

// The time counts from the end of a delivery, and the attempts of a replay have their own.
func TestRetentionCountsFromTheEnd(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	keep(t, b, webhook.Retention{Payloads: 48 * time.Hour, Attempts: time.Hour, Deliveries: 48 * time.Hour})
	start := b.EndIn(t, b.AcceptOne(t), webhook.StateCancelled)
	require.Equal(t, retention.TenantRetained{Attempts: 1}, retainTenants(t, b, 2*time.Hour))
	_, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	require.NoError(t, err)
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 49*time.Hour), "it is open")
	step := storetest.StepOf(start, 1, webhook.StateDelivered)
	step.Run, step.Attempts, step.RunAttempts, step.Attempt = 2, 2, 1, storetest.AttemptOf(2, 2, 200)
	step.Attempt.StartedAt = time.Now().Add(40 * time.Hour)
	_, err = b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, retention.TenantRetained{Attempts: 1}, retainTenants(t, b, 49*time.Hour), "it has ended nine hours before")
	require.Equal(t, retention.TenantRetained{Payloads: 1, Deliveries: 1, Events: 1}, retainTenants(t, b, 89*time.Hour))
}

// A repeated event gets its first answer until its Idempotency-Key ends, and is not stored again.
func TestRetentionKeepsIdempotency(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	keep(t, b, webhook.Retention{Payloads: time.Hour, Attempts: time.Hour, Deliveries: webhook.MinDeliveryRetention})
	in := storetest.NewEvent("order.paid")
	in.ExternalID, in.IdempotencyKey, in.BodySHA256 = "order-1", "key-1", sha256.Sum256([]byte("1"))
	a, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	b.EndIn(t, a.Deliveries[0], webhook.StateDelivered)
	batch := webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{in}, IdempotencyKey: "key-2", BodySHA256: sha256.Sum256([]byte("2"))}
	_, err = b.AcceptBatch(t.Context(), batch)
	require.NoError(t, err)

	require.Equal(t, retention.TenantRetained{Payloads: 1, Attempts: 1}, retainTenants(t, b, 23*time.Hour))
	again, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, a.Event.ID, again.Event.ID)
	require.Equal(t, a.Event.PayloadSize, again.Event.PayloadSize)
	require.Equal(t, 1, b.Count(t, "events"))

	require.Equal(t, retention.TenantRetained{Deliveries: 1, Events: 1}, retainTenants(t, b, 25*time.Hour))
	require.Equal(t, []string{"key-1", "key-2"}, storetest.Query[string](t, b.Stores, `select key from idempotency_keys order by 1`),
		"the external id went with the event")
	// The keys are younger than a day here, as that of a batch may be which named an older event.
	_, err = b.AcceptBatch(t.Context(), batch)
	storetest.RequireCode(t, webhook.CodeConflict, err)
	in.ExternalID = ""
	_, err = b.Accept(t.Context(), in)
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.Zero(t, b.Count(t, "events"))
	b.Exec(t, `update idempotency_keys set created_at = created_at - interval '25 hours'`)
	_, err = b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 1, b.Count(t, "events"))
}

// A replay that is not committed yet keeps the payload that it needs.
func TestTenantRetentionSkipsWhatIsBeingReplayed(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	keep(t, b, webhook.Retention{Payloads: time.Hour, Attempts: time.Hour, Deliveries: 24 * time.Hour})
	d := b.EndIn(t, b.AcceptOne(t), webhook.StateCancelled)
	commit := replayUnderWay(t, b, d.DeliveryID)
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 48*time.Hour))
	commit()
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 48*time.Hour))
	_, err := b.Payload(t.Context(), "acme", d.EventID)
	require.NoError(t, err)
}

// A replay of events that waits for the removal of a payload makes no delivery without one.
func TestReplayFindsThePayloadRemoved(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	a, err := b.Accept(t.Context(), storetest.NewEvent("no.match"))
	require.NoError(t, err)
	replay, err := b.CreateReplay(t.Context(), storetest.TestActor(), webhook.Replay{
		TenantID: "acme", Source: webhook.ReplayEvents, Asked: 60,
		Filter: webhook.ReplayFilter{EndpointID: b.Subscriber.ID, Since: time.Now().Add(-time.Hour), IncludeUnmatched: true},
	})
	require.NoError(t, err)
	tx, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from events where id = $1 for update`, a.Event.ID)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `update events set payload = '', payload_removed_at = now(), payload_removed_reason = 'retention' where id = $1`, a.Event.ID)
	require.NoError(t, err)
	released := make(chan error, 1)
	go func() {
		_, err := b.ReleaseReplay(context.WithoutCancel(t.Context()), webhook.ReplayBatch{ID: replay.ID, Seq: 1, Limit: 10, Now: time.Now()})
		released <- err
	}()
	require.Eventually(t, func() bool {
		return slices.Equal([]bool{true}, storetest.Query[bool](t, b.Stores, `select exists (
			select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%for key share%')`))
	}, storetest.Eventually, storetest.Poll)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-released)
	require.Zero(t, b.Count(t, "outbox"))
}

// A process that finds another one at work leaves it to that.
func TestOneProcessRetainsAtATime(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	keep(t, b, webhook.Retention{Payloads: time.Hour})
	b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
	tx, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended('everpost/tenant-retention/' || current_schema(), 0))`)
	require.NoError(t, err)
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 48*time.Hour))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, retention.TenantRetained{Payloads: 1}, retainTenants(t, b, 48*time.Hour))
}

// A run has a bound. The next one goes on, also past what stays.
func TestRunsGoOnWhereTheLastOneStopped(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.BoundTenants(1)
	keep(t, b, webhook.Retention{Payloads: time.Hour})
	many := postgres.DeleteBatch + 10
	b.Exec(t, events, "acme", many, time.Now().Add(-6*time.Hour))
	b.Exec(t, deliveriesOfEvents+` order by id limit `+strconv.Itoa(postgres.DeleteBatch), b.Subscriber.ID, webhook.StateDeadLettered)
	require.Equal(t, retention.TenantRetained{}, retainTenants(t, b, 0), "a batch of dead letters")
	require.Equal(t, retention.TenantRetained{Payloads: 10}, retainTenants(t, b, 0))
	require.Equal(t, many-10, b.CountOf(t, `events where payload <> ''`))
}

// A run reads by index: of big tables little more than what it removes, and never a whole one.
func TestTenantRetentionReadsByIndex(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	keep(t, b, webhook.Retention{Payloads: time.Hour, Attempts: 2 * time.Hour, Deliveries: 24 * time.Hour})
	const others, own, old = 150_000, 50_000, 5_000
	begin := time.Now().UTC().Truncate(postgres.Day).Add(-2 * time.Hour)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	session(t, b, func(conn *pgx.Conn) {
		for _, sql := range []struct {
			text string
			args []any
		}{
			{events, []any{"other", others, begin}},
			{events, []any{"acme", own, begin}},
			{deliveriesOfEvents, []any{b.Subscriber.ID, webhook.StateDelivered}},
			{attemptsOfDeliveries, nil},
			// Earlier runs have removed most of the tenant's payloads and attempts.
			{`update events set payload = '', payload_removed_at = now(), payload_removed_reason = 'retention' where tenant_id = 'acme'
				and id >= (select id from events where tenant_id = 'acme' order by id offset $1 limit 1)`, []any{old}},
			{`update deliveries set attempts_removed = 1 where tenant_id = 'acme'
				and id >= (select id from deliveries where tenant_id = 'acme' order by id offset $1 limit 1)`, []any{old}},
			{`analyze`, nil},
		} {
			_, err := conn.Exec(t.Context(), sql.text, sql.args...)
			require.NoError(t, err)
		}
	})
	var before, after []read
	session(t, b, func(conn *pgx.Conn) { before = readSoFar(t, conn) })
	require.Equal(t, retention.TenantRetained{Payloads: old, Attempts: old, Deliveries: old, Events: old},
		retainTenants(t, b, time.Until(begin.Add(24*time.Hour+4*time.Hour*old/own+time.Millisecond))))
	b.Close() // a session's reads are counted when it ends
	session(t, b, func(conn *pgx.Conn) { after = readSoFar(t, conn) })
	require.Len(t, after, len(before))
	for i, now := range after {
		require.Equal(t, before[i].Whole, now.Whole, "%s is never read as a whole", now.Table)
		require.Less(t, now.ByIndex-before[i].ByIndex, int64(9*old), now.Table)
	}
}

// read is how many rows of a table were read by reading all of it, and how many by an index.
type read struct {
	Table          string
	Whole, ByIndex int64
}

func readSoFar(t *testing.T, conn *pgx.Conn) []read {
	t.Helper()
	rows, err := conn.Query(t.Context(), `select relname, seq_tup_read, coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
		where relname ~ '^(events|deliveries|attempts)_' or relname in ('outbox', 'idempotency_keys') order by 1`)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[read])
	require.NoError(t, err)
	require.Greater(t, len(found), 3)
	return found
}

// session runs fn on a connection of its own, alone in the database but for idle ones.
func session(t *testing.T, b *storetest.Bundle, fn func(*pgx.Conn)) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.Address+"&application_name=alone")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var others int
		err := conn.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and application_name = 'alone'`).Scan(&others)
		return err == nil && others == 0
	}, storetest.Eventually, storetest.Poll)
	fn(conn)
	require.NoError(t, conn.Close(t.Context()))
}

const (
	// events inserts $2 events of the tenant $1, spread over four hours from $3 on. Ids are UUIDv7 of their time.
	events = `
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
		select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || left(md5(n::text), 3) || '8' || left(md5(n || $1), 15))::uuid,
			$1, 'order.paid', '{"n":1}', '', array[gen_random_uuid()], at
		from generate_series(1, $2::int) n, lateral (select $3::timestamptz + n * interval '4 hours' / $2::int as at) t`

	deliveriesOfEvents = `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at, completed_at)
		select id, id as event_id, $1, tenant_id, type, created_at, 1, 1, $2, created_at, created_at from events`

	attemptsOfDeliveries = `
		insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns,
			delay_source, nominal_ns, truncated, request_headers, response_headers, response_body)
		select id, 1, 1, created_at, 1, 1, '', 200, 0, '', 0, '', 0, false, '{}', '{}', 'ok' from deliveries`
)
