package storetest

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
)

// PatternBundle is a bundle with many events of many types, each with a dead letter, and patterns
// that fit much or little of them.
func PatternBundle(t *testing.T) (b *Bundle, broad map[string]bool) {
	t.Helper()
	b = Setup(t)
	_, err := b.Pool().Exec(t.Context(), `
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at, tags)
		select gen_random_uuid(), case when n % 10 = 0 then 'acme' else 'other' end, 'order.' || n % 50, '', '', '{}', now(),
			case when n % 20 = 0 then array['twentieth', 'n:' || n] end
		from generate_series(1, 20000) n;
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
		select gen_random_uuid(), id, gen_random_uuid(), tenant_id, type, now(), 1, 1, 4, now() from events;
		analyze events_default; analyze deliveries_default`, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	return b, map[string]bool{"*": true, "order.*": true, "order.7": false, "nothing.*": false}
}

// RequireListPlan requires that a list goes through the tenant's newest rows, by their index, and ends
// with its page: it neither reads everything nor sorts it. None reads another tenant's.
func RequireListPlan(t *testing.T, b *Bundle, broad bool, sql string, args []any) {
	t.Helper()
	// As the role that lists, whose policies are part of the plan, and with its settings.
	lines, err := postgres.QueryAll(t.Context(), b.OfTenant("acme").ByIndex(), "explain", pgx.RowTo[string], "explain (costs off) "+sql, args...)
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.NotRegexp(t, `Seq Scan on (events|deliveries)`, plan, args)
	if broad { // of one that fits little all may be gathered by the index, and sorted
		require.Regexp(t, `Index (Only )?Scan( Backward)? using \w+_tenant_id_id_\w*idx`, plan, args)
		require.NotRegexp(t, `Bitmap.* on (events|deliveries)`, plan, args)
	}
}
