package endpoints_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

// watchedSealer counts its calls, and fails on request.
type watchedSealer struct {
	storetest.TestSealer

	mu                  sync.Mutex
	away                bool
	seals, opens, under int // under: of those, while the tenant's row was locked
	locked              func() bool
}

func (s *watchedSealer) asked(n *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
	if s.locked != nil && s.locked() {
		s.under++
	}
	if s.away {
		return storetest.ErrAway
	}
	return nil
}

func (s *watchedSealer) Seal(ctx context.Context, plaintext, additional string) (postgres.Sealed, error) {
	if err := s.asked(&s.seals); err != nil {
		return postgres.Sealed{}, err
	}
	return s.TestSealer.Seal(ctx, plaintext, additional)
}

func (s *watchedSealer) Open(ctx context.Context, sealed postgres.Sealed, additional string) (string, error) {
	if err := s.asked(&s.opens); err != nil {
		return "", err
	}
	return s.TestSealer.Open(ctx, sealed, additional)
}

// count returns the number of calls since the last count.
func (s *watchedSealer) count() (seals, opens, under int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seals, opens, under = s.seals, s.opens, s.under
	s.seals, s.opens, s.under = 0, 0, 0
	return seals, opens, under
}

func (s *watchedSealer) goAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// sealedBundle is a store that logs, with an endpoint that has headers and credentials.
type sealedBundle struct {
	*storetest.Bundle

	keys *watchedSealer
	log  *bytes.Buffer
}

func setupSealed(t *testing.T) *sealedBundle {
	t.Helper()
	b := &sealedBundle{&storetest.Bundle{Address: postgrestest.New(t)}, &watchedSealer{TestSealer: storetest.NewTestSealer(t)}, &bytes.Buffer{}}
	s, err := storetest.OpenStores(t.Context(), stores.Config{
		URL: b.Address, MaxConns: 8, Sealer: b.keys, MakeSecret: storetest.TestSecret, Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, _, err = s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme"})
	require.NoError(t, err)
	b.Stores = s
	b.keys.locked = func() bool {
		return storetest.Query[bool](t, s, `select count(*) > 0 from `+storetest.LocksHere+` l
			where relation = 'tenants'::regclass and mode = 'RowExclusiveLock'`)[0]
	}
	b.Subscriber = b.sealed(t)
	return b
}

func (b *sealedBundle) sealed(t *testing.T) webhook.Endpoint {
	t.Helper()
	e := storetest.TestEndpoint("acme")
	e.Headers = map[string]string{"X-Key": "canary"}
	e.Auth = webhook.Auth{Kind: webhook.AuthBearer, Token: "canary"}
	e, err := b.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
	require.NoError(t, err)
	return e
}

// columns are what is sealed of the endpoint, as it lies in the table.
func (b *sealedBundle) columns(t *testing.T, prefix string) string {
	t.Helper()
	return storetest.Query[string](t, b.Stores, `select (`+prefix+`_kek_id, `+prefix+`_wrapped_key, `+prefix+`_nonce, `+prefix+`_ciphertext)::text
		from endpoints where id = $1`, [16]byte(b.Subscriber.ID))[0]
}

// No key management service is called while the tenant's row is locked, unless there is a new secret to encrypt.
func TestSealedStaysSealed(t *testing.T) {
	t.Parallel()
	b := setupSealed(t)
	seals, opens, under := b.keys.count()
	require.Equal(t, [3]int{3, 0, 0}, [3]int{seals, opens, under}, "of creating one")
	headers, auth := b.columns(t, "headers"), b.columns(t, "auth")
	for _, c := range []struct {
		change               func(*webhook.Endpoint)
		seals, opens         int
		newHeaders, newCreds bool
	}{
		{func(e *webhook.Endpoint) { e.Description = "another" }, 0, 2, false, false},
		{func(e *webhook.Endpoint) { e.Headers["X-Key"] = "other" }, 1, 2, true, false},
		{func(e *webhook.Endpoint) { e.Auth.Token = "other" }, 1, 2, false, true},
		{func(e *webhook.Endpoint) { e.Certificate.Key = "key" }, 1, 2, false, true},
		{func(e *webhook.Endpoint) { e.Headers = nil }, 0, 2, true, false},
		{func(e *webhook.Endpoint) { e.URL = "https://example.com/other" }, 0, 1, false, false},
	} {
		e, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
			c.change(e)
			return nil
		})
		require.NoError(t, err)
		seals, opens, under = b.keys.count()
		require.Equal(t, [3]int{c.seals, c.opens, c.seals}, [3]int{seals, opens, under})
		require.Equal(t, c.newHeaders, headers != b.columns(t, "headers"))
		require.Equal(t, c.newCreds, auth != b.columns(t, "auth"))
		headers, auth = b.columns(t, "headers"), b.columns(t, "auth")
		read, err := b.Endpoint(t.Context(), "acme", b.Subscriber.ID)
		require.NoError(t, err)
		require.Equal(t, read.Headers, e.Headers)
		require.Equal(t, read.Auth, e.Auth)
		require.Equal(t, read.Certificate, e.Certificate)
		b.keys.count()
	}
}

