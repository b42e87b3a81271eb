package endpoints_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func rotate(t *testing.T, s *storetest.Stores, e webhook.Endpoint, grace time.Duration, secret string) webhook.Rotated {
	t.Helper()
	done, err := s.RotateSecret(t.Context(), storetest.TestActor(), "acme", e.ID, webhook.Rotation{Grace: grace, NewSecret: webhook.NewSecret{Secret: secret}})
	require.NoError(t, err)
	return done
}

func secretsOf(t *testing.T, s *storetest.Stores, e webhook.Endpoint) []string {
	t.Helper()
	target, err := s.Endpoints.Cache().Target(t.Context(), e.ID)
	require.NoError(t, err)
	return target.Secrets
}

func TestRotateSecretKeepsTheOldForItsGrace(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	first := secretsOf(t, s, e)
	require.Len(t, first, 1)

	begun := time.Now()
	done := rotate(t, s, e, time.Hour, "")
	require.Regexp(t, `^whsec_\d+$`, done.Secret, "made")
	require.WithinRange(t, done.OldUntil, begun.Add(time.Hour-time.Minute), time.Now().Add(time.Hour+time.Minute))
	require.Equal(t, []string{done.Secret, first[0]}, secretsOf(t, s, e), "at once, also from the cache; the new one first")
	_, until, err := s.TargetUntil(t.Context(), s.AsWorker(), e.ID)
	require.NoError(t, err)
	require.True(t, until.Equal(done.OldUntil))

	longer := rotate(t, s, e, 2*time.Hour, "whsec_mine")
	require.Equal(t, []string{"whsec_mine", done.Secret, first[0]}, secretsOf(t, s, e))
	require.Greater(t, longer.OldUntil, done.OldUntil.Add(30*time.Minute))
	_, until, err = s.TargetUntil(t.Context(), s.AsWorker(), e.ID)
	require.NoError(t, err)
	require.True(t, until.Equal(done.OldUntil), "the first keeps its own end")

	over := rotate(t, s, e, 0, "whsec_last")
	require.Zero(t, over.OldUntil)
	require.Equal(t, []string{"whsec_last"}, secretsOf(t, s, e))
	require.Equal(t, []int64{1}, storetest.Query[int64](t, s, `select count(*) from endpoint_secrets`))
	require.Equal(t, []int32{4}, storetest.Query[int32](t, s, `select version from endpoint_secrets`), "a number is not used twice")

	require.Equal(t, []string{"endpoint.create", "endpoint.rotate_secret", "endpoint.rotate_secret", "endpoint.rotate_secret"},
		storetest.Actions(t, s, e.ID.String()))
	for i, detail := range storetest.Query[string](t, s, `select detail::text from audit_log where action = 'endpoint.rotate_secret' order by id`) {
		var said map[string]string
		require.NoError(t, json.Unmarshal([]byte(detail), &said))
		require.Equal(t, map[string]string{"grace": []string{"1h0m0s", "2h0m0s", "0s"}[i]}, said)
	}
}

// The old secret ends by itself, also in the cache of a process that gets no notification, and its row is removed.
func TestExpiredSecretsVanish(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	other := storetest.OpenStore(t, address)
	other.Listen(t.Context())
	require.Eventually(t, other.Listening, storetest.Eventually, storetest.Poll)
	e := storetest.CreateEndpoint(t, s, "acme")
	first := secretsOf(t, s, e)
	done := rotate(t, s, e, 1500*time.Millisecond, "")
	require.Eventually(t, func() bool { return len(secretsOf(t, other, e)) == 2 }, storetest.Eventually, storetest.Poll)
	require.True(t, other.Listening(), "an entry is kept for a minute but for its secrets")
	var ended time.Time
	require.Eventually(t, func() bool {
		at := time.Now()
		if len(secretsOf(t, other, e)) != 1 {
			return false
		}
		ended = at
		return true
	}, storetest.Eventually, storetest.Poll)
	require.Equal(t, []string{done.Secret}, secretsOf(t, other, e))
	require.WithinDuration(t, done.OldUntil, ended, 5*time.Second)
	require.NotContains(t, secretsOf(t, other, e), first[0])

	require.Equal(t, []int64{2}, storetest.Query[int64](t, s, `select count(*) from endpoint_secrets`))
	removed, err := s.PruneSecrets(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, removed)
	require.Equal(t, []string{done.Secret}, secretsOf(t, s, e))
}

