package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// Everything of a tenant goes, in PostgreSQL and in Temporal, although the process is killed meanwhile. Another tenant keeps
// all it has.
func TestDeletedTenantLeavesNothing(t *testing.T) {
	t.Parallel()
	in := ownDatabase(t)
	r := newReceiver(t)
	var deleted, kept *bundle
	for _, b := range []**bundle{&deleted, &kept} {
		*b = newBundle(t, in, in.client(), map[bool]string{true: "acme", false: "other"}[b == &deleted])
		hook := "/" + (*b).tenant
		(*b).endpoint(r, hook, fieldsOf{"retry_policy": patiently()})
		_, d := (*b).postOne("order.paid", `{}`)
		(*b).waitState(d.ID, "delivered")
		r.Script(hook, receivertest.Step{Status: http.StatusBadRequest}, receivertest.Step{Status: http.StatusServiceUnavailable})
		_, d = (*b).postOne("order.paid", `{}`)
		(*b).waitState(d.ID, "dead_lettered")
		_, d = (*b).postOne("order.paid", `{}`)
		(*b).waitState(d.ID, "retrying")
	}
	engine := in.temporal(t)
	of := func(tenant string) int { return workflowsIn(t, engine, "TenantId = '"+tenant+"'") }
	eventually(contextFor(t, patience), t, func() string {
		if n := of("acme"); n < 3 || of("other") < 3 {
			return fmt.Sprint(n, " workflows are listed")
		}
		return ""
	})
	others := of("other")

	var tenant struct{ State string }
	deleted.ask(http.StatusAccepted, http.MethodDelete, "?everything=true", nil, &tenant)
	require.Equal(t, "deleting", tenant.State)
	deleted.ask(http.StatusNotFound, http.MethodPost, "/events", `{"type":"order.paid","payload":1}`, nil)
	deleted.ask(http.StatusOK, http.MethodGet, "", nil, &tenant)
	require.Equal(t, "deleting", tenant.State)
	in.kill9()
	in.restart(t)
	deleted.client, kept.client, engine = in.client(), in.client(), in.temporal(t)

	ctx := contextFor(t, 2*longRecovery)
	eventually(ctx, t, func() string {
		got, err := deleted.client.call(ctx, http.MethodGet, deleted.path(""), nil)
		require.NoError(t, err)
		if got.status != http.StatusNotFound {
			return string(got.body)
		}
		return ""
	})
	require.Zero(t, of("acme"))
	require.GreaterOrEqual(t, of("other"), others, "more may be listed by now")
	require.Len(t, kept.listDeliveries(url.Values{}), 3)

	database := in.database(t)
	rows, err := database.Query(ctx, `
		select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attname = 'tenant_id'`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 8)
	for _, table := range tables {
		var n int
		require.NoError(t, database.QueryRow(ctx, `select count(*) from `+pgx.Identifier{table}.Sanitize()+` where tenant_id = 'acme'`).Scan(&n))
		if table == "audit_log" {
			require.Greater(t, n, 1, "it outlives the tenant")
			continue
		}
		require.Zero(t, n, table)
	}
}
