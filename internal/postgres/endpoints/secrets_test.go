package endpoints_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// addSecret stores a further secret and makes all before it expire at a time.
func addSecret(t *testing.T, s *storetest.Stores, e webhook.Endpoint, version int, secret string, expires time.Time) {
	t.Helper()
	require.NoError(t, s.OfTenant("acme").InTx(t.Context(), "add a secret", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update endpoint_secrets set expires_at = $2 where endpoint_id = $1 and expires_at is null`, [16]byte(e.ID), expires)
		require.NoError(t, err)
		return s.InsertSecret(ctx, tx, e.TenantID, e.ID, version, secret)
	}))
}

func TestATargetHasTheLivingSecretsNewestFirst(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	addSecret(t, s, e, 2, "whsec_second", time.Now().Add(-time.Second))
	addSecret(t, s, e, 3, "whsec_third", soon)

	target, until, err := s.TargetUntil(t.Context(), s.AsWorker(), e.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_third", "whsec_second"}, target.Secrets, "the first has expired")
	require.True(t, until.Equal(soon), "not to be kept longer than its secrets live")
	newest, err := s.EndpointSecret(t.Context(), storetest.TestActor(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, "whsec_third", newest)
	require.Equal(t, []string{"endpoint.create", "endpoint.read_secret"}, storetest.Actions(t, s, e.ID.String()))
}

func TestSealedRowsCannotBeSwapped(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	a, b := storetest.CreateEndpoint(t, s, "acme"), storetest.CreateEndpoint(t, s, "acme")
	_, err := s.Pool().Exec(t.Context(), `
		update endpoint_secrets t set nonce = o.nonce, ciphertext = o.ciphertext from endpoint_secrets o
		where t.endpoint_id = $1 and o.endpoint_id = $2`, [16]byte(a.ID), [16]byte(b.ID))
	require.NoError(t, err)
	_, err = s.Target(t.Context(), a.ID)
	storetest.RequireCode(t, webhook.CodeInternal, err)
	_, err = s.EndpointSecret(t.Context(), storetest.TestActor(), "acme", a.ID)
	storetest.RequireCode(t, webhook.CodeInternal, err)
	require.Equal(t, []string{"endpoint.create"}, storetest.Actions(t, s, a.ID.String()), "nothing was read")

	_, err = s.Pool().Exec(t.Context(), `
		update endpoints t set headers_nonce = o.headers_nonce, headers_ciphertext = o.headers_ciphertext from endpoints o
		where t.id = $1 and o.id = $2`, [16]byte(b.ID), [16]byte(a.ID))
	require.NoError(t, err)
	_, err = s.Endpoint(t.Context(), "acme", b.ID)
	storetest.RequireCode(t, webhook.CodeInternal, err)
}

func TestWithoutASealerNothingSecretIsStored(t *testing.T) {
	t.Parallel()
	_, address := storetest.SetupStore(t)
	s, err := storetest.OpenStores(t.Context(), stores.Config{URL: address})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), storetest.TestKey("acme")))
	_, err = s.CreateEndpoint(t.Context(), storetest.TestActor(), storetest.TestEndpoint("acme"), storetest.CanarySecret)
	storetest.RequireCode(t, webhook.CodeInternal, err)
	require.NotContains(t, err.Error(), storetest.CanarySecret)
	require.Equal(t, []int64{0}, storetest.Query[int64](t, s, `select count(*) from endpoints`))
}