// A change that was made between the look and the lock is not undone.
func TestSealedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setupSealed(t)
	once := sync.Once{}
	b.keys.locked = func() bool { // called while the endpoint is opened: it was read by then
		once.Do(func() {
			_, err := b.Pool().Exec(t.Context(), `
				update endpoints set headers_kek_id = null, headers_wrapped_key = null, headers_nonce = null, headers_ciphertext = null`)
			require.NoError(t, err)
		})
		return false
	}
	e, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.Description = "another"
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, e.Headers)
	require.Equal(t, "canary", e.Auth.Token)
}

// A change of state needs no key.
func TestStateChangesWithoutTheKey(t *testing.T) {
	t.Parallel()
	b := setupSealed(t)
	paused, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	require.Equal(t, b.Subscriber.Headers, paused.Headers, "shown, while the key is there")
	require.Equal(t, b.Subscriber.Auth, paused.Auth)
	headers, auth := b.columns(t, "headers"), b.columns(t, "auth")
	b.keys.goAway(true)
	e, release, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 10, "")
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointActive, e.State)
	require.Empty(t, e.Headers)
	require.Equal(t, 10, release.Rate)
	e, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointPaused, e.State)
	_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 10, "")
	require.NoError(t, err)
	b.ChangedLongAgo(t)
	b.keys.count()
	require.NotEmpty(t, storetest.CountFailures(t, b.Stores, b.Refused(100)))
	_, _, under := b.keys.count()
	require.Zero(t, under)
	_, err = b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(*webhook.Endpoint) error { return errors.New("not called") })
	storetest.RequireCode(t, webhook.CodeUnavailable, err)

	b.keys.goAway(false)
	require.Equal(t, headers, b.columns(t, "headers"))
	require.Equal(t, auth, b.columns(t, "auth"))
	e, err = b.Endpoint(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointDisabled, e.State)
	require.Equal(t, b.Subscriber.Headers, e.Headers)
	require.Equal(t, b.Subscriber.Auth, e.Auth)
}

// An endpoint that cannot be opened hides no other.
func TestListShowsWhatCannotBeOpened(t *testing.T) {
	t.Parallel()
	b := setupSealed(t)
	for range 2 * endpoints.OpenAtATime {
		b.sealed(t)
	}
	_, err := b.Pool().Exec(t.Context(), `update endpoints set headers_ciphertext = 'x' where id = $1`, [16]byte(b.Subscriber.ID))
	require.NoError(t, err)
	list, err := b.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 100})
	require.NoError(t, err)
	require.Len(t, list, 2*endpoints.OpenAtATime+1)
	for i, e := range list {
		if e.ID == b.Subscriber.ID {
			require.Empty(t, e.Headers)
			require.Equal(t, b.Subscriber.URL, e.URL)
			continue
		}
		require.Equal(t, b.Subscriber.Headers, e.Headers)
		require.Equal(t, b.Subscriber.Auth, e.Auth)
		require.True(t, i == 0 || bytes.Compare(list[i-1].ID[:], e.ID[:]) > 0)
	}
	require.Contains(t, b.log.String(), "cannot be opened")
	require.Contains(t, b.log.String(), b.Subscriber.ID.String())
	require.NotContains(t, b.log.String(), "canary")

	b.keys.goAway(true)
	list, err = b.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 100})
	require.NoError(t, err)
	require.Len(t, list, 2*endpoints.OpenAtATime+1)
}
