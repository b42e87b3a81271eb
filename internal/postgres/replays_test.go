package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// rest records the delivery as ended in a state, after one attempt.
func (b *deliveryBundle) rest(t *testing.T, start webhook.Start, state webhook.State) webhook.Start {
	t.Helper()
	step := stepOf(start, 1, state)
	step.Attempts, step.RunAttempts, step.Attempt = 1, 1, attemptOf(1, 1, 400)
	step.Attempt.Latency = 0 // it ends now
	if state == webhook.StateDeadLettered {
		step.Reason = "http_400"
	}
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	return start
}

func (b *deliveryBundle) deadLetters(t *testing.T, n int) (ids []webhook.DeliveryID) {
	t.Helper()
	for range n {
		ids = append(ids, b.rest(t, b.accept(t), webhook.StateDeadLettered).DeliveryID)
	}
	slices.SortFunc(ids, func(a, b webhook.DeliveryID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

func (b *deliveryBundle) replay(t *testing.T, r webhook.Replay) webhook.Replay {
	t.Helper()
	r.TenantID = "acme"
	if r.Source == 0 {
		r.Source = webhook.ReplayDeadLetters
	}
	if r.Asked == 0 {
		r.Asked = 100
	}
	made, err := b.CreateReplay(t.Context(), testActor(), r)
	require.NoError(t, err)
	return made
}

func (b *deliveryBundle) release(t *testing.T, r webhook.Replay, seq int64, limit int) webhook.ReplayStatus {
	t.Helper()
	st, err := b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: r.ID, Seq: seq, Limit: limit, Now: time.Now()})
	require.NoError(t, err)
	return st
}

// left are the deliveries that the relay would take now, each in a run.
func (b *deliveryBundle) left(t *testing.T) map[webhook.DeliveryID]int {
	t.Helper()
	starts, err := b.TakeStarts(t.Context(), 1000)
	require.NoError(t, err)
	runs := map[webhook.DeliveryID]int{}
	for _, start := range starts {
		runs[start.DeliveryID] = start.Run
	}
	return runs
}

func audits(t *testing.T, s *stores, action string) int {
	t.Helper()
	return query[int](t, s, `select count(*)::int from audit_log where action = $1`, action)[0]
}

func TestReplayIsReadBack(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	b.deadLetters(t, 3)
	since := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	made := b.replay(t, webhook.Replay{Ramp: true, Asked: 250, Filter: webhook.ReplayFilter{
		EndpointID: b.endpoint.ID, EventType: "order.paid", Reason: "http_400", Status: 400, Since: since, Until: since.Add(2 * time.Hour),
	}})
	require.EqualValues(t, 3, *made.Total)
	require.Equal(t, webhook.ReplayRunning, made.State)
	require.WithinDuration(t, time.Now(), made.CreatedAt, time.Minute)
	require.Equal(t, 1, audits(t, b.stores, "replay.create"))

	read, err := b.Replay(t.Context(), "acme", made.ID)
	require.NoError(t, err)
	require.Equal(t, made, read)
	_, err = b.Replay(t.Context(), "other", made.ID)
	requireCode(t, webhook.CodeNotFound, err)

	second := b.replay(t, webhook.Replay{})
	list, err := b.ListReplays(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []webhook.Replay{second, made}, list)
	list, err = b.ListReplays(t.Context(), "acme", webhook.Page{Limit: 10, After: second.ID})
	require.NoError(t, err)
	require.Len(t, list, 1)

	wide := b.replay(t, webhook.Replay{
		Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: b.endpoint.ID, Since: since, IncludeUnmatched: true},
	})
	read, err = b.Replay(t.Context(), "acme", wide.ID)
	require.NoError(t, err)
	require.Equal(t, wide, read)
	require.Equal(t, []string{`{"source": "events", "endpoint_id": "` + b.endpoint.ID.String() + `", "include_unmatched": true}`},
		query[string](t, b.stores, `select detail::text from audit_log where subject = $1`, wide.ID.String()))
}

func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	_, err := b.CreateReplay(t.Context(), testActor(), webhook.Replay{TenantID: "nobody", Source: webhook.ReplayDeadLetters, Asked: 1})
	requireCode(t, webhook.CodeNotFound, err)
	unknown := webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Asked: 1, Filter: webhook.ReplayFilter{EndpointID: webhook.NewEndpointID()}}
	_, err = b.CreateReplay(t.Context(), testActor(), unknown)
	requireCode(t, webhook.CodeInvalid, err)
	require.ErrorContains(t, err, "endpoint_id: names an endpoint that does not exist")
	require.Zero(t, b.count(t, "replays"))
	require.Zero(t, audits(t, b.stores, "replay.create"))
}

func TestReplayCommandsByState(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	pause, resume, cancel, rate := webhook.ReplayCommand{Action: webhook.ReplayPause}, webhook.ReplayCommand{Action: webhook.ReplayResume},
		webhook.ReplayCommand{Action: webhook.ReplayCancel}, webhook.ReplayCommand{Rate: 7}
	for _, state := range webhook.ReplayStates() {
		for _, c := range []webhook.ReplayCommand{pause, resume, cancel, rate} {
			r := b.replay(t, webhook.Replay{})
			_, err := b.StepReplay(t.Context(), webhook.ReplayStep{ID: r.ID, Seq: 1, State: state, Asked: 100, Rate: 100})
			require.NoError(t, err)
			got, err := b.CommandReplay(t.Context(), testActor(), "acme", r.ID, c)
			if !state.Open() {
				requireCode(t, webhook.CodeConflict, err)
				require.Equal(t, state, got.State)
				continue
			}
			require.NoError(t, err)
			already := state == webhook.ReplayRunning && c == resume || state == webhook.ReplayPaused && c == pause
			require.Equal(t, !already, got.Command.Pending(), "%s when %s", c.Action, state)
			require.Equal(t, state, got.State, "only the workflow changes it")
			read, err := b.Replay(t.Context(), "acme", r.ID)
			require.NoError(t, err)
			require.Equal(t, got, read)
		}
	}
	_, err := b.CommandReplay(t.Context(), testActor(), "other", b.replay(t, webhook.Replay{}).ID, pause)
	requireCode(t, webhook.CodeNotFound, err)
}

