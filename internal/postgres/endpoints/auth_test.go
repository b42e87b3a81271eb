package endpoints_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// credentials are one of each kind, and a certificate.
func credentials() []webhook.Endpoint {
	certificate := webhook.ClientCertificate{Certificate: "canary-certificate", Key: "canary-key", MaxTLS: webhook.MaxTLS12}
	return []webhook.Endpoint{
		{Auth: webhook.Auth{Kind: webhook.AuthBasic, Username: "canary-user", Password: "canary-password"}},
		{Auth: webhook.Auth{Kind: webhook.AuthBearer, Token: "canary-token"}, Certificate: certificate},
		{Auth: webhook.Auth{
			Kind: webhook.AuthClientCredentials, TokenURL: "https://tokens.example/canary", ClientID: "canary-id", ClientSecret: "canary-secret",
			Scopes: []string{"canary-a", "canary-b"}, Audience: "canary-audience",
		}},
		{Certificate: certificate},
	}
}

// Credentials come back as they were stored, and are to be found in no column, in the
// audit log and in no error.
func TestEndpointCredentials(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	for _, c := range credentials() {
		e := storetest.TestEndpoint("acme")
		e.Auth, e.Certificate = c.Auth, c.Certificate
		created, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
		require.NoError(t, err)
		requireAuth := func(got webhook.Endpoint) {
			t.Helper()
			require.Equal(t, c.Auth, got.Auth)
			require.Equal(t, c.Certificate, got.Certificate)
		}
		requireAuth(created)
		read, err := s.Endpoint(t.Context(), "acme", e.ID)
		require.NoError(t, err)
		requireAuth(read)
		target, err := s.Target(t.Context(), e.ID)
		require.NoError(t, err)
		requireAuth(target.Endpoint)
		list, err := s.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 1})
		require.NoError(t, err)
		requireAuth(list[0])

		same, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
			e.Auth, e.Certificate = c.Auth.Clone(), c.Certificate
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, same.Version, "nothing has changed")
		changed, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
			e.Auth, e.Certificate = webhook.Auth{Kind: webhook.AuthBearer, Token: "canary-next"}, webhook.ClientCertificate{}
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 2, changed.Version, "kept connections and tokens are bound to it")
		read, err = s.Endpoint(t.Context(), "acme", e.ID)
		require.NoError(t, err)
		require.Equal(t, changed.Auth, read.Auth)
		require.True(t, read.Certificate.IsZero())
	}
	of, _, err := storetest.ReadEndpoints(t.Context(), s.Cache(), "acme")
	require.NoError(t, err)
	for i := range of {
		require.Equal(t, webhook.AuthNone, of[i].Auth.Kind, "matching needs no credentials")
	}
	for _, row := range storetest.Query[string](t, s, `select e::text from endpoints e union all select a::text from audit_log a`) {
		require.NotContains(t, row, "canary")
	}
	require.Contains(t, storetest.Query[string](t, s, `select detail::text from audit_log where action = 'endpoint.update'`),
		`{"changed": ["auth", "client_certificate"]}`)
}

func TestCredentialsGo(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.TestEndpoint("acme")
	e.Auth = credentials()[0].Auth
	_, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
	require.NoError(t, err)
	stored := func() bool {
		return storetest.Query[bool](t, s, `select auth_kek_id is not null or auth_wrapped_key is not null or auth_ciphertext is not null from endpoints`)[0]
	}
	require.True(t, stored())
	_, err = s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
		e.Auth = webhook.Auth{}
		return nil
	})
	require.NoError(t, err)
	require.False(t, stored(), "null takes them away")

	_, err = s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
		e.Auth = credentials()[1].Auth
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	require.False(t, stored(), "and so does the endpoint's end")
}

// A row's credentials open in that row only, and not as its headers.
func TestSealedCredentialsCannotBeSwapped(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	for _, columns := range []string{"auth", "headers"} {
		a, b := storetest.TestEndpoint("acme"), storetest.TestEndpoint("acme")
		a.Auth, b.Auth = credentials()[0].Auth, credentials()[1].Auth
		for _, e := range []webhook.Endpoint{a, b} {
			_, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
			require.NoError(t, err)
		}
		from := b.ID
		if columns == "headers" {
			from = a.ID
		}
		_, err := s.Pool().Exec(t.Context(), `
			update endpoints t set auth_kek_id = o.`+columns+`_kek_id, auth_wrapped_key = o.`+columns+`_wrapped_key,
				auth_nonce = o.`+columns+`_nonce, auth_ciphertext = o.`+columns+`_ciphertext
			from endpoints o where t.id = $1 and o.id = $2`, [16]byte(a.ID), [16]byte(from))
		require.NoError(t, err)
		_, err = s.Endpoint(t.Context(), "acme", a.ID)
		storetest.RequireCode(t, webhook.CodeInternal, err)
		require.NotContains(t, err.Error(), "canary")
		_, err = s.Target(t.Context(), a.ID)
		storetest.RequireCode(t, webhook.CodeInternal, err)
	}
}

func TestRewrapMovesCredentials(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	older, newer := storetest.TestKEK(t, 1), storetest.TestKEK(t, 2)
	before, _ := storetest.SealedWith(t, address, older)
	storetest.SealedEndpoints(t, before, 1)
	e := storetest.TestEndpoint("acme")
	e.Auth = credentials()[2].Auth
	_, err := before.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
	require.NoError(t, err)

	both, keys := storetest.SealedWith(t, address, newer, older)
	done, err := both.Rewrap(t.Context(), storetest.TestActor(), keys, nil)
	require.NoError(t, err)
	require.Contains(t, storetest.Uses(done.Uses), newer.ID()+": 1 credentials")
	after, _ := storetest.SealedWith(t, address, newer)
	read, err := after.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, e.Auth, read.Auth)
}
