package health_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// While an endpoint's deliveries are looked at, the tenant's endpoints can be changed.
func TestLookingForASuccessKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.Refused(100)})
	require.NoError(t, err)
	looking, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = looking.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = looking.Exec(t.Context(), `lock table deliveries in access exclusive mode`)
	require.NoError(t, err)
	why := b.DisableMeanwhile(t)
	b.Waits(t, "relation")
	_, err = b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.Description = "changed meanwhile"
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, looking.Rollback(t.Context()))
	require.NotEmpty(t, <-why)
	require.Equal(t, webhook.EndpointDisabled, b.Current(t).State)
}

// What is delivered, and what begins again, while the change waits for its turn.
func TestASuccessWhileDisablingWaits(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, b *storetest.Bundle){
		"a success that was not counted": func(t *testing.T, b *storetest.Bundle) {
			t.Helper()
			b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
		},
		"failures that began again": func(t *testing.T, b *storetest.Bundle) {
			t.Helper()
			_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.Succeeded(time.Now())})
			require.NoError(t, err)
			_, err = b.CountFailures(t.Context(), []webhook.EndpointFailures{b.Refused(100)})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.Refused(100)})
			require.NoError(t, err)
			changing, err := b.Pool().Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = changing.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = changing.Exec(t.Context(), `select from tenants where id = 'acme' for no key update`)
			require.NoError(t, err)
			why := b.DisableMeanwhile(t)
			b.Waits(t, "transactionid")
			meanwhile(t, b)
			require.NoError(t, changing.Rollback(t.Context()))
			require.Empty(t, <-why)
			require.Equal(t, webhook.EndpointActive, b.Current(t).State)
		})
	}
}

// After a success there is no change that would have to wait for its turn.
func TestASuccessLeavesTheTenantAlone(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.Refused(100)})
	require.NoError(t, err)
	b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
	changing, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = changing.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = changing.Exec(t.Context(), `select from tenants where id = 'acme' for no key update`)
	require.NoError(t, err)
	why, err := b.DisableFailing(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.Empty(t, why)
	require.Zero(t, b.Count(t, "endpoint_trouble"))
}
