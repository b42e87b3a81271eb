package replays_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// The count is what a replay created now would have, and nothing is stored.
func TestCountReplay(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 3)
	for name, c := range map[string]struct {
		filter webhook.ReplayFilter
		want   int64
	}{
		"all":             {want: 3},
		"of the endpoint": {filter: webhook.ReplayFilter{EndpointID: b.Subscriber.ID}, want: 3},
		"of no reason":    {filter: webhook.ReplayFilter{Reason: "http_503"}},
	} {
		r := webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Asked: 1, Filter: c.filter}
		n, err := b.CountReplay(t.Context(), r)
		require.NoError(t, err, name)
		require.Equal(t, c.want, *n, name)
		require.Equal(t, *b.StartReplay(t, r).Total, *n, name)
	}
	before := b.Count(t, "replays")
	_, err := b.CountReplay(t.Context(), webhook.Replay{TenantID: "nobody", Source: webhook.ReplayDeadLetters})
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = b.CountReplay(t.Context(), webhook.Replay{
		TenantID: "acme", Source: webhook.ReplayDeadLetters, Filter: webhook.ReplayFilter{EndpointID: webhook.NewEndpointID()},
	})
	storetest.RequireCode(t, webhook.CodeInvalid, err)
	require.Equal(t, before, b.Count(t, "replays"))
}
