package tenants_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Operational events tell of what a full quota costs, and are not held up by it.
func TestQuotasDoNotHoldUpOperationalEvents(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]webhook.Limits{
		"pending":   {PendingDeliveries: 1},
		"per event": {EndpointsPerEvent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.SetupOperational(t)
			for range 2 {
				b.ListensTo(t, "acme", "everpost.*")
				b.ListensTo(t, "ops", "everpost.*")
			}
			b.SetLimits(t, "acme", limits)
			b.SetLimits(t, "ops", limits)
			stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.Opened("acme")})
			require.NoError(t, err)
			require.Len(t, stored, 2)
			for _, tenant := range []string{"acme", "ops"} {
				require.Len(t, b.OperationalEvents(t, tenant, webhook.EventCircuitOpened), 1)
				require.Len(t, b.Starts(t, tenant), 2)
			}
		})
	}
}

// What cannot be stored for one tenant is stored for the other.
func TestNotifyGoesOn(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	b.ListensTo(t, "acme", "everpost.*")
	b.ListensTo(t, "ops", "everpost.*")
	_, err := b.Pool().Exec(t.Context(), `alter table events add check (tenant_id <> 'acme') not valid`)
	require.NoError(t, err)
	stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.Opened("acme")})
	require.ErrorContains(t, err, "operational events of acme")
	require.Len(t, stored, 1)
	require.Equal(t, "ops", stored[0].Event.TenantID)
	require.Len(t, b.OperationalEvents(t, "ops", webhook.EventCircuitOpened), 1)
}

// Stored events count as pending, also if the caller has gone.
func TestAbandonedRequestsCountAsPending(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.SetLimits(t, "acme", webhook.Limits{PendingDeliveries: 3})
	b.CountPendingFor(time.Hour) // it is not counted again
	b.AcceptOne(t)
	hold, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), `lock table events in access exclusive mode`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := b.Accept(ctx, storetest.NewEvent("order.paid"))
		left <- err
	}()
	require.Eventually(t, func() bool { return storetest.WaitsForALock(t, b.Stores) }, storetest.Eventually, storetest.Poll)
	cancel()
	require.Error(t, <-left)
	require.NoError(t, hold.Rollback(t.Context()))
	require.Eventually(t, func() bool { return b.Count(t, "outbox") == 2 }, storetest.Eventually, storetest.Poll)
	b.AcceptOne(t)
	_, err = b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	storetest.RequireCode(t, webhook.CodeRateLimited, err)
	require.Equal(t, 3, b.Count(t, "outbox"))
}
