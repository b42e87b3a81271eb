package keys_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/keys"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestAFloodOfInventedKeysIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := keys.NewKeyCache(&postgres.Core{}, nil)
		defer c.Close()
		release := make(chan struct{})
		var reading atomic.Int32
		read := func(context.Context, webhook.KeyID) (*webhook.Key, error) {
			reading.Add(1)
			<-release
			return nil, nil //nolint:nilnil // what livingKey returns for an unknown id
		}
		answers := make(chan error, 100)
		for range cap(answers) {
			go func() { _, err := c.LookUp(t.Context(), webhook.NewKeyID(), read); answers <- err }()
		}
		synctest.Wait()
		require.EqualValues(t, keys.MaxKeyLookUps, reading.Load(), "the others wait for their turn")
		for range cap(answers) - keys.MaxKeyLookUps {
			storetest.RequireCode(t, webhook.CodeUnavailable, <-answers)
		}
		close(release)
		for range keys.MaxKeyLookUps {
			storetest.RequireCode(t, webhook.CodeUnauthenticated, <-answers)
		}
		require.Empty(t, c.LookUps, "every turn was given back")
	})
}

// A key that was found once can be read again while requests with invented keys use up all their permits. It cannot after it was revoked.
func TestInventedKeysDoNotBlockValidOnes(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	k := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	_, err := s.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)

	for range keys.MaxKeyLookUps {
		s.Cached().LookUps <- struct{}{}
	}
	_, err = s.Authenticate(t.Context(), webhook.NewKeyID(), k.SHA256)
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
	for name, old := range map[string]func(){
		"its time is over": func() {
			require.Eventually(t, func() bool { _, known := s.Cached().Keys.Known(k.ID); return !known }, storetest.Eventually, storetest.Poll)
		},
		"it was changed": func() { s.Cached().Forget(k.ID) },
		"all are old":    s.ForgetAll,
	} {
		old()
		_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
		require.NoError(t, err, name)
	}

	require.NoError(t, s.RevokeKey(t.Context(), storetest.TestActor(), "acme", k.ID))
	_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
	storetest.RequireCode(t, webhook.CodeUnauthenticated, err)
	require.False(t, s.Cached().IsKnown(k.ID), "it is one of many that do not exist now")
}

func TestTheKnownKeysAreBounded(t *testing.T) {
	t.Parallel()
	c := keys.NewKeyCache(&postgres.Core{}, nil)
	defer c.Close()
	for range keys.MaxKnownKeys + 10 {
		c.Know(webhook.NewKeyID(), true)
	}
	require.Equal(t, keys.MaxKnownKeys, c.Known.Len())
}

func TestAnInventedKeyIsLookedUpOnceASecondAndPushesNoneOut(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	k := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	_, err := s.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)

	invented := webhook.NewKeyID()
	_, err = s.Authenticate(t.Context(), invented, k.SHA256)
	storetest.RequireCode(t, webhook.CodeUnauthenticated, err)
	require.Equal(t, webhook.ErrKeyUnknown, s.Cached().MissingWhy(invented, time.Now()))
	require.Empty(t, s.Cached().MissingWhy(invented, time.Now().Add(keys.MissingKeyFor)))
	require.Equal(t, 1, s.Cached().Keys.Len())

	for range 2 * keys.MaxMissingKeys {
		s.Cached().Remember(webhook.NewKeyID(), time.Now(), webhook.ErrKeyUnknown)
	}
	require.LessOrEqual(t, s.Cached().Missing.Len(), keys.MaxMissingKeys)
	require.Equal(t, 1, s.Cached().Keys.Len())
}

func TestTheUseOfKeysIsBounded(t *testing.T) {
	t.Parallel()
	c := keys.NewKeyCache(&postgres.Core{}, nil)
	defer c.Close()
	now := time.Now()
	for range keys.MaxPendingUsage + keys.MaxCachedKeys {
		c.Use(webhook.NewKeyID(), now)
	}
	require.LessOrEqual(t, c.Written.Len(), keys.MaxCachedKeys)
	require.LessOrEqual(t, len(c.TakeUse()), keys.MaxPendingUsage)
}
