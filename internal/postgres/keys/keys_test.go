package keys_test

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestKeysAreListedNewestFirstUntilRevoked(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	var keys []webhook.Key
	for range 5 {
		k := storetest.TestKey("acme")
		k.ExpiresAt = k.CreatedAt.Add(time.Hour)
		require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
		keys = append([]webhook.Key{k}, keys...)
	}
	operator := storetest.TestKey("")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), operator))

	page, err := s.ListKeys(t.Context(), "acme", webhook.Page{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, keys[:2], page)
	page, err = s.ListKeys(t.Context(), "acme", webhook.Page{Limit: 10, After: page[1].ID})
	require.NoError(t, err)
	require.Equal(t, keys[2:], page)
	page, err = s.ListKeys(t.Context(), "", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []webhook.Key{operator}, page)

	storetest.RequireCode(t, webhook.CodeNotFound, s.RevokeKey(t.Context(), storetest.TestActor(), "", keys[0].ID))
	storetest.RequireCode(t, webhook.CodeNotFound, s.RevokeKey(t.Context(), storetest.TestActor(), "acme", operator.ID))
	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "acme", keys[0].ID))
	storetest.RequireCode(t, webhook.CodeNotFound, s.RevokeKey(t.Context(), storetest.TestActor(), "acme", keys[0].ID))
	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "", operator.ID))
	page, err = s.ListKeys(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, keys[1:], page)
	require.Equal(t, []string{"key.create", "key.revoke"}, storetest.Actions(t, s, keys[0].ID.String()))
	require.Equal(t, []string{"key.create", "key.revoke"}, storetest.Actions(t, s, operator.ID.String()))
}

// A key ends with the key that it was made with, and so on; others stay.
func TestRevokedKeysTakeTheirsAlong(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	made := func(by webhook.KeyID, tenant string) webhook.Key {
		k := storetest.TestKey(tenant)
		require.NoError(t, s.CreateKey(t.Context(), webhook.Actor{KeyID: by, RequestID: "req-1"}, k))
		return k
	}
	operator := made(webhook.KeyID{}, "")
	other := made(webhook.KeyID{}, "")
	admin := made(operator.ID, "acme")
	child := made(admin.ID, "acme")
	grandchild := made(child.ID, "acme")
	sibling := made(operator.ID, "acme")
	foreign := made(other.ID, "acme")
	lives := func(k webhook.Key) bool {
		_, err := s.Authenticate(t.Context(), k.ID, k.SHA256)
		if err != nil {
			storetest.RequireCode(t, webhook.CodeUnauthenticated, err)
		}
		return err == nil
	}
	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "acme", admin.ID))
	for _, gone := range []webhook.Key{admin, child, grandchild} {
		require.False(t, lives(gone))
		require.Equal(t, []string{"key.create", "key.revoke"}, storetest.Actions(t, s, gone.ID.String()))
	}
	for _, kept := range []webhook.Key{operator, other, sibling, foreign} {
		require.True(t, lives(kept))
	}
	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "", operator.ID))
	require.False(t, lives(sibling))
	require.True(t, lives(foreign))
	require.Len(t, storetest.Query[string](t, s, `select action from audit_log where action = 'key.revoke' and subject = $1`, child.ID.String()), 1, "once")
}

func TestCreateKeyRefuses(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	storetest.RequireCode(t, webhook.CodeNotFound, s.CreateKey(t.Context(), storetest.TestActor(), storetest.TestKey("nobody")))
	k := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	storetest.RequireCode(t, webhook.CodeConflict, s.CreateKey(t.Context(), storetest.TestActor(), k))
	k = storetest.TestKey("acme")
	k.Scope = webhook.ScopeOperator
	require.Error(t, s.CreateKey(t.Context(), storetest.TestActor(), k), "a tenant's key is no operator's")
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	living, expired, revoked := storetest.TestKey("acme"), storetest.TestKey("acme"), storetest.TestKey("")
	expired.ExpiresAt = time.Now().Add(-time.Second)
	for _, k := range []webhook.Key{living, expired, revoked} {
		require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	}
	for range 2 { // from the table, then from the cache
		got, err := s.Authenticate(t.Context(), living.ID, living.SHA256)
		require.NoError(t, err)
		require.Equal(t, living, got)
		_, err = s.Authenticate(t.Context(), revoked.ID, revoked.SHA256)
		require.NoError(t, err)
	}
	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "", revoked.ID))

	words := map[string]struct{}{}
	for name, try := range map[string]struct {
		id  webhook.KeyID
		sum [32]byte
		why webhook.KeyError
	}{
		"another secret":        {living.ID, sha256.Sum256([]byte("guess")), webhook.ErrKeyWrongSecret},
		"no secret":             {living.ID, [32]byte{}, webhook.ErrKeyWrongSecret},
		"expired":               {expired.ID, expired.SHA256, webhook.ErrKeyExpired},
		"expired, and guessed":  {expired.ID, living.SHA256, webhook.ErrKeyWrongSecret},
		"revoked, here at once": {revoked.ID, revoked.SHA256, webhook.ErrKeyRevoked},
		"unknown":               {webhook.NewKeyID(), living.SHA256, webhook.ErrKeyUnknown},
		"unknown, hash of zero": {webhook.NewKeyID(), [32]byte{}, webhook.ErrKeyUnknown},
		"none":                  {why: webhook.ErrKeyUnknown},
	} {
		for range 2 {
			_, err := s.Authenticate(t.Context(), try.id, try.sum)
			require.Equal(t, webhook.CodeUnauthenticated.String(), webhook.CodeOf(err).String(), name)
			refused, _ := errors.AsType[*webhook.Error](err)
			words[refused.Message] = struct{}{}
			require.ErrorIs(t, err, try.why, "%s: for the metrics", name)
		}
	}
	require.Len(t, words, 1, "all refusals read alike")
}

func TestAKeyThatWasTriedBeforeItWasMadeWorksAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	k := storetest.TestKey("acme")
	_, err := s.Authenticate(t.Context(), k.ID, k.SHA256)
	storetest.RequireCode(t, webhook.CodeUnauthenticated, err)
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)
}

func TestTheLastUseIsWrittenOnceAMinute(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	other := storetest.OpenStore(t, address)
	k := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	lastUsed := func() time.Time {
		page, err := s.ListKeys(t.Context(), "acme", webhook.Page{Limit: 1})
		require.NoError(t, err)
		return page[0].LastUsedAt
	}

	_, err := s.Authenticate(t.Context(), k.ID, sha256.Sum256([]byte("guess")))
	require.Error(t, err)
	s.FlushUse(t.Context())
	require.Zero(t, lastUsed(), "a refused use is none")

	for range 3 {
		_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
		require.NoError(t, err)
	}
	_, err = other.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)
	s.FlushUse(t.Context())
	first := lastUsed()
	require.WithinDuration(t, time.Now(), first, time.Minute)
	_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)
	require.Empty(t, s.Cached().TakeUse(), "within the minute")
	other.FlushUse(t.Context())
	require.Equal(t, first, lastUsed(), "another process keeps to the minute too")

	require.NoError(t, s.WriteUse(t.Context(), map[webhook.KeyID]time.Time{k.ID: first.Add(time.Minute)}))
	require.Equal(t, first.Add(time.Minute), lastUsed())
}

func TestTheLastUseIsWrittenWhenTheStoreCloses(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	k := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	other := storetest.OpenStore(t, address)
	other.Listen(t.Context())
	_, err := other.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)
	other.Close()
	require.Equal(t, []bool{true}, storetest.Query[bool](t, s, `select last_used_at is not null from api_keys`))
}
