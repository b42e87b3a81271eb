package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestNumbersInSQLAreTheDomains(t *testing.T) {
	t.Parallel()
	for number, is := range map[any]string{
		webhook.StatePending: Pending, webhook.StateRetrying: Retrying, webhook.StateHeld: Held, webhook.StateDelivered: Delivered,
		webhook.StateDeadLettered: DeadLettered, webhook.StateDiscarded: Discarded, webhook.EndpointActive: EndpointActive,
		webhook.EndpointPaused: EndpointPaused,
		webhook.ReplayRunning:  ReplayRunning, webhook.ReplayPaused: ReplayPaused, webhook.ReplayQueued: ReplayQueued,
		webhook.CommandNone: NoCommand, webhook.CommandCancel: CommandCancel,
	} {
		require.Equal(t, is, fmt.Sprintf("%d", number), "%T %v", number, number)
	}
	for state := webhook.StatePending; state <= webhook.StateDiscarded; state++ {
		require.Equal(t, state.Open(), state < webhook.StateDelivered, state)
	}
	finished := fmt.Sprintf("in (%d, %d, %d)", webhook.StateDelivered, webhook.StateCancelled, webhook.StateDiscarded)
	require.Equal(t, IsFinished, finished)
	require.Equal(t, ReplayIsOpen, fmt.Sprintf("in (%d, %d, %d)", webhook.ReplayRunning, webhook.ReplayPaused, webhook.ReplayQueued))
	require.Equal(t, ReplayIsOver, fmt.Sprintf("in (%d, %d)", webhook.ReplayCompleted, webhook.ReplayCancelled))
	for _, state := range webhook.ReplayStates() {
		require.Equal(t, !state.Open(), state == webhook.ReplayCompleted || state == webhook.ReplayCancelled, state)
	}
}
