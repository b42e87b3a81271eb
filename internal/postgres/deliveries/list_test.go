package deliveries_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestPatternsKeepThePlansOfLists(t *testing.T) {
	t.Parallel()
	b, patterns := storetest.PatternBundle(t)
	for pattern, broad := range patterns {
		for _, states := range [][]webhook.State{nil, {webhook.StateDeadLettered}} {
			sql, args := deliveries.ListDeliveries("acme", webhook.DeliveryFilter{EventType: pattern, States: states}, webhook.Page{Limit: 50}, [16]byte{})
			storetest.RequireListPlan(t, b, broad, sql, args)
		}
	}
}

// The lists that people look at are read by an index of just these rows, also by a plan that was made for any
// parameters.
func TestListsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.Pool().Exec(t.Context(), `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
		select gen_random_uuid(), md5(n::text)::uuid, md5((n % 500)::text)::uuid, case when n % 10 = 0 then 'other' else 'acme' end, 'a.b', now(), 1, 1,
			case when n % 40 < 7 then n % 40 else 3 end, now() from generate_series(1, 40000) n;
		analyze deliveries_default`, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	one := b.Subscriber.ID
	states := func(of ...webhook.State) webhook.DeliveryFilter { return webhook.DeliveryFilter{States: of} }
	failed := states(webhook.StateRetrying, webhook.StateDeadLettered)
	failed.EndpointID = one
	for _, c := range []struct {
		name  string
		f     webhook.DeliveryFilter
		index string // how its definition ends
	}{
		{"all", webhook.DeliveryFilter{}, "(tenant_id, id DESC)"},
		{"of an endpoint", webhook.DeliveryFilter{EndpointID: one}, "(endpoint_id, id DESC)"},
		{"failed ones of an endpoint", failed, "(endpoint_id, id DESC) WHERE (state <> 3)"},
		{"open", states(webhook.StatePending, webhook.StateRetrying, webhook.StateHeld), "(tenant_id, id DESC) WHERE (state < 3)"},
		{
			"dead", states(webhook.StateDeadLettered),
			"(tenant_id, id DESC) INCLUDE (endpoint_id, reason, last_status, event_type, created_at, completed_at) WHERE (state = 4)",
		},
		{"cancelled", states(webhook.StateCancelled), "(tenant_id, id DESC) WHERE (state > 4)"},
	} {
		var index string
		require.NoError(t, b.Pool().QueryRow(t.Context(), `
			select indexname from pg_indexes
			where schemaname = current_schema() and tablename = 'deliveries_default' and indexdef like '%' || $1`, c.index).Scan(&index), c.index)
		sql, args := deliveries.ListDeliveries("acme", c.f, webhook.Page{Limit: 50}, [16]byte{})
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			require.Regexp(t, "(using|on) "+index+`\b`, planOf(t, b, mode, sql, args), "%s: %s", c.name, mode)
		}
	}
}

// Deliveries are found by when they ended, by their last answer, and by the external id of their event.
func TestListsByEnd(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	letters := b.DeadLetters(t, 3)
	ended := time.Now().Add(-30 * time.Minute).UTC().Truncate(time.Microsecond)
	for i, id := range letters { // an hour apart, the first one first; all are of now
		_, err := b.Pool().Exec(t.Context(), `update deliveries set completed_at = $2 where id = $1`, id, ended.Add(time.Duration(i)*time.Hour))
		require.NoError(t, err)
	}
	event := storetest.NewEvent("order.paid")
	event.ExternalID = "order-17"
	open, err := b.Accept(t.Context(), event)
	require.NoError(t, err)
	list := func(f webhook.DeliveryFilter) (ids []webhook.DeliveryID) {
		found, searched, err := b.ListDeliveries(t.Context(), "acme", f, webhook.Page{Limit: 50})
		require.NoError(t, err)
		require.Zero(t, searched)
		for _, d := range found {
			ids = append(ids, d.DeliveryID)
		}
		return ids
	}
	groups := func(f webhook.DeliveryFilter) int {
		found, err := b.GroupDeadLetters(t.Context(), "acme", f)
		require.NoError(t, err)
		return found.Counted
	}
	since := webhook.DeliveryFilter{EndedSince: ended.Add(time.Hour)}
	require.Equal(t, []webhook.DeliveryID{letters[2], letters[1]}, list(since), "and no open one")
	require.Equal(t, 2, groups(since))
	until := webhook.DeliveryFilter{EndedUntil: ended.Add(time.Hour), States: []webhook.State{webhook.StateDeadLettered}}
	require.Equal(t, letters[:1], list(until))
	require.Equal(t, 1, groups(until))
	both := webhook.DeliveryFilter{EndedSince: ended.Add(time.Hour), EndedUntil: ended.Add(2 * time.Hour), EndpointID: b.Subscriber.ID}
	require.Equal(t, letters[1:2], list(both))
	require.Equal(t, 1, groups(both))

	require.Len(t, list(webhook.DeliveryFilter{Status: 400}), 3)
	require.Empty(t, list(webhook.DeliveryFilter{Status: 503}))

	require.Equal(t, []webhook.DeliveryID{open.Deliveries[0].DeliveryID}, list(webhook.DeliveryFilter{ExternalID: "order-17"}))
	require.Len(t, list(webhook.DeliveryFilter{ExternalID: "order-17", EventID: open.Event.ID}), 1)
	require.Empty(t, list(webhook.DeliveryFilter{ExternalID: "unknown"}))
	require.Empty(t, list(webhook.DeliveryFilter{ExternalID: "order-17", EventID: webhook.NewEventID()}))
}

