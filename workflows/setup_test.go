package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/worker"
	"github.com/everpost/everpost/workflows"
)

// keep is how long dead letters are kept in these tests.
const keep = 30 * 24 * time.Hour

// life is one delivery's workflow through all the runs it continues as. Time is
// skipped; the activities are the real ones and see the skipped time.
type life struct {
	behind     time.Duration // of the activities' clock
	t          require.TestingT
	b          *bundle
	start      webhook.Start
	activities *activities.Activities

	next       string // the type of the run to come; "" when the last one has ended
	input      any
	id         string  // of a shared workflow; a delivery's own does not ask for its own
	keepers    keepers // of the dead letters of a shared workflow
	controller *admission.Controller
	now        time.Time
	env        atomic.Pointer[testsuite.TestWorkflowEnvironment] // of the run under way, or the last one
	states     []string                                          // what the search attribute was set to
	timers     []time.Duration                                   // of the latest run
}

// stopper is a test or a rapid check.
type stopper interface {
	require.TestingT
	Cleanup(f func())
}

// begin returns a delivery that is about to be started. fastWait is how long a workflow task waits for the receiver: an hour in tests that
// are not about it.
func (b *bundle) begin(t stopper, start webhook.Start, fastWait time.Duration) *life {
	return b.beginIn(t, "this process", start, fastWait)
}

// beginIn is begin in a process of that name.
func (b *bundle) beginIn(t stopper, process string, start webhook.Start, fastWait time.Duration) *life {
	l := &life{t: t, b: b, start: start, next: "DeliveryWorkflow", now: time.Now().UTC()}
	l.input = workflows.InputOf(start)
	config := activities.Config{
		Admission: admitAll{admission.New(admission.Config{})},
		Store:     b.record, History: b.store.Deliveries, Targets: b.store.Endpoints.Cache(), Fresh: noFresh{}, Sender: b.sender,
		DeadLetters: &l.keepers,
		Audit:       b.store.Audit, Logger: slog.New(slog.DiscardHandler), Claimant: process, FastWait: fastWait, KeepDeadLetters: keep,
		Now: func() time.Time { return l.env.Load().Now().Add(-l.behind) },
	}
	if b.guarded != nil {
		running := runningClock{skipped: l.clock}
		b.guarded.Now, config.Now = running.now, running.now
		l.controller = admission.New(*b.guarded)
		config.Admission = withoutEager{l.controller}
	}
	if b.change != nil {
		b.change(l, &config)
	}
	l.activities = activities.New(config)
	skipped := func() time.Duration {
		if env := l.env.Load(); env != nil {
			return time.Until(env.Now())
		}
		return 0
	}
	b.record.skipped.Store(&skipped)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		l.activities.Attempts.Stop(ctx)
	})
	return l
}

// clock is the skipped time.
func (l *life) clock() time.Time {
	if env := l.env.Load(); env != nil {
		return env.Now()
	}
	return l.now
}

// runningClock is the skipped time. It advances in real time while an activity runs, when skipped time does not.
type runningClock struct {
	skipped func() time.Time

	mu     sync.Mutex
	last   time.Time // of the skipped time
	passed time.Time // when it was that, by the wall's clock
	told   time.Time
}

func (c *runningClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.skipped(); !now.Equal(c.last) {
		c.last, c.passed = now, time.Now()
	}
	if now := c.last.Add(time.Since(c.passed)); now.After(c.told) {
		c.told = now
	}
	return c.told
}

// admitAll admits every request: each is that of an endpoint of its own.
type admitAll struct{ *admission.Controller }

func (a admitAll) Acquire(ctx context.Context, r admission.Request) admission.Decision {
	r.Endpoint = webhook.NewEndpointID()
	return a.Controller.Acquire(ctx, r)
}

// withoutEager admits no eager request: each attempt is made by a workflow.
type withoutEager struct{ *admission.Controller }

func (withoutEager) TryAcquire(admission.Request) *admission.Permit { return nil }

// deliver accepts an event now and begins its delivery.
func (b *bundle) deliver(t *testing.T) *life {
	t.Helper()
	return b.begin(t, b.accept(t, time.Time{}), time.Hour)
}

// prepare makes the environment of the next run.
func (l *life) prepare() *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartTime(l.now)
	env.SetTestTimeout(time.Minute)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: l.workflowID(), TaskQueue: "everpost"})
	worker.Register(env, l.activities)
	l.timers = nil
	env.SetOnTimerScheduledListener(func(_ string, d time.Duration) { l.timers = append(l.timers, d) })
	env.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
		attributes, ok := args.Get(0).(temporal.SearchAttributes)
		require.True(l.t, ok)
		state, _ := attributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword(workflows.AttributeDeliveryState))
		l.states = append(l.states, state) // "": it was cleared
	}).Return(nil).Maybe()
	l.env.Store(env)
	return env
}

