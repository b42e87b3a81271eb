package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestDeadLettersAreGrouped(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	letters := b.DeadLetters(t, 3)
	groups := func(tenant string, f webhook.DeliveryFilter) webhook.DeadLetterGroups {
		found, err := b.GroupDeadLetters(t.Context(), tenant, f)
		require.NoError(t, err)
		return found
	}
	found := groups("acme", webhook.DeliveryFilter{})
	require.Len(t, found.Groups, 1)
	group := found.Groups[0]
	require.Equal(t, []any{b.Subscriber.ID, "http_400", 400, 3}, []any{group.EndpointID, group.Reason, group.Status, group.Count})
	require.Equal(t, letters[2], group.Example, "the newest")
	require.False(t, group.Newest.Before(group.Oldest))
	require.Equal(t, 3, found.Counted)
	require.False(t, found.More)

	for _, f := range []webhook.DeliveryFilter{
		{Reason: "http_500"}, {Status: 503}, {EventType: "user.*"}, {EndpointID: webhook.NewEndpointID()}, {Until: time.Now().Add(-time.Hour)},
	} {
		require.Empty(t, groups("acme", f).Groups, "%+v", f)
	}
	require.Len(t, groups("acme", webhook.DeliveryFilter{Reason: "http_400", Status: 400, EndpointID: b.Subscriber.ID}).Groups, 1)
	require.Empty(t, groups("other", webhook.DeliveryFilter{}).Groups)
}
