package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// Many hand-overs at once are no outage of the store: attempts that have failed before still ask it.
func TestTooManyHandOversAreNoOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) {
		c.Starter = &handOvers{do: func(context.Context, activities.DeliveryState) error { return activities.ErrTooManyHandOvers }}
	})
	handed, err := p.HandOvers.HandOver(t.Context(), handovers(2))
	require.NoError(t, err)
	require.Equal(t, activities.HandedOver{
		Remaining: []int{0, 1}, Fault: "hand over to workflows of their own: too many deliveries are being handed over at once",
	}, handed)
	in := b.stored(t)
	in.Faults = 1
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
}
