package keys_test

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestCheckIsNoUse(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	k := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), k))
	found, err := s.Check(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)
	require.Equal(t, k, found)
	require.Empty(t, s.Cached().TakeUse())
	_, err = s.Check(t.Context(), k.ID, sha256.Sum256([]byte("guess")))
	storetest.RequireCode(t, webhook.CodeUnauthenticated, err)
	_, err = s.Authenticate(t.Context(), k.ID, k.SHA256)
	require.NoError(t, err)
	require.Len(t, s.Cached().TakeUse(), 1)
}
