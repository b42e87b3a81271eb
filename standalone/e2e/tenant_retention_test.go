package e2e_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// What is past the retention of its tenant goes part by part, another tenant's stays, and a dead letter can still be replayed. A
// process removes it when it starts.
func TestTenantRetention(t *testing.T) {
	t.Parallel()
	in := ownDatabase(t)
	r := newReceiver(t)
	short, long := newBundle(t, in, in.client(), "short"), newBundle(t, in, in.client(), "long")
	short.ask(http.StatusOK, http.MethodPatch, "", `{"retention":{"payloads":"1h","attempts":"1h","deliveries":"24h"}}`, nil)
	for _, b := range []*bundle{short, long} {
		b.endpoint(r, "/"+b.tenant, nil)
		r.Script("/"+b.tenant, receivertest.Step{Status: http.StatusBadRequest})
		_, dead := b.postOne("order.refused", `{"dead":true}`)
		b.waitState(dead.ID, "dead_lettered")
		_, d := b.postOne("order.paid", `{"n":1}`, "external_id", `"order-1"`)
		b.waitState(d.ID, "delivered")
	}
	database := in.database(t)
	older := func(by time.Duration) {
		require.NoError(t, in.stop())
		makeOlder(t, database, by)
		in.restart(t)
		short.client, long.client = in.client(), in.client()
	}

	older(2 * time.Hour)
	d := short.only("delivered")
	removed := func() string {
		var e struct {
			Removed *struct{ Reason string } `json:"payload_removed"`
		}
		short.ask(http.StatusOK, http.MethodGet, "/events/"+d.EventID, nil, &e)
		if e.Removed == nil {
			return "the payload is still there"
		}
		require.Equal(t, "retention", e.Removed.Reason)
		if n := len(short.attempts(d.ID)); n > 0 {
			return "the attempts are still there"
		}
		return ""
	}
	eventually(contextFor(t, patience), t, removed)
	short.ask(http.StatusGone, http.MethodGet, "/events/"+d.EventID+"/payload", nil, nil)
	short.command(http.StatusConflict, d.ID, "replay", nil)
	again := short.post("order.paid", `{"n":1}`, "external_id", `"order-1"`)
	require.Equal(t, d.EventID, again.ID, "a repeated event gets the first answer")
	require.Len(t, long.attempts(long.only("delivered").ID), 1)
	long.ask(http.StatusOK, http.MethodGet, "/events/"+long.only("delivered").EventID+"/payload", nil, nil)

	older(24 * time.Hour)
	eventually(contextFor(t, patience), t, func() string {
		if n := len(short.listDeliveries(url.Values{"state": {"delivered"}})); n > 0 {
			return "the delivery is still there"
		}
		return ""
	})
	require.Contains(t, in.tail(0), "removed what is past its tenant's own retention")
	long.only("delivered")
	dead := short.only("dead_lettered")
	require.Len(t, short.attempts(dead.ID), 1)
	short.command(http.StatusAccepted, dead.ID, "replay", nil)
	short.waitState(dead.ID, "delivered")
	sent := r.of(dead.EventID)
	require.Len(t, sent, 1)
	require.Equal(t, `{"dead":true}`, string(sent[0].Body))
}

// only is the tenant's only delivery in a state.
func (b *bundle) only(state string) delivery {
	b.t.Helper()
	all := b.listDeliveries(url.Values{"state": {state}})
	require.Len(b.t, all, 1)
	return all[0]
}

// makeOlder makes all that is stored of events older, with the time that is in their ids.
func makeOlder(t *testing.T, database *pgx.Conn, by time.Duration) {
	t.Helper()
	_, err := database.Exec(t.Context(), `
		create or replace function pg_temp.older(id uuid, ms bigint) returns uuid language sql immutable as $$
			select (lpad(to_hex(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint - ms), 12, '0') || substr(replace(id::text, '-', ''), 13))::uuid
		$$`)
	require.NoError(t, err)
	for _, change := range []string{
		`update events set id = pg_temp.older(id, $1), created_at = created_at - $1 * interval '1 ms'`,
		`update deliveries set event_id = pg_temp.older(event_id, $1),
			created_at = created_at - $1 * interval '1 ms', completed_at = completed_at - $1 * interval '1 ms'`,
		`update idempotency_keys set event_id = pg_temp.older(event_id, $1), created_at = created_at - $1 * interval '1 ms'`,
	} {
		tag, err := database.Exec(t.Context(), change, by.Milliseconds())
		require.NoError(t, err)
		require.Positive(t, tag.RowsAffected(), change)
	}
	rows, err := database.Query(t.Context(), `select id, event_id, endpoint_id from deliveries`)
	require.NoError(t, err)
	type ids struct{ Delivery, Event, Endpoint [16]byte }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ids])
	require.NoError(t, err)
	for _, d := range all {
		for _, change := range []string{`update deliveries set id = $2 where id = $1`, `update attempts set delivery_id = $2 where delivery_id = $1`} {
			_, err := database.Exec(t.Context(), change, d.Delivery, [16]byte(webhook.DeliveryIDOf(d.Event, d.Endpoint)))
			require.NoError(t, err)
		}
	}
}
