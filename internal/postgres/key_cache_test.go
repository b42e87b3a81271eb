package postgres

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestAFloodOfInventedKeysIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newKeyCache(&core{}, nil)
		defer c.close()
		release := make(chan struct{})
		var reading atomic.Int32
		read := func(context.Context, webhook.KeyID) (*webhook.Key, error) {
			reading.Add(1)
			<-release
			return nil, nil //nolint:nilnil // what livingKey returns for an unknown id
		}
		answers := make(chan error, 100)
		for range cap(answers) {
			go func() { _, err := c.lookUp(t.Context(), webhook.NewKeyID(), read); answers <- err }()
		}
		synctest.Wait()
		require.EqualValues(t, maxKeyLookUps, reading.Load(), "the others wait for their turn")
		for range cap(answers) - maxKeyLookUps {
			requireCode(t, webhook.CodeUnavailable, <-answers)
		}
		close(release)
		for range maxKeyLookUps {
			requireCode(t, webhook.CodeUnauthenticated, <-answers)
		}
		require.Empty(t, c.lookUps, "every turn was given back")
	})
}

// A key that was found once is read anew while invented ones have all the turns of theirs,
// and loses that when it is revoked.
func TestInventedKeysDoNotStandInTheWayOfLivingOnes(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	k := testKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), testActor(), k))
	_, err := s.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)

	for range maxKeyLookUps {
		s.Keys.cache.lookUps <- struct{}{}
	}
	_, err = s.Authenticate(t.Context(), webhook.NewKeyID(), k.SHA256)
	requireCode(t, webhook.CodeUnavailable, err)
	for name, old := range map[string]func(){
		"its time is over": func() {
			require.Eventually(t, func() bool { _, known := s.Keys.cache.keys.Known(k.ID); return !known }, eventually, poll)
		},
		"it was changed": func() { s.Keys.cache.forget(k.ID) },
		"all are old":    s.forgetAll,
	} {
		old()
		_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
		require.NoError(t, err, name)
	}

	require.NoError(t, s.RevokeKey(t.Context(), testActor(), "acme", k.ID))
	_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
	requireCode(t, webhook.CodeUnauthenticated, err)
	require.False(t, s.Keys.cache.isKnown(k.ID), "it is one of many that do not exist now")
}

func TestTheKnownKeysAreBounded(t *testing.T) {
	t.Parallel()
	c := newKeyCache(&core{}, nil)
	defer c.close()
	for range maxKnownKeys + 10 {
		c.know(webhook.NewKeyID(), true)
	}
	require.Equal(t, maxKnownKeys, c.known.Len())
}

func TestAnInventedKeyIsLookedUpOnceASecondAndPushesNoneOut(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	k := testKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), testActor(), k))
	_, err := s.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)

	invented := webhook.NewKeyID()
	_, err = s.Authenticate(t.Context(), invented, k.SHA256)
	requireCode(t, webhook.CodeUnauthenticated, err)
	require.Equal(t, webhook.ErrKeyUnknown, s.Keys.cache.missingWhy(invented, time.Now()))
	require.Empty(t, s.Keys.cache.missingWhy(invented, time.Now().Add(missingKeyFor)))
	require.Equal(t, 1, s.Keys.cache.keys.Len())

	for range 2 * maxMissingKeys {
		s.Keys.cache.remember(webhook.NewKeyID(), time.Now(), webhook.ErrKeyUnknown)
	}
	require.LessOrEqual(t, s.Keys.cache.missing.Len(), maxMissingKeys)
	require.Equal(t, 1, s.Keys.cache.keys.Len())
}

func TestTheUseOfKeysIsBounded(t *testing.T) {
	t.Parallel()
	c := newKeyCache(&core{}, nil)
	defer c.close()
	now := time.Now()
	for range maxPendingUsage + maxCachedKeys {
		c.use(webhook.NewKeyID(), now)
	}
	require.LessOrEqual(t, c.written.Len(), maxCachedKeys)
	require.LessOrEqual(t, len(c.takeUse()), maxPendingUsage)
}
