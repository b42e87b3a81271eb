package replays_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestReplayIsReadBack(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 3)
	since := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	made := b.StartReplay(t, webhook.Replay{Ramp: true, Asked: 250, Filter: webhook.ReplayFilter{
		EndedSince: time.Now().UTC().Add(-time.Hour).Truncate(time.Microsecond), EndedUntil: time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond),
		EndpointID: b.Subscriber.ID, EventType: "order.paid", Reason: "http_400", Status: 400, Since: since, Until: since.Add(2 * time.Hour),
	}})
	require.EqualValues(t, 3, *made.Total)
	require.Equal(t, webhook.ReplayRunning, made.State)
	require.WithinDuration(t, time.Now(), made.CreatedAt, time.Minute)
	require.Equal(t, 1, storetest.Audits(t, b.Stores, "replay.create"))

	read, err := b.Replay(t.Context(), "acme", made.ID)
	require.NoError(t, err)
	require.Equal(t, made, read)
	_, err = b.Replay(t.Context(), "other", made.ID)
	storetest.RequireCode(t, webhook.CodeNotFound, err)

	second := b.StartReplay(t, webhook.Replay{})
	list, err := b.ListReplays(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []webhook.Replay{second, made}, list)
	list, err = b.ListReplays(t.Context(), "acme", webhook.Page{Limit: 10, After: second.ID})
	require.NoError(t, err)
	require.Len(t, list, 1)

	wide := b.StartReplay(t, webhook.Replay{
		Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: b.Subscriber.ID, Since: since, IncludeUnmatched: true},
	})
	read, err = b.Replay(t.Context(), "acme", wide.ID)
	require.NoError(t, err)
	require.Equal(t, wide, read)
	require.Equal(t, []string{`{"source": "events", "endpoint_id": "` + b.Subscriber.ID.String() + `", "include_unmatched": true}`},
		storetest.Query[string](t, b.Stores, `select detail::text from audit_log where subject = $1`, wide.ID.String()))
}

func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.CreateReplay(t.Context(), storetest.TestActor(), webhook.Replay{TenantID: "nobody", Source: webhook.ReplayDeadLetters, Asked: 1})
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	unknown := webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Asked: 1, Filter: webhook.ReplayFilter{EndpointID: webhook.NewEndpointID()}}
	_, err = b.CreateReplay(t.Context(), storetest.TestActor(), unknown)
	storetest.RequireCode(t, webhook.CodeInvalid, err)
	require.ErrorContains(t, err, "endpoint_id: names an endpoint that does not exist")
	require.Zero(t, b.Count(t, "replays"))
	require.Zero(t, storetest.Audits(t, b.Stores, "replay.create"))
}

func TestReplayCommandsByState(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	pause, resume, cancel, rate := webhook.ReplayCommand{Action: webhook.ReplayPause}, webhook.ReplayCommand{Action: webhook.ReplayResume},
		webhook.ReplayCommand{Action: webhook.ReplayCancel}, webhook.ReplayCommand{Rate: 7}
	for _, state := range webhook.ReplayStates() {
		for _, c := range []webhook.ReplayCommand{pause, resume, cancel, rate} {
			r := b.StartReplay(t, webhook.Replay{})
			_, err := b.StepReplay(t.Context(), webhook.ReplayStep{ID: r.ID, Seq: 1, State: state, Asked: 100, Rate: 100})
			require.NoError(t, err)
			if state == webhook.ReplayQueued { // there is room
				b.Exec(t, `update replays set state = 4 where id = $1`, r.ID)
			}
			got, err := b.CommandReplay(t.Context(), storetest.TestActor(), "acme", r.ID, c)
			if !state.Open() {
				storetest.RequireCode(t, webhook.CodeConflict, err)
				require.Equal(t, state, got.State)
				continue
			}
			require.NoError(t, err)
			already := state != webhook.ReplayPaused && c == resume || state == webhook.ReplayPaused && c == pause
			require.Equal(t, !already, got.Command.Pending(), "%s when %s", c.Action, state)
			require.Equal(t, state, got.State, "only the workflow changes it")
			read, err := b.Replay(t.Context(), "acme", r.ID)
			require.NoError(t, err)
			require.Equal(t, got, read)
		}
	}
	_, err := b.CommandReplay(t.Context(), storetest.TestActor(), "other", b.StartReplay(t, webhook.Replay{}).ID, pause)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
}

// Commands that come together are one, which loses nothing.
func TestReplayCommandsTogether(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	r := b.StartReplay(t, webhook.Replay{})
	b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayPause})
	got := b.AskReplay(t, r, webhook.ReplayCommand{Rate: 7})
	require.Equal(t, webhook.ReplayCommand{ID: 2, Action: webhook.ReplayPause, Rate: 7}, got.Command)
	require.Equal(t, []int{7, 100}, []int{got.Asked, got.Rate}, "requested, and not in force yet")
	got = b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayPause})
	require.EqualValues(t, 2, got.Command.ID, "repeated: nothing new")
	got = b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayResume})
	require.Equal(t, webhook.ReplayCommand{ID: 3, Action: webhook.ReplayResume, Rate: 7}, got.Command)
	b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayCancel})
	b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayCancel})
	_, err := b.CommandReplay(t.Context(), storetest.TestActor(), "acme", r.ID, webhook.ReplayCommand{Action: webhook.ReplayResume})
	storetest.RequireCode(t, webhook.CodeConflict, err)
	for action, n := range map[string]int{"replay.pause": 1, "replay.set_rate": 1, "replay.resume": 1, "replay.cancel": 1} {
		require.Equal(t, n, storetest.Audits(t, b.Stores, action), action)
	}

	step := webhook.ReplayStep{ID: r.ID, Seq: 1, State: webhook.ReplayPaused, Asked: 50, Rate: 50, CommandDone: 3}
	st, err := b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayCommand{ID: 4, Action: webhook.ReplayCancel, Rate: 7}, st.Command, "not seen yet")
	require.Equal(t, 7, st.Asked)
	step.Seq, step.CommandDone = 2, 4
	st, err = b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.False(t, st.Command.Pending())
}