// workflowID is the id of the next run.
func (l *life) workflowID() string {
	switch in := l.input.(type) {
	case workflows.DeliveryInput:
		if l.id == "" {
			return in.Members[0].WorkflowID(in.Members[0].Run)
		}
	case workflows.DeadLetterInput:
		if !strings.HasPrefix(l.id, webhook.DeadLettersPrefix) {
			return in.DeadLetters[0].WorkflowID(in.DeadLetters[0].Run)
		}
	}
	return l.id
}

// run executes one run of the workflow; the script may prepare the environment. Afterwards l.next is the type as which it continues, and
// l.input the input of that.
func (l *life) run(script ...func(*testsuite.TestWorkflowEnvironment)) {
	env := l.prepare()
	for _, s := range script {
		s(env)
	}
	require.NotEmpty(l.t, l.next, "the workflow has ended")
	env.ExecuteWorkflow(l.next, l.input)
	require.True(l.t, env.IsWorkflowCompleted())
	l.now = env.Now()
	err := env.GetWorkflowError()
	var again *workflow.ContinueAsNewError
	if !errors.As(err, &again) {
		require.NoError(l.t, err)
		l.next, l.input = "", nil
		return
	}
	l.next = again.WorkflowType.Name
	switch l.next {
	case "DeliveryWorkflow":
		l.input = decode[workflows.DeliveryInput](l.t, again)
	case "DeadLetterWorkflow":
		l.input = decode[workflows.DeadLetterInput](l.t, again)
	default:
		require.Fail(l.t, "an unknown workflow", l.next)
	}
}

func decode[T any](t require.TestingT, again *workflow.ContinueAsNewError) T {
	var input T
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &input))
	return input
}

// ends requires that the life is over, in this state of the store.
func (l *life) ends(state webhook.State, reason string) webhook.Delivery {
	require.Empty(l.t, l.next, "the workflow goes on")
	d := l.b.delivery(l.t, l.start.DeliveryID)
	require.Equal(l.t, state, d.State)
	require.Equal(l.t, reason, d.Reason)
	require.False(l.t, d.CompletedAt.IsZero())
	return d
}

// deadLettered requires that the delivery has become a dead letter.
func (l *life) deadLettered(reason string) *workflows.DeadLetter {
	in := l.dead()
	d := l.b.delivery(l.t, l.start.DeliveryID)
	require.Equal(l.t, webhook.StateDeadLettered, d.State, "the store knows before the workflow continues")
	require.Equal(l.t, reason, d.Reason)
	require.Equal(l.t, l.start.Ref, in.Ref)
	require.Equal(l.t, d.Progress, in.Progress)
	return in
}

// dead is the only dead letter of the next workflow.
func (l *life) dead() *workflows.DeadLetter {
	require.Equal(l.t, "DeadLetterWorkflow", l.next)
	in, ok := l.input.(workflows.DeadLetterInput)
	require.True(l.t, ok)
	require.Len(l.t, in.DeadLetters, 1)
	return in.DeadLetters[0]
}

// openedRun is what Everpost signals to the workflow of the dead letter when it has opened a run.
func (l *life) openedRun(run int) workflows.CommandSignal {
	return workflows.CommandSignal{Opened: []workflows.OpenedRun{{DeliveryID: l.start.DeliveryID, Run: run, WorkflowID: l.start.Ref.WorkflowID(run)}}}
}

// after lets something happen a while after the start of the run.
func after(d time.Duration, do func(*testsuite.TestWorkflowEnvironment)) func(*testsuite.TestWorkflowEnvironment) {
	return func(env *testsuite.TestWorkflowEnvironment) { env.RegisterDelayedCallback(func() { do(env) }, d) }
}

// signal sends one, with the input as it is.
func signal(name string, input any) func(*testsuite.TestWorkflowEnvironment) {
	return func(env *testsuite.TestWorkflowEnvironment) { env.SignalWorkflow(name, input) }
}

// attempted waits until so many attempts are recorded: on a busy machine the last one may
// still be under way when the skipped time is past it.
func (l *life) attempted(n int) {
	require.Eventually(l.t, func() bool { return l.b.delivery(l.t, l.start.DeliveryID).Attempts == n }, 20*time.Second, time.Millisecond)
}

// status queries the run of a workflow of one delivery, which is under way.
func (l *life) status() workflows.Status {
	all := l.statuses()
	require.Len(l.t, all, 1)
	return all[0]
}

// member is the only delivery with which the next run begins.
func (l *life) member() *workflows.Member {
	in, ok := l.input.(workflows.DeliveryInput)
	require.True(l.t, ok)
	require.Len(l.t, in.Members, 1)
	return in.Members[0]
}

// statuses queries the run of a workflow of several deliveries.
func (l *life) statuses() (all []workflows.Status) {
	l.query(&all)
	return all
}

func (l *life) query(status any) {
	answer, err := l.env.Load().QueryWorkflow(workflows.QueryStatus)
	require.NoError(l.t, err)
	require.NoError(l.t, answer.Get(status))
}

// details are what the Web UI shows of the run.
func (l *life) details() string {
	answer, err := l.env.Load().QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(l.t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(l.t, answer.Get(&metadata))
	return metadata.GetCurrentDetails()
}

// The types of the environment's listeners.
type (
	activityInfo = activity.Info
	contextOf    = context.Context
)