// Commands that come together are one, which loses nothing.
func TestReplayCommandsTogether(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	r := b.replay(t, webhook.Replay{})
	b.ask(t, r, webhook.ReplayCommand{Action: webhook.ReplayPause})
	got := b.ask(t, r, webhook.ReplayCommand{Rate: 7})
	require.Equal(t, webhook.ReplayCommand{ID: 2, Action: webhook.ReplayPause, Rate: 7}, got.Command)
	require.Equal(t, []int{7, 100}, []int{got.Asked, got.Rate}, "asked for, and not in force yet")
	got = b.ask(t, r, webhook.ReplayCommand{Action: webhook.ReplayPause})
	require.EqualValues(t, 2, got.Command.ID, "repeated: nothing new")
	got = b.ask(t, r, webhook.ReplayCommand{Action: webhook.ReplayResume})
	require.Equal(t, webhook.ReplayCommand{ID: 3, Action: webhook.ReplayResume, Rate: 7}, got.Command)
	b.ask(t, r, webhook.ReplayCommand{Action: webhook.ReplayCancel})
	b.ask(t, r, webhook.ReplayCommand{Action: webhook.ReplayCancel})
	_, err := b.CommandReplay(t.Context(), testActor(), "acme", r.ID, webhook.ReplayCommand{Action: webhook.ReplayResume})
	requireCode(t, webhook.CodeConflict, err)
	for action, n := range map[string]int{"replay.pause": 1, "replay.set_rate": 1, "replay.resume": 1, "replay.cancel": 1} {
		require.Equal(t, n, audits(t, b.stores, action), action)
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

// R6: the record of a replay only moves forward, and stays ended.
func TestReplayStepsMoveForward(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	b.deadLetters(t, 2)
	r := b.replay(t, webhook.Replay{})
	b.release(t, r, 3, 1)
	step := webhook.ReplayStep{ID: r.ID, Seq: 3, State: webhook.ReplayPaused, Reason: "late", Asked: 1, Rate: 1}
	st, err := b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayRunning, st.State, "the batch was first")
	step.Seq, step.State, step.Reason = 4, webhook.ReplayCancelled, "enough"
	st, err = b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayCancelled, st.State)
	require.Zero(t, b.count(t, "replay_releases"), "nobody counts any more")
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
	requireCode(t, webhook.CodeNotFound, err)
	_, err = b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: unknown, Seq: 1, Limit: 1})
	requireCode(t, webhook.CodeNotFound, err)
	_, err = b.ReplayOutcomes(t.Context(), unknown, time.Now(), 1)
	requireCode(t, webhook.CodeNotFound, err)
}

// R7: whose workflow is to be looked after, and when.
func TestReplaysLeftBehind(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	r := b.replay(t, webhook.Replay{})
	in := func(d time.Duration) (left []webhook.Replay) {
		_, err := b.login.Exec(t.Context(), `update replays set relay_at = relay_at - $1::bigint * interval '1 millisecond'`, d.Milliseconds())
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
	left := in(relayAfter)
	require.Len(t, left, 1, "never at work")
	require.False(t, left[0].Started)
	require.Empty(t, in(0), "not handed out again for a while")

	_, err := b.ReplayOutcomes(t.Context(), r.ID, time.Now(), 1)
	require.NoError(t, err)
	require.Empty(t, in(relayAfter))
	left = in(replaySilence)
	require.Len(t, left, 1, "not heard of for long")
	require.True(t, left[0].Started)

	step(1, webhook.ReplayRunning, 0)
	b.ask(t, r, webhook.ReplayCommand{Action: webhook.ReplayPause})
	_, err = b.ReplayOutcomes(t.Context(), r.ID, time.Now(), 1)
	require.NoError(t, err)
	left = in(relayAfter)
	require.Len(t, left, 1, "a command is not answered, although its workflow is at work")
	require.Equal(t, webhook.ReplayPause, left[0].Command.Action)
	step(2, webhook.ReplayPaused, 1)
	require.Empty(t, in(24*time.Hour), "a paused one has nothing to say")
	b.ask(t, r, webhook.ReplayCommand{Rate: 7})
	require.Len(t, in(relayAfter), 1)
	step(3, webhook.ReplayCancelled, 1)
	require.Empty(t, in(24*time.Hour))
}

// Replays that have ended go when their retention has passed; what runs stays.
func TestReplaysArePruned(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	running, ended, old := b.replay(t, webhook.Replay{Source: webhook.ReplayHeld}), b.replay(t, webhook.Replay{Source: webhook.ReplayHeld}),
		b.replay(t, webhook.Replay{Source: webhook.ReplayHeld})
	n, perMinute, err := b.ReplayRate(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.EqualValues(t, running.Rate+ended.Rate+old.Rate, perMinute)
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
	n, _, err = b.ReplayRate(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