// R6: the stored state of a replay only moves forward, and stays ended.
func TestReplayStepsMoveForward(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeadLetters(t, 2)
	r := b.StartReplay(t, webhook.Replay{})
	b.ReleaseBatch(t, r, 3, 1)
	step := webhook.ReplayStep{ID: r.ID, Seq: 3, State: webhook.ReplayPaused, Reason: "late", Asked: 1, Rate: 1}
	st, err := b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayRunning, st.State, "the batch was first")
	step.Seq, step.State, step.Reason = 4, webhook.ReplayCancelled, "enough"
	st, err = b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayCancelled, st.State)
	require.Zero(t, b.Count(t, "replay_releases"), "outcomes are not counted any more")
	step.Seq, step.State = 5, webhook.ReplayRunning
	again, err := b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, st, again)
	read, err := b.Replay(t.Context(), "acme", r.ID)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), read.CompletedAt, time.Minute)
	require.Equal(t, "enough", read.StateReason)

	unknown := webhook.NewReplayID()
	_, err = b.StepReplay(t.Context(), webhook.ReplayStep{ID: unknown, Seq: 1})
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: unknown, Seq: 1, Limit: 1})
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = b.ReplayOutcomes(t.Context(), unknown, time.Now(), 1)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
}

// R7: whose workflow is to be looked after, and when.
func TestReplaysLeftBehind(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	r := b.StartReplay(t, webhook.Replay{})
	in := func(d time.Duration) (left []webhook.Replay) {
		_, err := b.Pool().Exec(t.Context(), `update replays set relay_at = relay_at - $1::bigint * interval '1 millisecond'`, d.Milliseconds())
		require.NoError(t, err)
		left, err = b.TakeReplays(t.Context(), 10)
		require.NoError(t, err)
		return left
	}
	step := func(seq int64, state webhook.ReplayState, done int64) {
		_, err := b.StepReplay(t.Context(), webhook.ReplayStep{ID: r.ID, Seq: seq, State: state, Asked: 1, Rate: 1, CommandDone: done})
		require.NoError(t, err)
	}
	require.Empty(t, in(0), "its own process is at it")
	left := in(deliveries.RelayAfter)
	require.Len(t, left, 1, "never at work")
	require.False(t, left[0].Started)
	require.Empty(t, in(0), "not handed out again for a while")

	_, err := b.ReplayOutcomes(t.Context(), r.ID, time.Now(), 1)
	require.NoError(t, err)
	require.Empty(t, in(deliveries.RelayAfter))
	left = in(replays.ReplaySilence)
	require.Len(t, left, 1, "silent for a long time")
	require.True(t, left[0].Started)

	step(1, webhook.ReplayRunning, 0)
	b.AskReplay(t, r, webhook.ReplayCommand{Action: webhook.ReplayPause})
	_, err = b.ReplayOutcomes(t.Context(), r.ID, time.Now(), 1)
	require.NoError(t, err)
	left = in(deliveries.RelayAfter)
	require.Len(t, left, 1, "a command is not answered, although its workflow is at work")
	require.Equal(t, webhook.ReplayPause, left[0].Command.Action)
	step(2, webhook.ReplayPaused, 1)
	require.Empty(t, in(24*time.Hour), "a paused one has nothing to say")
	b.AskReplay(t, r, webhook.ReplayCommand{Rate: 7})
	require.Len(t, in(deliveries.RelayAfter), 1)
	step(3, webhook.ReplayCancelled, 1)
	require.Empty(t, in(24*time.Hour))
}

// Replays that have ended go when their retention has passed; what runs stays.
func TestReplaysArePruned(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := func() webhook.Replay { return b.StartReplay(t, webhook.Replay{Source: webhook.ReplayDeadLetters}) }
	running, ended, old := start(), start(), start()
	rate, err := b.ReplayRate(t.Context())
	require.NoError(t, err)
	require.Equal(t, replays.Rate{Running: 3, PerMinute: int64(running.Rate + ended.Rate + old.Rate)}, rate)
	for id, age := range map[webhook.ReplayID]time.Duration{ended.ID: time.Hour, old.ID: 3 * time.Hour} {
		_, err := b.Pool().Exec(t.Context(), `update replays set state = $2, completed_at = now() - $3::bigint * interval '1 millisecond' where id = $1`,
			id, int16(webhook.ReplayCompleted), age.Milliseconds())
		require.NoError(t, err)
	}
	gone, err := b.PruneReplays(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, gone)
	_, err = b.Replay(t.Context(), "acme", old.ID)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	for _, id := range []webhook.ReplayID{running.ID, ended.ID} {
		_, err = b.Replay(t.Context(), "acme", id)
		require.NoError(t, err)
	}
	rate, err = b.ReplayRate(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, rate.Running)
}
