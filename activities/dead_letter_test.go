package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// keeper0 is the workflow of the first batch.
const keeper0 = "dead/" + sharedID + "/0"

// keepers notes what the workflows of dead letters are started with.
type keepers struct {
	started map[string][]activities.DeliveryState
	left    []int // what they do not have
	err     error
}

func (k *keepers) Keep(_ context.Context, id string, all []activities.DeliveryState) ([]int, error) {
	if k.started == nil {
		k.started = map[string][]activities.DeliveryState{}
	}
	k.started[id] = all
	return k.left, k.err
}

// deadTo makes dead letters of deliveries that share a workflow, which one batch of its is to keep.
func (b *bundle) deadTo(t *testing.T, p *process, keeper string, n int) []activities.DeliveryState {
	t.Helper()
	inputs := make([]activities.AttemptInput, n)
	for i := range inputs {
		inputs[i] = sharing(b.stored(t))[0]
		inputs[i].KeptIn = keeper
		b.Script(inputs[i].EventID.String(), receivertest.Step{Status: 400})
	}
	dead := make([]activities.DeliveryState, n)
	for _, result := range p.attemptsOf(t, inputs...) {
		require.Equal(t, webhook.StateDeadLettered, result.State)
		require.Equal(t, keeper, result.WorkflowID)
		dead[result.Index] = activities.DeliveryState{Ref: inputs[result.Index].Ref, Progress: result.Progress}
	}
	return dead
}

// R8: a dead letter leaves its shared workflow late. If it was replayed or discarded meanwhile, or is gone, the workflow of the others
// begins without it: it would take the commands to the next run, and ignore them.
func TestKeepOfDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := &keepers{left: []int{1}}
	p := b.process(t, func(c *activities.Config) { c.DeadLetters = k })
	dead := b.deadTo(t, p, keeper0, 6)
	replay := webhook.PendingCommand{Command: webhook.CommandReplay}
	_, _, err := b.store.Deliveries.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, dead[0].DeliveryID, replay)
	require.NoError(t, err)
	b.execute(t, `update deliveries set run = 2 where id = $1`, dead[1].DeliveryID) // replayed, and given up again
	b.execute(t, `update deliveries set state = 6 where id = $1`, dead[2].DeliveryID)
	b.execute(t, `delete from deliveries where id = $1`, dead[3].DeliveryID)
	kept, err := p.DeadLetters.Keep(t.Context(), activities.Keeping{WorkflowID: keeper0, DeadLetters: dead})
	require.NoError(t, err)
	require.Equal(t, map[string][]activities.DeliveryState{keeper0: dead[4:]}, k.started)
	require.Equal(t, activities.Kept{Left: []int{5}}, kept, "by the index of the input")

	// What that workflow does not have goes to the next one, and the store names it.
	next := webhook.DeadLettersWorkflowID(sharedID, 1)
	k.left = nil
	kept, err = p.DeadLetters.Keep(t.Context(), activities.Keeping{WorkflowID: next, DeadLetters: []activities.DeliveryState{dead[0], dead[5]}})
	require.NoError(t, err)
	require.Empty(t, kept)
	require.Equal(t, dead[5:], k.started[next])
	for i, want := range map[int]string{0: dead[0].WorkflowID(2), 4: keeper0, 5: next} {
		d, err := b.store.Deliveries.Delivery(t.Context(), tenant, dead[i].DeliveryID)
		require.NoError(t, err)
		require.Equal(t, want, d.WorkflowID)
	}

	// If none is one any more, no workflow is started.
	clear(k.started)
	_, err = p.DeadLetters.Keep(t.Context(), activities.Keeping{WorkflowID: next, DeadLetters: dead[:4]})
	require.NoError(t, err)
	require.Empty(t, k.started)
}

// While the store or Temporal is away, the dead letters stay where they are. The cause is only logged.
func TestKeepWithoutTheStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := &keepers{}
	p := b.process(t, func(c *activities.Config) { c.Store, c.DeadLetters = broken{}, k })
	in := b.stored(t)
	keeping := activities.Keeping{WorkflowID: keeper0, DeadLetters: []activities.DeliveryState{{Ref: in.Ref, Progress: in.Progress}}}
	_, err := p.DeadLetters.Keep(t.Context(), keeping)
	require.ErrorContains(t, err, "an internal fault; its cause is in the log")
	require.NotContains(t, err.Error(), "canary")
	require.Empty(t, k.started)

	k.err = errors.New("canary")
	p = b.process(t, func(c *activities.Config) { c.DeadLetters = k })
	keeping = activities.Keeping{WorkflowID: keeper0, DeadLetters: b.deadTo(t, p, keeper0, 1)}
	_, err = p.DeadLetters.Keep(t.Context(), keeping)
	require.ErrorContains(t, err, "start dead/fanout/evt_1/aaaa/0: an internal fault")
	require.NotContains(t, err.Error(), "canary")
}

// One that cannot be stored, or is gone, does not fail the others.
func TestDiscardOfSeveral(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) { c.DeadLetters = &keepers{} })
	dead := b.deadTo(t, p, keeper0, 3)
	steps := make([]webhook.Step, len(dead))
	for i := range dead {
		steps[i] = webhook.Step{Ref: dead[i].Ref, Progress: dead[i].Progress, WorkflowID: keeper0}
		steps[i].Seq++
		steps[i].State, steps[i].Reason = webhook.StateDiscarded, "of no use"
	}
	steps[0].Reason = "a\x00b"
	b.execute(t, `delete from deliveries where id = $1`, dead[1].DeliveryID)
	got, err := p.Steps.RecordSteps(t.Context(), steps)
	require.NoError(t, err)
	require.NotEmpty(t, got[0].Fault)
	require.Equal(t, activities.StepResult{Gone: true}, got[1])
	require.Equal(t, webhook.StateDiscarded, got[2].State)
	require.Equal(t, keeper0, got[2].WorkflowID)

	looked, err := p.DeadLetters.Look(t.Context(), activities.Keeping{WorkflowID: "delivery/own", DeadLetters: dead})
	require.NoError(t, err)
	d, err := b.store.Deliveries.Delivery(t.Context(), tenant, dead[0].DeliveryID)
	require.NoError(t, err)
	require.Equal(t, "delivery/own", d.WorkflowID)
	require.Equal(t, webhook.StateDeadLettered, looked[0].State)
	require.True(t, looked[1].Gone)
	require.Equal(t, webhook.StateDiscarded, looked[2].State)
}
