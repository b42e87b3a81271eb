package endpoints_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestEndpointCacheShowsOwnChangesAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	c := s.Cache()
	_, at := storetest.EndpointsOf(t, c, "acme")
	require.Zero(t, at)

	e := storetest.CreateEndpoint(t, s, "acme")
	of, at := storetest.EndpointsOf(t, c, "acme")
	require.Len(t, of, 1)
	require.EqualValues(t, 1, at)
	first, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, []string{storetest.CanarySecret}, first.Secrets)
	again, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Same(t, first, again, "from the cache")

	_, err = s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil })
	require.NoError(t, err)
	target, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, "https://new.example", target.URL)
	of, _ = storetest.EndpointsOf(t, c, "acme")
	require.Equal(t, "https://new.example", of[0].URL)

	require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	_, err = c.Target(t.Context(), e.ID)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	of, at = storetest.EndpointsOf(t, c, "acme")
	require.Empty(t, of)
	require.EqualValues(t, 3, at)
}
