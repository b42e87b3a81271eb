package app

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

// What a key management service does to a caller is a matter of time, and says why.
func TestErrorsOfTheVault(t *testing.T) {
	t.Parallel()
	for err, says := range map[error]string{
		vault.ErrRefused:     "the key management service refuses; an operator has to renew its access",
		vault.ErrUnavailable: "the key that encrypts secrets cannot be reached",
	} {
		translated, ok := ofVault(fmt.Errorf("wrap: %w", err)).(*webhook.Error) //nolint:errorlint // not wrapped
		require.True(t, ok)
		require.Equal(t, webhook.CodeUnavailable, translated.Code)
		require.Equal(t, says, translated.Message)
		require.Positive(t, translated.RetryAfter)
		require.ErrorIs(t, translated, err)
	}
	require.Equal(t, webhook.CodeInternal, webhook.CodeOf(ofVault(vault.ErrTampered)))
	require.NoError(t, ofVault(nil))
}

// A key management service that refuses, or does not answer, shows in /readyz, and calls that need it get a Retry-After.
func TestKeyServiceInReadyz(t *testing.T) {
	t.Parallel()
	o := options(t, postgrestest.New(t))
	var inVault *transitState
	o.Config.KEKs, inVault = transit(t)
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	a.keyService.every = 5 * time.Millisecond
	t.Cleanup(a.Stop)
	require.NoError(t, a.Start(t.Context()))
	api := "http://" + a.APIAddr() + "/v1/tenants/acme"
	_, _ = call(t, "PUT", api, `{"name":"Acme"}`)
	ready := func() map[string]any {
		status, answer := call(t, "GET", "http://"+a.AdminAddr()+"/readyz", "")
		require.Equal(t, http.StatusOK, status)
		return answer
	}
	require.Eventually(t, func() bool { return ready()["key_service"] == "ok" }, soon, time.Millisecond)
	for status, says := range map[int32]string{http.StatusForbidden: "refuses", http.StatusServiceUnavailable: "does not answer"} {
		inVault.status.Store(status)
		require.Eventually(t, func() bool { return ready()["key_service"] == says }, soon, time.Millisecond)
		require.Equal(t, "degraded", ready()["status"])
		status, answer := call(t, "POST", api+"/endpoints", `{"url":"https://example.com/hook"}`)
		require.Equal(t, http.StatusServiceUnavailable, status, answer)
		require.Contains(t, answer["detail"], map[string]string{"refuses": "an operator has to renew", "does not answer": "cannot be reached"}[says])
	}
}

// A process does not start without a key that stored secrets need.
func TestUnknownKeyIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	database := postgrestest.New(t)
	first := start(t, options(t, database))
	_ = endpoint(t, first, "https://example.com/hook")
	first.Stop()
	known, err := vault.ParseKEK(kek)
	require.NoError(t, err)
	try := func(keks config.KEKs, roles ...string) error {
		address := database
		if len(roles) > 0 {
			_, address = postgrestest.NewLogin(t, database, roles...)
		}
		o := options(t, address)
		o.Config.KEKs = keks
		a, err := New(t.Context(), o)
		require.NoError(t, err)
		defer a.Stop()
		return a.Start(t.Context())
	}
	err = try(config.KEKs{KEK: otherKEK})
	require.ErrorContains(t, err, "EVERPOST_KEK_OLD_FILES: the key that encrypts 1 signing secrets ("+known.ID()+") is not known")
	require.ErrorContains(t, err, "EVERPOST_KEK_LOST")
	require.NoError(t, try(config.KEKs{KEK: otherKEK, KEKOld: []string{kek}}))
	require.NoError(t, try(config.KEKs{KEK: otherKEK, KEKLost: []string{known.ID()}}))

	err = try(config.KEKs{KEK: otherKEK}, postgres.RoleAPI)
	require.ErrorContains(t, err, "the key that encrypts 1 signing secrets ("+known.ID()+") is not known",
		"what an API encrypted with it could be opened by nobody else")
	require.NoError(t, try(config.KEKs{KEK: kek}, postgres.RoleAPI))

	store, err := stores.Open(t.Context(), stores.Config{URL: database, MaxConns: 1})
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Pool().Exec(t.Context(), `update endpoint_secrets set expires_at = now() - interval '1 second'`)
	require.NoError(t, err)
	require.NoError(t, try(config.KEKs{KEK: otherKEK}), "expired secrets are not needed")
}
