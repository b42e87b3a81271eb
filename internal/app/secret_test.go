package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

const otherKEK = "DAT5l0nhOEf7qT3dayoog75S/YmcSpIPEmOtQEpayp0="

// transitState is the status of all answers of a Vault; 0: it works.
type transitState struct{ status atomic.Int32 }

// transit is a Vault that encrypts nothing; package vault tests with a better one.
func transit(t *testing.T) (settings config.KEKs, state *transitState) {
	t.Helper()
	state = &transitState{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Plaintext  string `json:"plaintext"`
			Ciphertext string `json:"ciphertext"`
		}
		if status := state.status.Load(); status != 0 {
			w.WriteHeader(int(status))
			return
		}
		if r.Header.Get("X-Vault-Token") != "token" || json.NewDecoder(r.Body).Decode(&asked) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer := map[string]string{"ciphertext": "vault:v1:" + asked.Plaintext}
		if strings.HasSuffix(r.URL.Path, "/v1/transit/decrypt/everpost") {
			answer = map[string]string{"plaintext": strings.TrimPrefix(asked.Ciphertext, "vault:v1:")}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": answer})
	}))
	t.Cleanup(server.Close)
	return config.KEKs{KEKVaultAddr: server.URL, KEKVaultToken: "token", KEKVaultTimeout: 3 * time.Second}, state
}

// Which key encrypts, and with which one reads.
func TestLoadVault(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kek")
	require.NoError(t, os.WriteFile(file, []byte(otherKEK), 0o600))
	one, err := vault.ParseKEK(kek)
	require.NoError(t, err)
	other, err := vault.ParseKEK(otherKEK)
	require.NoError(t, err)
	inVault, _ := transit(t)
	for _, c := range []struct {
		change  func(*config.KEKs)
		current string
		reads   []string
	}{
		{func(k *config.KEKs) { k.KEK = kek }, one.ID(), []string{one.ID()}},
		{func(k *config.KEKs) { k.KEKFile = file }, other.ID(), []string{other.ID()}},
		{func(k *config.KEKs) { k.KEK, k.KEKOldFiles = kek, []string{file} }, one.ID(), []string{one.ID(), other.ID()}},
		{func(k *config.KEKs) { k.KEKFile, k.KEKOld = file, []string{kek} }, other.ID(), []string{one.ID(), other.ID()}},
		{
			func(k *config.KEKs) { *k = inVault; k.KEKOld, k.KEKOldFiles = []string{kek}, []string{file} },
			"vault:transit/everpost#1", []string{one.ID(), other.ID(), "vault:transit/everpost#7"},
		},
		{func(k *config.KEKs) { *k = inVault; k.KEK, k.KEKVaultOld = kek, true }, one.ID(), []string{one.ID(), "vault:transit/everpost#7"}},
	} {
		var settings config.KEKs
		c.change(&settings)
		require.NoError(t, settings.RequireKEK())
		keys, err := loadVault(settings)
		require.NoError(t, err)
		current, err := keys.Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.current, current)
		for _, id := range []string{one.ID(), other.ID(), "vault:transit/everpost#7"} {
			require.Equal(t, slices.Contains(c.reads, id), keys.Knows(id), "%s reads %s", c.current, id)
		}
		keys.Close()
	}
	none, err := loadVault(config.KEKs{})
	require.NoError(t, err)
	require.Nil(t, none)
	for says, bad := range map[string]config.KEKs{
		"EVERPOST_KEK_OLD_FILES: ": {KEK: kek, KEKOldFiles: []string{"/does/not/exist"}},
		"EVERPOST_KEK_OLD: ":       {KEK: kek, KEKOld: []string{"canary"}},
		"EVERPOST_KEK_VAULT_…: ":   {KEKVaultAddr: "http://vault.example.com", KEKVaultToken: "canary"},
	} {
		_, err := loadVault(bad)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "canary")
	}
}

// While the key management service is away, endpoints that are known are still sent to,
// and what needs it is a matter of time and not of a fault.
func TestVaultIsAway(t *testing.T) {
	t.Parallel()
	settings, inVault := transit(t)
	keys, err := loadVault(settings)
	require.NoError(t, err)
	t.Cleanup(keys.Close)
	store, err := stores.Open(t.Context(), stores.Config{URL: postgrestest.New(t), MaxConns: 4, Sealer: sealer{keys}, MakeSecret: makeSecret})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, _, err = store.Tenants.PutTenant(t.Context(), webhook.Actor{}, webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)
	create := func() (webhook.Endpoint, error) {
		return store.Endpoints.CreateEndpoint(t.Context(), webhook.Actor{}, webhook.Endpoint{
			TenantID: "acme", URL: "https://example.com", EventTypes: []string{"*"}, Timeout: webhook.DefaultTimeout, MaxInFlight: 10, RateLimit: 100,
			RetryPolicy: retry.Default(), CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(), Signature: "v1",
		}, "whsec_known")
	}
	known, err := create()
	require.NoError(t, err)
	unknown, err := create()
	require.NoError(t, err)
	_, err = store.Endpoints.Target(t.Context(), known.ID)
	require.NoError(t, err)

	inVault.status.Store(http.StatusServiceUnavailable)
	target, err := store.Endpoints.Target(t.Context(), known.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_known"}, target.Secrets)
	_, err = store.Endpoints.Target(t.Context(), unknown.ID)
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
	_, err = create()
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
	_, err = store.Endpoints.RotateSecret(t.Context(), webhook.Actor{}, "acme", known.ID, webhook.Rotation{})
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
	target, err = store.Endpoints.Target(t.Context(), known.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_known"}, target.Secrets, "undone as a whole")
}

func TestMakeSecretFitsItsScheme(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{webhook.SignatureV1, webhook.SignatureV1a, webhook.SignatureHex} {
		made, err := makeSecret(scheme)
		require.NoError(t, err)
		require.True(t, webhook.SecretFits(scheme, made.Secret))
		parsed, err := signature.ParseSecret(made.Secret)
		require.NoError(t, err)
		public, ok := parsed.Public()
		require.Equal(t, scheme == webhook.SignatureV1a, ok)
		if ok {
			require.Equal(t, public.String(), made.PublicKey)
		} else {
			require.Empty(t, made.PublicKey)
		}
	}
}