func TestRotateSecretRefusals(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "other", Name: "Other"})
	require.NoError(t, err)
	hour := webhook.Rotation{Grace: time.Hour}
	for _, c := range []struct {
		tenant string
		id     webhook.EndpointID
	}{{"other", e.ID}, {"nobody", e.ID}, {"acme", webhook.NewEndpointID()}} {
		_, err := s.RotateSecret(t.Context(), storetest.TestActor(), c.tenant, c.id, hour)
		storetest.RequireCode(t, webhook.CodeNotFound, err)
	}
	_, err = s.RotateSecret(t.Context(), storetest.TestActor(), "acme", e.ID,
		webhook.Rotation{NewSecret: webhook.NewSecret{Secret: "whsk_1", PublicKey: "whpk_1"}})
	storetest.RequireCode(t, webhook.CodeInvalid, err)

	for range webhook.MaxSecrets - 1 {
		rotate(t, s, e, time.Hour, "")
	}
	before := secretsOf(t, s, e)
	require.Len(t, before, webhook.MaxSecrets)
	_, err = s.RotateSecret(t.Context(), storetest.TestActor(), "acme", e.ID, hour)
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.Equal(t, before, secretsOf(t, s, e), "undone as a whole")
	rotate(t, s, e, 0, "")
	require.Len(t, secretsOf(t, s, e), 1)

	require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	_, err = s.RotateSecret(t.Context(), storetest.TestActor(), "acme", e.ID, hour)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
}

// Two at a time: one after the other, each with a number of its own.
func TestRotateSecretAtTheSameTime(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			_, err := s.RotateSecret(t.Context(), storetest.TestActor(), "acme", e.ID,
				webhook.Rotation{Grace: time.Hour, NewSecret: webhook.NewSecret{Secret: fmt.Sprint("whsec_", i)}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Len(t, secretsOf(t, s, e), 5)
	require.Equal(t, []int32{1, 2, 3, 4, 5}, storetest.Query[int32](t, s, `select version from endpoint_secrets order by version`))
}

// Each scheme has the kind of secret that it signs with, and the endpoint shows the
// public key of the newest.
func TestSchemeBringsItsSecret(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	require.Equal(t, webhook.SignatureV1, e.Signature)
	first := secretsOf(t, s, e)
	to := func(scheme string) webhook.Endpoint {
		t.Helper()
		changed, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.Signature = scheme; return nil })
		require.NoError(t, err)
		read, err := s.Endpoint(t.Context(), "acme", e.ID)
		require.NoError(t, err)
		require.Equal(t, read.PublicKey, changed.PublicKey)
		return read
	}
	require.Empty(t, to(webhook.SignatureHex).PublicKey)
	require.Equal(t, first, secretsOf(t, s, e), "the one it has fits")

	public := to(webhook.SignatureV1a).PublicKey
	require.Regexp(t, `^whpk_\d+$`, public)
	now := secretsOf(t, s, e)
	require.Equal(t, []string{"whsk_" + public[5:], first[0]}, now, "the old one for its grace")
	_, until, err := s.TargetUntil(t.Context(), s.AsWorker(), e.ID)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(webhook.DefaultGrace), until, time.Minute)

	rotated := rotate(t, s, e, time.Hour, "")
	require.NotEqual(t, public, rotated.PublicKey)
	read, err := s.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, rotated.PublicKey, read.PublicKey)
	require.True(t, read.UpdatedAt.After(e.UpdatedAt))
	require.Equal(t, append([]string{rotated.Secret}, now...), secretsOf(t, s, e))

	require.Empty(t, to(webhook.SignatureV1).PublicKey)
	require.Regexp(t, `^whsec_\d+$`, secretsOf(t, s, e)[0])
}
