package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// The console's lists do not count against the limit of the tenant's own requests, and the tenants
// none of the operators'.
func TestListsForPagesAreApart(t *testing.T) {
	t.Parallel()
	lists := postgres.NewListLimit(24)
	lists.Wait = time.Millisecond
	fill := func(ctx context.Context, tenant string, code webhook.Code) (n int) {
		for {
			_, err := lists.Acquire(ctx, tenant)
			if err != nil {
				storetest.RequireCode(t, code, err)
				return n
			}
			n++
		}
	}
	pages := func(tenant string) context.Context { return postgres.ForPages(t.Context(), tenant) }
	require.Equal(t, 2, fill(pages("acme"), "acme", webhook.CodeRateLimited))
	require.Equal(t, 2, fill(pages(""), "acme", webhook.CodeRateLimited), "operators with pages of the same tenant")
	require.Zero(t, fill(pages("other"), "other", webhook.CodeUnavailable))
	require.Equal(t, postgres.ListsPerTenant, fill(t.Context(), "acme", webhook.CodeRateLimited))
	require.Equal(t, postgres.ListsPerTenant, fill(t.Context(), "other", webhook.CodeRateLimited))
}
