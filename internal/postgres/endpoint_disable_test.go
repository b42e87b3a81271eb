package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// While an endpoint's deliveries are looked at, the tenant's endpoints can be changed.
func TestLookingForASuccessKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.refused(100)})
	require.NoError(t, err)
	looking, err := b.login.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = looking.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = looking.Exec(t.Context(), `lock table deliveries in access exclusive mode`)
	require.NoError(t, err)
	why := b.disableMeanwhile(t)
	b.waits(t, "relation")
	_, err = b.UpdateEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.Description = "changed meanwhile"
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, looking.Rollback(t.Context()))
	require.NotEmpty(t, <-why)
	require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
}

// What is delivered, and what begins anew, while the change waits for its turn.
func TestASuccessWhileDisablingWaits(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, b *deliveryBundle){
		"a success that nobody counted": func(t *testing.T, b *deliveryBundle) {
			t.Helper()
			b.rest(t, b.accept(t), webhook.StateDelivered)
		},
		"failures that began anew": func(t *testing.T, b *deliveryBundle) {
			t.Helper()
			_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.succeeded(time.Now())})
			require.NoError(t, err)
			_, err = b.CountFailures(t.Context(), []webhook.EndpointFailures{b.refused(100)})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupDelivery(t)
			_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.refused(100)})
			require.NoError(t, err)
			changing, err := b.login.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = changing.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = changing.Exec(t.Context(), `select from tenants where id = 'acme' for no key update`)
			require.NoError(t, err)
			why := b.disableMeanwhile(t)
			b.waits(t, "transactionid")
			meanwhile(t, b)
			require.NoError(t, changing.Rollback(t.Context()))
			require.Empty(t, <-why)
			require.Equal(t, webhook.EndpointActive, b.now(t).State)
		})
	}
}

// After a success there is no change that would have to wait for its turn.
func TestASuccessLeavesTheTenantAlone(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.refused(100)})
	require.NoError(t, err)
	b.rest(t, b.accept(t), webhook.StateDelivered)
	changing, err := b.login.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = changing.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = changing.Exec(t.Context(), `select from tenants where id = 'acme' for no key update`)
	require.NoError(t, err)
	why, err := b.DisableFailing(t.Context(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	require.Empty(t, why)
	require.Zero(t, b.count(t, "endpoint_trouble"))
}

// disableMeanwhile disables the endpoint, and tells why, or the error.
func (b *deliveryBundle) disableMeanwhile(t *testing.T) <-chan string {
	t.Helper()
	other, done := openStore(t, b.address+"&application_name="+b.disabler()), make(chan string, 1)
	go func() {
		why, err := other.DisableFailing(context.WithoutCancel(t.Context()), "acme", b.endpoint.ID)
		if err != nil {
			why = err.Error()
		}
		done <- why
	}()
	return done
}

// disabler is the name under which disableMeanwhile is connected: the database is shared by
// tests that wait for locks of their own.
func (b *deliveryBundle) disabler() string { return b.endpoint.ID.String() }

// waits returns when disableMeanwhile waits for a lock of a kind.
func (b *deliveryBundle) waits(t *testing.T, kind string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.Equal([]bool{true}, query[bool](t, b.stores, `
			select exists (select from pg_locks l where not l.granted and l.locktype = $1
				and l.pid in (select pid from pg_stat_activity where datname = current_database() and application_name = $2))`, kind, b.disabler()))
	}, eventually, poll)
}
