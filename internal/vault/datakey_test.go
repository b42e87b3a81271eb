package vault_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/vault"
)

func TestDataKey(t *testing.T) {
	t.Parallel()
	first, second := kekFrom(t, 1), kekFrom(t, 2)
	key, err := vault.New(first).NewDataKey(t.Context())
	require.NoError(t, err)
	sealed, err := key.Seal([]byte("canary"), "purpose")
	require.NoError(t, err)
	require.NotContains(t, string(sealed), "canary")
	again, err := key.Seal([]byte("canary"), "purpose")
	require.NoError(t, err)
	require.NotEqual(t, sealed, again, "each has a nonce of its own")

	opened, err := vault.New(second, first).OpenDataKey(t.Context(), key.KEKID, key.Wrapped)
	require.NoError(t, err)
	plain, err := opened.Open(sealed, "purpose")
	require.NoError(t, err)
	require.Equal(t, "canary", string(plain))

	_, err = vault.New(second).OpenDataKey(t.Context(), key.KEKID, key.Wrapped)
	require.ErrorIs(t, err, vault.ErrUnknownKEK)
	_, err = opened.Open(sealed, "another purpose")
	require.ErrorIs(t, err, vault.ErrTampered)
	sealed[len(sealed)-1] ^= 1
	_, err = opened.Open(sealed, "purpose")
	require.ErrorIs(t, err, vault.ErrTampered)
	_, err = opened.Open(sealed[:5], "purpose")
	require.ErrorIs(t, err, vault.ErrTampered)
	key.Wrapped[0] ^= 1
	_, err = vault.New(first).OpenDataKey(t.Context(), key.KEKID, key.Wrapped)
	require.ErrorIs(t, err, vault.ErrTampered)
}
