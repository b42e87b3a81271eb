package workflows_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/worker"
	"github.com/everpost/everpost/workflows"
)

// replaying is a replay's workflow through all the runs it continues as, with skipped
// time, on the real store. In place of the engine and a receiver it attempts what was
// released at once, and records the outcome.
type replaying struct {
	*replays.Replays

	t      stopper
	b      *bundle
	set    []webhook.DeliveryID // the dead letters, in the order of their ids
	replay webhook.Replay
	input  workflows.ReplayInput
	runs   int
	now    time.Time
	over   bool
	env    *testsuite.TestWorkflowEnvironment

	mu       sync.Mutex
	succeeds func(n int) bool            // whether the first attempt of the nth released is
	holds    bool                        // what is released is not attempted
	fail     func(what string) error     // called before each call of the store; an error is returned by the call
	lose     func(what string) error     // the same, after it was carried out
	released []webhook.DeliveryID        // in the order of being released
	at       []time.Time                 // when each was
	rates    []int                       // that were in force, without repetitions
	states   []webhook.ReplayState       // likewise
	held     map[webhook.DeliveryID]bool // what holds has kept back
}

// seed stores dead letters of the endpoint and returns them in the order of their ids.
func (b *bundle) seed(t require.TestingT, n int) (ids []webhook.DeliveryID) {
	var events, deliveries [][16]byte
	for range n {
		event := webhook.NewEventID()
		id := webhook.DeliveryIDOf(event, b.endpoint.ID)
		events, deliveries, ids = append(events, event), append(deliveries, id), append(ids, id)
	}
	b.exec(t, `
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
		select id, $2, 'order.paid', '{}', sha256('{}'), array[$3::uuid], now() - interval '1 minute' from unnest($1::uuid[]) id`,
		events, tenant, b.endpoint.ID)
	b.exec(t, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, attempts, give_up_at, completed_at)
		select u.id, u.event, $3, $4, 'order.paid', now() - interval '1 minute', 1, 1, 4, 'http_400', 1, now(), now() - interval '30 seconds'
		from unnest($1::uuid[], $2::uuid[]) u (id, event)`, deliveries, events, b.endpoint.ID, tenant)
	slices.SortFunc(ids, func(a, b webhook.DeliveryID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// replayOf makes a replay of n dead letters.
func (b *bundle) replayOf(t stopper, n int, wanted webhook.Replay) *replaying {
	r := &replaying{
		Replays: b.store.Replays, t: t, b: b, set: b.seed(t, n), now: time.Now().UTC(), held: map[webhook.DeliveryID]bool{},
		succeeds: func(int) bool { return true }, fail: func(string) error { return nil }, lose: func(string) error { return nil },
	}
	wanted.TenantID, wanted.Source, wanted.Filter.EndpointID = tenant, webhook.ReplayDeadLetters, b.endpoint.ID
	if wanted.Asked == 0 {
		wanted.Asked = 100
	}
	var err error
	r.replay, err = b.store.Replays.CreateReplay(context.Background(), webhook.Actor{Name: "test"}, wanted)
	require.NoError(t, err)
	r.input.ReplayID = r.replay.ID
	return r
}

func (r *replaying) ReleaseReplay(ctx context.Context, b webhook.ReplayBatch) (webhook.ReplayStatus, error) {
	st, err := r.call("release", func() (webhook.ReplayStatus, error) { return r.Replays.ReleaseReplay(ctx, b) })
	r.attempt()
	return st, err
}

func (r *replaying) ReplayOutcomes(ctx context.Context, id webhook.ReplayID, now time.Time, limit int) (webhook.ReplayStatus, error) {
	return r.call("count", func() (webhook.ReplayStatus, error) { return r.Replays.ReplayOutcomes(ctx, id, now, limit) })
}

func (r *replaying) StepReplay(ctx context.Context, step webhook.ReplayStep) (webhook.ReplayStatus, error) {
	return r.call("step", func() (webhook.ReplayStatus, error) { return r.Replays.StepReplay(ctx, step) })
}

// let changes fail or lose, also while the replay runs.
func (r *replaying) let(hook *func(string) error, to func(string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*hook = to
}

// answer changes which first attempts succeed, by their number, also while the replay runs.
func (r *replaying) answer(to func(int) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.succeeds = to
}

func (r *replaying) call(what string, do func() (webhook.ReplayStatus, error)) (webhook.ReplayStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail(what); err != nil {
		return webhook.ReplayStatus{}, err
	}
	st, err := do()
	if err != nil {
		return st, err
	}
	if len(r.rates) == 0 || r.rates[len(r.rates)-1] != st.Rate {
		r.rates = append(r.rates, st.Rate)
	}
	if len(r.states) == 0 || r.states[len(r.states)-1] != st.State {
		r.states = append(r.states, st.State)
	}
	if err := r.lose(what); err != nil {
		return webhook.ReplayStatus{}, err
	}
	return st, nil
}

// attempt makes the first attempts of what was released.
func (r *replaying) attempt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts, err := r.b.store.Outbox.TakeStarts(context.Background(), "test", 10_000)
	require.NoError(r.t, err)
	for _, start := range starts {
		if r.held[start.DeliveryID] {
			continue
		}
		r.released, r.at = append(r.released, start.DeliveryID), append(r.at, r.env.Now())
		if r.held[start.DeliveryID] = r.holds; r.holds {
			continue
		}
		step := webhook.Step{Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, Seq: 1, Attempts: start.Run, RunAttempts: 1, GiveUpAt: start.GiveUpAt}}
		step.Attempt = &webhook.Attempt{Number: start.Run, Run: start.Run, StartedAt: r.env.Now()}
		if r.succeeds(len(r.released)) {
			step.State, step.Attempt.Outcome.Decision = webhook.StateDelivered, retry.Delivered
		} else {
			step.State, step.Attempt.Outcome.Decision = webhook.StateDeadLettered, retry.Permanent
		}
		_, err := r.b.store.Deliveries.RecordStep(context.Background(), step)
		require.NoError(r.t, err)
	}
}

// run makes one run, after the script has had its environment.
func (r *replaying) run(script ...func(environment)) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	r.env = suite.NewTestWorkflowEnvironment()
	r.env.SetStartTime(r.now)
	r.env.SetTestTimeout(time.Minute)
	own := activities.New(activities.Config{Replays: r, Audit: r.b.store.Audit, Logger: slog.New(slog.DiscardHandler), Now: r.env.Now})
	defer own.Attempts.Stop(context.Background())
	worker.Register(r.env, own)
	for _, s := range script {
		s(r.env)
	}
	require.False(r.t, r.over, "the workflow has ended")
	r.runs++
	r.env.ExecuteWorkflow(workflows.ReplayWorkflow, r.input)
	require.True(r.t, r.env.IsWorkflowCompleted())
	r.now = r.env.Now()
	err := r.env.GetWorkflowError()
	if again, ok := errors.AsType[*workflow.ContinueAsNewError](err); ok {
		require.Equal(r.t, "ReplayWorkflow", again.WorkflowType.Name)
		r.input = decode[workflows.ReplayInput](r.t, again)
		return
	}
	require.NoError(r.t, err)
	r.over = true
}

// ends requires that the replay is over, in this state of the store.
func (r *replaying) ends(state webhook.ReplayState, reason string) webhook.Replay {
	require.True(r.t, r.over, "the workflow goes on")
	now := r.read()
	require.Equal(r.t, state, now.State)
	require.Equal(r.t, reason, now.StateReason)
	require.False(r.t, now.CompletedAt.IsZero())
	require.False(r.t, now.Command.Pending())
	return now
}

func (r *replaying) read() webhook.Replay {
	now, err := r.Replay(context.Background(), tenant, r.replay.ID)
	require.NoError(r.t, err)
	return now
}

// command stores a command as the API does, and returns the signal for it.
func (r *replaying) command(c webhook.ReplayCommand) (name string, asked workflows.ReplaySignal) {
	name, asked, taken := r.tryCommand(c)
	require.True(r.t, taken, "%s was refused", c.Action)
	return name, asked
}

// tryCommand does the same, and returns false if the replay's state does not allow it.
func (r *replaying) tryCommand(c webhook.ReplayCommand) (name string, asked workflows.ReplaySignal, taken bool) {
	now, err := r.CommandReplay(context.Background(), webhook.Actor{Name: "test"}, tenant, r.replay.ID, c)
	if webhook.CodeOf(err) == webhook.CodeConflict {
		return "", asked, false
	}
	require.NoError(r.t, err)
	return signalOf(c), workflows.ReplaySignal{CommandID: now.Command.ID}, true
}

// signalOf is the signal that brings a command.
func signalOf(c webhook.ReplayCommand) string {
	return map[webhook.ReplayAction]string{
		webhook.ReplayPause: workflows.SignalPause, webhook.ReplayResume: workflows.SignalResume, webhook.ReplayCancel: workflows.SignalCancel,
		webhook.ReplayKeep: workflows.SignalSetRate,
	}[c.Action]
}

// seconds are the seconds after the first release at which the others were made.
func (r *replaying) seconds() (all []int) {
	for _, at := range r.at {
		all = append(all, int(at.Sub(r.at[0]).Round(time.Second).Seconds()))
	}
	return all
}

// perMinute is how many were released in each minute after the first.
func (r *replaying) perMinute() (all []int) {
	for _, at := range r.at {
		minute := int(at.Sub(r.at[0]) / time.Minute)
		for len(all) <= minute {
			all = append(all, 0)
		}
		all[minute]++
	}
	return all
}

func (r *replaying) status() workflows.ReplayStatus {
	answer, err := r.env.QueryWorkflow(workflows.QueryStatus)
	require.NoError(r.t, err)
	var status workflows.ReplayStatus
	require.NoError(r.t, answer.Get(&status))
	return status
}

func (r *replaying) details() string {
	answer, err := r.env.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(r.t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(r.t, answer.Get(&metadata))
	return metadata.GetCurrentDetails()
}

// setupReplay is a bundle whose endpoint takes so many requests a second.
func setupReplay(t *testing.T, perSecond float64) *bundle {
	t.Helper()
	b := setup(t, "default")
	b.exec(t, `update endpoints set rate_limit = $1`, perSecond)
	return b
}
