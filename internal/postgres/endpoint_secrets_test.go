package postgres

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// testSecret makes secrets that are told apart by the number at their end.
func testSecret(scheme string) (webhook.NewSecret, error) {
	n := strconv.FormatInt(madeSecrets.Add(1), 10)
	if scheme == webhook.SignatureV1a {
		return webhook.NewSecret{Secret: "whsk_" + n, PublicKey: "whpk_" + n}, nil
	}
	return webhook.NewSecret{Secret: "whsec_" + n}, nil
}

var madeSecrets atomic.Int64

// addSecret stores a further secret and makes all before it expire at a time.
func addSecret(t *testing.T, s *stores, e webhook.Endpoint, version int, secret string, expires time.Time) {
	t.Helper()
	require.NoError(t, s.ofTenant("acme").inTx(t.Context(), "add a secret", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update endpoint_secrets set expires_at = $2 where endpoint_id = $1 and expires_at is null`, [16]byte(e.ID), expires)
		require.NoError(t, err)
		return s.insertSecret(ctx, tx, e.TenantID, e.ID, version, secret)
	}))
}

func TestATargetHasTheLivingSecretsNewestFirst(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	e := createEndpoint(t, s, "acme")
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	addSecret(t, s, e, 2, "whsec_second", time.Now().Add(-time.Second))
	addSecret(t, s, e, 3, "whsec_third", soon)

	target, until, err := s.target(t.Context(), s.asWorker(), e.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_third", "whsec_second"}, target.Secrets, "the first has expired")
	require.True(t, until.Equal(soon), "not to be kept longer than its secrets live")
	newest, err := s.EndpointSecret(t.Context(), testActor(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, "whsec_third", newest)
	require.Equal(t, []string{"endpoint.create", "endpoint.read_secret"}, actions(t, s, e.ID.String()))
}

func TestSealedRowsCannotBeSwapped(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	a, b := createEndpoint(t, s, "acme"), createEndpoint(t, s, "acme")
	_, err := s.login.Exec(t.Context(), `
		update endpoint_secrets t set nonce = o.nonce, ciphertext = o.ciphertext from endpoint_secrets o
		where t.endpoint_id = $1 and o.endpoint_id = $2`, [16]byte(a.ID), [16]byte(b.ID))
	require.NoError(t, err)
	_, err = s.Target(t.Context(), a.ID)
	requireCode(t, webhook.CodeInternal, err)
	_, err = s.EndpointSecret(t.Context(), testActor(), "acme", a.ID)
	requireCode(t, webhook.CodeInternal, err)
	require.Equal(t, []string{"endpoint.create"}, actions(t, s, a.ID.String()), "nothing was read")

	_, err = s.login.Exec(t.Context(), `
		update endpoints t set headers_nonce = o.headers_nonce, headers_ciphertext = o.headers_ciphertext from endpoints o
		where t.id = $1 and o.id = $2`, [16]byte(b.ID), [16]byte(a.ID))
	require.NoError(t, err)
	_, err = s.Endpoint(t.Context(), "acme", b.ID)
	requireCode(t, webhook.CodeInternal, err)
}

func TestWithoutASealerNothingSecretIsStored(t *testing.T) {
	t.Parallel()
	_, address := setupStore(t)
	s, err := openStores(t.Context(), Config{URL: address})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.CreateKey(t.Context(), testActor(), testKey("acme")))
	_, err = s.CreateEndpoint(t.Context(), testActor(), testEndpoint("acme"), canarySecret)
	requireCode(t, webhook.CodeInternal, err)
	require.NotContains(t, err.Error(), canarySecret)
	require.Equal(t, []int64{0}, query[int64](t, s, `select count(*) from endpoints`))
}
