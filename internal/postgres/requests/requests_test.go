package requests_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// keyed is an actor with an Idempotency-Key. Actors of the same name are repetitions.
func keyed(tenant, name string) webhook.Actor {
	by := webhook.Actor{Name: "test"}
	by.Request = webhook.NewRequestKey(tenant, [16]byte{1}, "POST", "/v1/"+tenant, name, []byte("body"))
	return by
}

// The key is stored with the change, or not at all: a repetition changes nothing, and a change that fails leaves the key free.
func TestAKeyIsOfOneChange(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	create := func(by webhook.Actor) (webhook.Endpoint, error) {
		return b.CreateEndpoint(t.Context(), by, webhook.Endpoint{TenantID: "acme", URL: "https://example.com", EventTypes: []string{"*"}}, "whsec_secret")
	}
	by := keyed("acme", "one")
	_, err := b.Pool().Exec(t.Context(), `alter table endpoints add constraint barred check (url <> 'https://example.com')`)
	require.NoError(t, err)
	_, err = create(by)
	require.Error(t, err)
	require.Zero(t, b.Count(t, "request_keys"))
	_, err = b.Pool().Exec(t.Context(), `alter table endpoints drop constraint barred`)
	require.NoError(t, err)

	first, err := create(by)
	require.NoError(t, err)
	repeated := keyed("acme", "one")
	_, err = create(repeated)
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.Equal(t, 2, b.Count(t, "endpoints"), "the subscriber, and one more")
	kept, err := b.Request(t.Context(), repeated.Request)
	require.NoError(t, err)
	require.Equal(t, &webhook.KeptRequest{Body: by.Request.Body, Subject: first.ID.String(), Age: kept.Age}, kept, "there is no answer yet")

	// An answer is that of the request that has made the change.
	is, err := b.KeepAnswer(t.Context(), repeated.Request, webhook.KeptAnswer{Status: 200, Text: []byte("another")})
	require.NoError(t, err)
	require.False(t, is)
	is, err = b.KeepAnswer(t.Context(), by.Request, webhook.KeptAnswer{Status: 201, Text: []byte("whsec_secret"), Secret: true})
	require.NoError(t, err)
	require.True(t, is)
	kept, err = b.Request(t.Context(), repeated.Request)
	require.NoError(t, err)
	require.Equal(t, webhook.KeptAnswer{Status: 201, Text: []byte("whsec_secret"), Secret: true}, kept.Answer)
	require.Equal(t, first.ID.String(), kept.Subject)
	require.Zero(t, b.CountOf(t, `request_keys where position('whsec'::bytea in answer) > 0`))

	none, err := b.Request(t.Context(), keyed("acme", "two").Request)
	require.NoError(t, err)
	require.Nil(t, none)
}

// Of two transactions with a key, the second waits for the first, and goes on if that is rolled back.
func TestConcurrentChangesWithAKey(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for name, commit := range map[string]bool{"committed": true, "rolled back": false} {
		conn, err := pgx.Connect(t.Context(), b.Address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		by := keyed("acme", name)
		_, err = tx.Exec(t.Context(), `insert into request_keys (id, tenant_id, body_sha256, attempt) values ($1, 'acme', '', gen_random_uuid())`,
			by.Request.ID[:])
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := b.CreateEndpoint(t.Context(), by, webhook.Endpoint{TenantID: "acme", URL: "https://example.com", EventTypes: []string{"*"}}, "whsec_x")
			done <- err
		}()
		require.Eventually(t, func() bool {
			return b.CountOf(t, `pg_locks where not granted and pid in (
			select pid from pg_stat_activity where datname = current_database() and query like '%insert into request_keys%' and pid <> pg_backend_pid())`) > 0
		}, storetest.Eventually, storetest.Poll)
		before := b.Count(t, "endpoints")
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
			storetest.RequireCode(t, webhook.CodeConflict, <-done)
			require.Equal(t, before, b.Count(t, "endpoints"))
			continue
		}
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, <-done)
		require.Equal(t, before+1, b.Count(t, "endpoints"))
	}
}

// Requests are removed after a day, in batches and by an index; answers with a secret after 15 minutes; those of a tenant with it.
func TestPruneRequests(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	b := storetest.Bundle{Stores: s, Address: address}
	const old = postgres.DeleteBatch + 10
	fill := `insert into request_keys (id, tenant_id, body_sha256, attempt, status, answer, kek_id, created_at)
		select sha256(($1::text || n)::bytea), 'acme', '', gen_random_uuid(), 200, 'x', $2, now() - $3::bigint * interval '1 ms' from generate_series(1, $4) n`
	for name, r := range map[string]struct {
		age  time.Duration
		kek  any
		rows int
	}{
		"old": {webhook.IdempotencyKeysKept + time.Minute, nil, old}, "day": {webhook.IdempotencyKeysKept - time.Minute, nil, 3},
		"secrets": {webhook.SecretAnswersKept + time.Minute, "k", old}, "secret": {webhook.SecretAnswersKept - time.Minute, "k", 5},
	} {
		_, err := b.Pool().Exec(t.Context(), fill, name, r.kek, r.age.Milliseconds(), r.rows)
		require.NoError(t, err)
	}
	gone, err := b.PruneRequests(t.Context())
	require.NoError(t, err)
	require.Equal(t, old, gone)
	require.Equal(t, 3+old+5, b.Count(t, "request_keys"))
	require.Equal(t, 5, b.CountOf(t, "request_keys where kek_id is not null"))
	require.Equal(t, 3+5, b.CountOf(t, "request_keys where answer is not null"))

	_, err = b.Pool().Exec(t.Context(), `delete from tenants where id = 'acme'`)
	require.NoError(t, err)
	require.Zero(t, b.Count(t, "request_keys"))
}
