package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// limit gives a tenant limits.
func (b *deliveryBundle) limit(t *testing.T, tenant string, limits webhook.Limits) {
	t.Helper()
	_, _, err := b.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: tenant, Limits: limits})
	require.NoError(t, err)
}

// Operational events tell of what a full quota costs, and are not held up by it.
func TestQuotasDoNotHoldUpOperationalEvents(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]webhook.Limits{
		"pending":   {PendingDeliveries: 1},
		"per event": {EndpointsPerEvent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupNotices(t)
			for range 2 {
				b.listens(t, "acme", "everpost.*")
				b.listens(t, "ops", "everpost.*")
			}
			b.limit(t, "acme", limits)
			b.limit(t, "ops", limits)
			stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.opened("acme")})
			require.NoError(t, err)
			require.Len(t, stored, 2)
			for _, tenant := range []string{"acme", "ops"} {
				require.Len(t, b.told(t, tenant, webhook.EventCircuitOpened), 1)
				require.Len(t, b.starts(t, tenant), 2)
			}
		})
	}
}

// What cannot be stored for one tenant is stored for the other.
func TestNotifyGoesOn(t *testing.T) {
	t.Parallel()
	b := setupNotices(t)
	b.listens(t, "acme", "everpost.*")
	b.listens(t, "ops", "everpost.*")
	_, err := b.login.Exec(t.Context(), `alter table events add check (tenant_id <> 'acme') not valid`)
	require.NoError(t, err)
	stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.opened("acme")})
	require.ErrorContains(t, err, "operational events of acme")
	require.Len(t, stored, 1)
	require.Equal(t, "ops", stored[0].Event.TenantID)
	require.Len(t, b.told(t, "ops", webhook.EventCircuitOpened), 1)
}

// What was stored counts as pending, also when nobody waited for the answer.
func TestWhatWasLeftCountsAsPending(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	b.limit(t, "acme", webhook.Limits{PendingDeliveries: 3})
	b.DB.quotas.countFor = time.Hour // it is not counted again
	b.accept(t)
	hold, err := b.login.Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), `lock table events in access exclusive mode`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := b.Accept(ctx, newEvent("order.paid"))
		left <- err
	}()
	require.Eventually(t, func() bool { return waitsForALock(t, b.stores) }, eventually, poll)
	cancel()
	require.Error(t, <-left)
	require.NoError(t, hold.Rollback(t.Context()))
	require.Eventually(t, func() bool { return b.count(t, "outbox") == 2 }, eventually, poll)
	b.accept(t)
	_, err = b.Accept(t.Context(), newEvent("order.paid"))
	requireCode(t, webhook.CodeRateLimited, err)
	require.Equal(t, 3, b.count(t, "outbox"))
}
