package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestNoDeliveryGoesBack(t *testing.T) {
	t.Parallel()
	const (
		pending, retrying, held = webhook.StatePending, webhook.StateRetrying, webhook.StateHeld
		delivered, dead         = webhook.StateDelivered, webhook.StateDeadLettered
		cancelled, discarded    = webhook.StateCancelled, webhook.StateDiscarded
	)
	states := []webhook.State{pending, retrying, held, delivered, dead, cancelled, discarded}
	follows := map[webhook.State][]webhook.State{ // within a run
		pending: states, retrying: states, held: states,
		dead: {delivered, dead, cancelled, discarded}, delivered: {delivered}, cancelled: {cancelled}, discarded: {discarded},
	}
	for _, earlier := range states {
		for _, now := range states {
			before := standing{earlier, 2, 3}
			for _, c := range []struct {
				now  standing
				back bool
			}{
				{standing{now, 2, 3}, !slices.Contains(follows[earlier], now)},
				{standing{now, 2, 4}, !slices.Contains(follows[earlier], now)},
				{standing{now, 3, 3}, false},
				{standing{now, 3, 4}, false},
				{standing{now, 2, 2}, true},
				{standing{now, 1, 4}, true},
				{standing{now, 3, 2}, true},
			} {
				require.Equal(t, c.back, c.now.goesBack(before), "%v after %v", c.now, before)
			}
		}
	}
}

func TestHistoryRemembersWhatIsStrange(t *testing.T) {
	t.Parallel()
	h := newHistory()
	one, other := [16]byte{1}, [16]byte{2}
	for _, attempts := range []int{0, 1, 1, 2} {
		h.see(one, standing{webhook.StateRetrying, 1, attempts})
		h.see(other, standing{webhook.StateDelivered, 1, 2 - attempts%2})
	}
	require.Len(t, h.strange, 1)
	require.Contains(t, h.strange[0], webhook.DeliveryID(other).String())
}
