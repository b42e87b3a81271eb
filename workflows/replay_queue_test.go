package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// fiftyReplays are as many as run at a time.
const fiftyReplays = `insert into replays (id, tenant_id, source, created_at, asked, rate, ramp, cursor, state)
	select gen_random_uuid(), $1, 1, now(), 1, 1, false, '00000000-0000-0000-0000-000000000000', 0 from generate_series(1, 50)`

// A queued replay has no workflow: one that finds its replay queued ends, and another begins when the replay may run. A command is carried out
// in between.
func TestAQueuedReplayWaitsWithoutAWorkflow(t *testing.T) {
	t.Parallel()
	b := setupReplay(t, 1000)
	r := b.replayOf(t, 5, webhook.Replay{Asked: 600})
	b.exec(t, `update replays set state = 4 where id = $1`, r.replay.ID)
	b.exec(t, fiftyReplays, tenant)
	again := func(script ...func(environment)) {
		r.over, r.input = false, workflows.ReplayInput{ReplayID: r.replay.ID, Lost: r.read().Started}
		r.run(script...)
		require.True(t, r.over)
	}
	again()
	require.Empty(t, r.released)
	again(func(env environment) {
		name, asked := r.command(webhook.ReplayCommand{Rate: 300})
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(name, asked) }, 0)
	})
	require.Equal(t, webhook.ReplayQueued, r.read().State)
	require.Equal(t, 300, r.read().Rate)
	b.exec(t, `update replays set state = 2 where state = 0`)
	require.NoError(t, r.AdmitReplays(t.Context()))
	again()
	r.ends(webhook.ReplayCompleted, "")
	require.Equal(t, r.set, r.released)
}

func TestAQueuedReplayIsCancelled(t *testing.T) {
	t.Parallel()
	b := setupReplay(t, 1000)
	r := b.replayOf(t, 5, webhook.Replay{Asked: 600})
	b.exec(t, fiftyReplays, tenant)
	b.exec(t, `update replays set state = 4 where id = $1`, r.replay.ID)
	name, asked := r.command(webhook.ReplayCommand{Action: webhook.ReplayCancel})
	r.run(func(env environment) { env.RegisterDelayedCallback(func() { env.SignalWorkflow(name, asked) }, 0) })
	r.ends(webhook.ReplayCancelled, "cancelled by a person")
	require.Empty(t, r.released)
}

// A resume waits where there is no room: the workflow ends, with the replay queued.
func TestAResumedReplayIsQueued(t *testing.T) {
	t.Parallel()
	b := setupReplay(t, 1000)
	r := b.replayOf(t, 10, webhook.Replay{Asked: 60})
	r.run(after(2500*time.Millisecond, func(env environment) {
		name, asked := r.command(webhook.ReplayCommand{Action: webhook.ReplayPause})
		env.SignalWorkflow(name, asked)
	}), after(time.Minute, func(env environment) {
		b.exec(t, fiftyReplays, tenant)
		name, asked := r.command(webhook.ReplayCommand{Action: webhook.ReplayResume})
		env.SignalWorkflow(name, asked)
	}))
	require.True(t, r.over)
	require.Equal(t, webhook.ReplayQueued, r.read().State)
	require.Len(t, r.released, 3)
}