// planOf is the plan of a list of the tenant acme, as its caller has it made.
func planOf(t *testing.T, b *storetest.Bundle, mode, sql string, args []any) string {
	t.Helper()
	var lines []string
	require.NoError(t, b.OfTenant("acme").ByIndex().InTx(t.Context(), "explain", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local plan_cache_mode = "+mode); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "explain (costs off) "+sql, args...)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	return strings.Join(lines, "\n")
}

// Attempts of several deliveries are read page by page, and never another tenant's.
func TestAttemptsOfDeliveries(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var ids []webhook.DeliveryID
	for range 3 {
		start := b.AcceptOne(t)
		ids = append(ids, start.DeliveryID)
		for n := 1; n <= 3; n++ {
			step := storetest.StepOf(start, n, webhook.StateRetrying)
			step.Attempt = storetest.AttemptOf(n, 1, 503)
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		}
	}
	first, err := b.Attempts(t.Context(), "acme", ids[0], 10, 0)
	require.NoError(t, err)
	var found []webhook.DeliveryAttempt
	for after := (webhook.DeliveryAttempt{}); ; {
		page, err := b.AttemptsOf(t.Context(), "acme", ids, 2, after)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		require.LessOrEqual(t, len(page), 2)
		found, after = append(found, page...), page[len(page)-1]
	}
	require.Len(t, found, 9)
	for i, a := range found {
		require.Equal(t, ids[i/3], a.DeliveryID)
		require.Equal(t, i%3+1, a.Number)
	}
	require.Equal(t, first[2], found[0].Attempt)

	listed, after := []webhook.DeliveryAttempt(nil), webhook.DeliveryAttempt{}
	for {
		page, searched, err := b.ListAttempts(t.Context(), "acme", webhook.AttemptFilter{EndpointID: b.Subscriber.ID}, 2, after)
		require.NoError(t, err)
		require.Zero(t, searched)
		if len(page) == 0 {
			break
		}
		listed, after = append(listed, page...), page[len(page)-1]
	}
	slices.Reverse(listed)
	require.Equal(t, found, listed, "the newest first")
	d, err := b.Delivery(t.Context(), "acme", ids[1])
	require.NoError(t, err)
	ofEvent, _, err := b.ListAttempts(t.Context(), "acme", webhook.AttemptFilter{EventID: d.EventID}, 10, webhook.DeliveryAttempt{})
	require.NoError(t, err)
	slices.Reverse(ofEvent)
	require.Equal(t, found[3:6], ofEvent)

	require.NoError(t, b.PutNamed(t, "other"))
	foreign, _, err := b.ListAttempts(t.Context(), "other", webhook.AttemptFilter{EndpointID: b.Subscriber.ID}, 10, webhook.DeliveryAttempt{})
	require.NoError(t, err)
	require.Empty(t, foreign)
	none, err := b.AttemptsOf(t.Context(), "other", ids, 10, webhook.DeliveryAttempt{})
	require.NoError(t, err)
	require.Empty(t, none)
}

// A backlog without attempts is passed over a thousand deliveries at a time.
func TestAttemptsBehindABacklog(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	old := b.DeadLetters(t, 1)[0]
	b.Exec(t, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
		select ('ffffffff-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, md5(n::text)::uuid, $1, 'acme', 'a.b', now(), 1, 1, 2, now()
		from generate_series(1, 1500) n`, b.Subscriber.ID)
	of := webhook.AttemptFilter{EndpointID: b.Subscriber.ID}
	page, searched, err := b.ListAttempts(t.Context(), "acme", of, 10, webhook.DeliveryAttempt{})
	require.NoError(t, err)
	require.Empty(t, page)
	require.NotZero(t, searched)
	page, searched, err = b.ListAttempts(t.Context(), "acme", of, 10, webhook.DeliveryAttempt{DeliveryID: searched})
	require.NoError(t, err)
	require.Zero(t, searched)
	require.Len(t, page, 1)
	require.Equal(t, old, page[0].DeliveryID)
}
