package deliveries_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// holdMany holds n more deliveries of the subscriber, like one that is held, with ids above it.
func (b *releasing) holdMany(t *testing.T, n int) {
	t.Helper()
	b.Exec(t, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, give_up_at)
		select (left(d.id::text, 26) || lpad(to_hex(n), 10, '0'))::uuid, d.event_id, d.endpoint_id, d.tenant_id, d.event_type, d.created_at, 1, 1, 2,
			'endpoint_paused', d.give_up_at
		from (select id, event_id, endpoint_id, tenant_id, event_type, created_at, give_up_at from deliveries limit 1) d, generate_series(1, $1::int) n`, n)
}

// A turn begins after what earlier ones have released, whichever process makes it.
func TestATurnGoesOnWhereTheLastEnded(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"all", "set", "after a set"} {
		b := setupReleases(t)
		b.pausedWith(t, 4)
		switch kind {
		case "set":
			b.resume(t, 0)
		case "after a set":
			b.resume(t, 0)
			b.Exec(t, `update releases set until_id = '00000000-0000-0000-0000-000000000001', counted_to = null, total = 0`)
		default:
			b.Exec(t, `update endpoints set state = 0 where id = $1`, b.Subscriber.ID)
			b.Exec(t, `insert into releases (endpoint_id, tenant_id) values ($1, 'acme')`, b.Subscriber.ID)
		}
		first := b.Released(t, 2)
		require.Len(t, first, 2)
		b.Exec(t, `delete from outbox`) // so they could be released again
		second := b.Released(t, 2)
		require.Len(t, second, 2)
		for _, start := range first {
			require.NotContains(t, storetest.StartIDs(second), start.DeliveryID, kind)
		}
		b.Exec(t, `delete from outbox`)
		b.Released(t, 2) // the end of the pass
		require.Equal(t, storetest.StartIDs(first), storetest.StartIDs(b.Released(t, 2)), "the next pass begins with the lowest")
	}
}

// What is overdue for other reasons is not read to find what is held and has expired.
func TestExpiryReadsOnlyWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
	b.holdMany(t, 20_000)
	b.Exec(t, `update deliveries set give_up_at = now() - interval '1 hour'`)
	b.Exec(t, `update deliveries set state = 1, due_at = now() - interval '1 hour'`)
	rows, err := b.Pool().Query(t.Context(), `explain (analyze, buffers, summary off, timing off) `+deliveries.AnyExpired, 100)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotContains(t, strings.Join(plan, "\n"), "Removed by Filter")
	require.NotRegexp(t, `shared hit=\d{4,}`, strings.Join(plan[:2], " "))
}
