package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// R8: the hand-over of a dead letter may be late. If the dead letter was replayed or discarded meanwhile, or is
// gone, no workflow is started: it would take the commands to the next run, and ignore them.
func TestHandOverOfAReplayedDeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := &handOvers{started: map[webhook.DeliveryID]int{}, do: func(context.Context, activities.DeliveryState) error { return nil }}
	p := b.process(t, func(c *activities.Config) { c.Starter = s })
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, in activities.AttemptInput)
		started   bool
	}{
		"a dead letter": {func(*testing.T, activities.AttemptInput) {}, true},
		"replayed": {meanwhile: func(t *testing.T, in activities.AttemptInput) {
			t.Helper()
			replay := webhook.PendingCommand{Command: webhook.CommandReplay}
			_, _, err := b.store.Deliveries.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, in.DeliveryID, replay)
			require.NoError(t, err)
		}},
		"replayed, and given up again": {meanwhile: func(t *testing.T, in activities.AttemptInput) {
			t.Helper()
			b.execute(t, `update deliveries set run = 2 where id = $1`, in.DeliveryID)
		}},
		"discarded": {meanwhile: func(t *testing.T, in activities.AttemptInput) {
			t.Helper()
			b.execute(t, `update deliveries set state = 6 where id = $1`, in.DeliveryID)
		}},
		"gone": {meanwhile: func(t *testing.T, in activities.AttemptInput) {
			t.Helper()
			b.execute(t, `delete from deliveries where id = $1`, in.DeliveryID)
		}},
	} {
		in := sharing(b.stored(t))[0]
		b.Script(in.EventID.String(), receivertest.Step{Status: 400})
		results := p.attemptsOf(t, in)
		require.Len(t, results, 1)
		require.Equal(t, webhook.StateDeadLettered, results[0].State)
		c.meanwhile(t, in)
		handed, err := p.HandOvers.HandOver(t.Context(), []activities.DeliveryState{{Ref: in.Ref, Progress: results[0].Progress}})
		require.NoError(t, err)
		require.Zero(t, handed, name)
		require.Equal(t, c.started, s.started[in.DeliveryID] == 1, name)
	}
}

// While the store cannot be asked, a dead letter is not handed over. Other deliveries are.
func TestHandOverWithoutTheStore(t *testing.T) {
	t.Parallel()
	s := &handOvers{started: map[webhook.DeliveryID]int{}, do: func(context.Context, activities.DeliveryState) error { return nil }}
	p := setup(t).process(t, func(c *activities.Config) { c.Starter, c.Store = s, broken{} })
	all := handovers(2)
	all[1].State = webhook.StateDeadLettered
	handed, err := p.HandOvers.HandOver(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, []int{1}, handed.Remaining)
	require.NotContains(t, handed.Fault, "canary")
	require.Len(t, s.started, 1)
}

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
