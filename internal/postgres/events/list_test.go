package events_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestPatternsKeepThePlansOfLists(t *testing.T) {
	t.Parallel()
	b, patterns := storetest.PatternBundle(t)
	for pattern, broad := range patterns {
		sql, args := events.ListEvents("acme", webhook.EventFilter{Type: pattern}, webhook.Page{Limit: 50}, [16]byte{})
		storetest.RequireListPlan(t, b, broad, sql, args)
	}
	requireTagsHaveAnIndex(t, b)
}

// A list by tag reads the index of tagged events only, and finds in it what it filters by: all of acme's other events are no part of it.
func requireTagsHaveAnIndex(t *testing.T, b *storetest.Bundle) {
	t.Helper()
	_, err := b.Pool().Exec(t.Context(), `vacuum events_default`)
	require.NoError(t, err)
	for _, f := range []webhook.EventFilter{
		{Tag: "twentieth"}, {Tag: "none"}, {Tag: "twentieth", Type: "order.*"}, {Tag: "n:20", Since: time.Now().Add(-time.Hour)},
	} {
		sql, args := events.ListEvents("acme", f, webhook.Page{Limit: 50}, [16]byte{})
		lines, err := postgres.QueryAll(t.Context(), b.OfTenant("acme").ByIndex(), "explain", pgx.RowTo[string], "explain (costs off) "+sql, args...)
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		require.Regexp(t, `Index Only Scan using events_default_tenant_id_id_tags_\w+`, plan, f)
		require.NotContains(t, plan, "Seq Scan")
		require.NotContains(t, plan, "Bitmap")
	}
	require.Equal(t, []int{1000}, storetest.Query[int](t, b.Stores, `
		select reltuples::int from pg_class c join pg_index i on i.indexrelid = c.oid
		where i.indrelid = 'events_default'::regclass and pg_get_indexdef(c.oid) like '%(tags IS NOT NULL)'`), "only events with tags are in it")
}
