package activities_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// sharedID is the workflow that makes attempts side by side in these tests.
const sharedID = "fanout/evt_1/aaaa"

// attemptsOf makes several attempts as a shared workflow does.
func (p *process) attemptsOf(t *testing.T, all ...activities.AttemptInput) []activities.MemberResult {
	t.Helper()
	env := p.environment()
	env.RegisterActivity(p.Attempts.Attempts)
	value, err := env.ExecuteLocalActivity(p.Attempts.Attempts, all)
	require.NoError(t, err, "it never fails")
	var result activities.AttemptsResult
	require.NoError(t, value.Get(&result))
	results, seen := result.Members, map[int]bool{}
	for _, fault := range result.Faults {
		for _, index := range fault.Of {
			results = append(results, activities.MemberResult{Index: index, Fault: fault.What})
		}
	}
	slices.SortFunc(results, func(a, b activities.MemberResult) int { return a.Index - b.Index })
	for i := range results {
		require.False(t, seen[results[i].Index], "each once")
		seen[results[i].Index] = true
	}
	return results
}

// sharing makes attempts those of a shared workflow.
func sharing(all ...activities.AttemptInput) []activities.AttemptInput {
	for i := range all {
		all[i].Shared = sharedID
	}
	return all
}

// panicking is a part that panics for one endpoint.
type panicking struct {
	activities.Targets

	on webhook.EndpointID
}

func (p panicking) Target(ctx context.Context, id webhook.EndpointID) (*webhook.Target, error) {
	if id == p.on {
		panic("canary-panic")
	}
	return p.Targets.Target(ctx, id)
}

// R8: a fault of one attempt does not affect the others, and deliveries that have ended are not in the result
// of what the history has to keep.
func TestAttemptsSideBySide(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all []activities.AttemptInput
	for range 6 {
		all = append(all, b.stored(t))
	}
	sharing(all...)
	faulty := webhook.NewEndpointID()
	p := b.process(t, func(c *activities.Config) { c.Targets = panicking{Targets: c.Targets, on: faulty} })
	b.Script(all[1].EventID.String(), receivertest.Step{Status: http.StatusServiceUnavailable})
	b.Script(all[2].EventID.String(), receivertest.Step{Status: http.StatusBadRequest})
	all[3] = b.to(t, all[3], faulty)
	all[4] = b.to(t, all[4], webhook.NewEndpointID()) // which there is not: deleted
	results := p.attemptsOf(t, all...)
	require.Len(t, results, 3)
	require.Equal(t, []int{1, 2, 3}, []int{results[0].Index, results[1].Index, results[2].Index})
	require.Equal(t, webhook.StateRetrying, results[0].State)
	require.Equal(t, "503", results[0].LastOutcome.String())
	require.Equal(t, sharedID, results[0].WorkflowID)
	require.Equal(t, webhook.StateDeadLettered, results[1].State)
	require.Equal(t, all[2].WorkflowID(all[2].Run), results[1].WorkflowID)
	require.Contains(t, results[2].Fault, "panic: a value of type string")
	require.NotContains(t, results[2].Fault+p.log.String(), "canary-panic")
	for _, n := range []int{0, 5} {
		require.Equal(t, webhook.StateDelivered, b.delivery(t, all[n]).State)
	}
	require.Equal(t, webhook.StateCancelled, b.delivery(t, all[4]).State)
	require.Equal(t, 4, b.Count())
}

// A panic while the claim of a request is written does not affect the others either.
func TestAttemptsPanicWhileTheyWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var store *claimPanics
	p := b.process(t, func(c *activities.Config) {
		slow(c)
		store = &claimPanics{Store: c.Store}
		c.Store = store
	})
	all := sharing(b.fresh(t, p), b.fresh(t, p))
	store.on = all[0].DeliveryID
	b.Hold()
	results := p.attemptsOf(t, all...)
	require.Len(t, results, 2)
	require.Contains(t, results[0].Fault, "panic: a value of type string")
	require.True(t, results[1].Running)
	b.Release()
	joined, err := p.await(all[0])
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, joined.State, "its request went on")
	require.Equal(t, 2, b.Count())
}

// What is not slow is not waited for and not claimed, however long another takes that began before.
func TestAttemptsOfWhichOneIsSlow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) { c.FastWait = 2 * time.Second })
	all := make([]activities.AttemptInput, 21)
	for i := range all {
		all[i] = b.fresh(t, p)
	}
	b.Script(all[0].EventID.String(), receivertest.Step{Hang: true})
	results := p.attemptsOf(t, sharing(all...)...)
	require.Len(t, results, 1)
	require.True(t, results[0].Running)
	require.Equal(t, 1, p.record.count())
}

// A panic in the admission affects one delivery only.
func TestAttemptsAdmissionPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := slowPanics{admission.New(admission.Config{}), webhook.NewEndpointID()}
	p := b.process(t, func(c *activities.Config) { c.Admission = g })
	all := sharing(b.stored(t), b.stored(t))
	all[0] = b.to(t, all[0], g.on)
	results := p.attemptsOf(t, all...)
	require.LessOrEqual(t, len(results), 1, "it goes on beside that, and may have found its endpoint gone")
	if len(results) == 1 {
		require.Contains(t, results[0].Fault, "panic: a value of type string")
	}
	require.Equal(t, webhook.StateDelivered, b.delivery(t, all[1]).State)
}

type slowPanics struct {
	activities.Admission

	on webhook.EndpointID
}

func (g slowPanics) LikelySlow(endpoint webhook.EndpointID) bool {
	if endpoint == g.on {
		panic("canary-panic")
	}
	return g.Admission.LikelySlow(endpoint)
}

type claimPanics struct {
	activities.Store

	on webhook.DeliveryID
}

func (c *claimPanics) Claim(ctx context.Context, claim webhook.Claim) (webhook.ClaimResult, error) {
	if claim.DeliveryID == c.on {
		panic("canary-panic")
	}
	return c.Store.Claim(ctx, claim)
}

// An internal fault of one delivery, which cannot be recorded or claimed.
func TestAttemptsOfWhichOneFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := sharing(b.stored(t), b.stored(t), b.stored(t))
	p := b.process(t, func(c *activities.Config) { c.Store = failsFor{c.Store, all[1].DeliveryID} })
	results := p.attemptsOf(t, all...)
	require.Len(t, results, 1)
	require.Equal(t, 1, results[0].Index)
	require.Contains(t, results[0].Fault, "the store is away")
	require.Equal(t, 2, b.Count())
	require.Equal(t, webhook.StateDelivered, b.delivery(t, all[0]).State)
	require.Equal(t, webhook.StateDelivered, b.delivery(t, all[2]).State)
}

type failsFor struct {
	activities.Store

	on webhook.DeliveryID
}

func (f failsFor) Claim(ctx context.Context, claim webhook.Claim) (webhook.ClaimResult, error) {
	if claim.DeliveryID == f.on {
		return webhook.ClaimResult{}, &webhook.Error{Code: webhook.CodeUnavailable, Message: "the store is away"}
	}
	return f.Store.Claim(ctx, claim)
}

// R8: the step of an attempt names the workflow that continues the delivery.
func TestAttemptNamesTheNextWorkflow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step  receivertest.Step
		state webhook.State
		own   bool
	}{
		"delivered":                         {state: webhook.StateDelivered},
		"soon":                              {step: again(2), state: webhook.StateRetrying},
		"not soon":                          {step: again(6 * 3600), state: webhook.StateRetrying},
		"given up":                          {step: receivertest.Step{Status: 400}, state: webhook.StateDeadLettered, own: true},
		"Retry-After past the give-up time": {step: again(900_000), state: webhook.StateRetrying},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.process(t, nil)
			for _, in := range []activities.AttemptInput{b.stored(t), b.fresh(t, p)} {
				b.Script(in.EventID.String(), c.step)
				in.Shared = sharedID
				got, err := p.attempt(in)
				require.NoError(t, err)
				require.Equal(t, c.state, got.State)
				want := sharedID
				if c.own {
					want = in.WorkflowID(in.Run)
				}
				require.Equal(t, want, got.WorkflowID)
				require.Equal(t, want, b.delivery(t, in).WorkflowID)
			}
		})
	}
}

func again(seconds int) receivertest.Step {
	return receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": strconv.Itoa(seconds)}}
}

// A delivery that waits for its endpoint is held as a row. If it is given up, it has its own workflow.
func TestHeldHasNoWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	_, err := b.store.Endpoints.UpdateEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.State = webhook.EndpointPaused
		return nil
	})
	require.NoError(t, err)
	in := sharing(b.stored(t))[0]
	require.Empty(t, p.attemptsOf(t, in), "the shared workflow need not know")
	held := b.delivery(t, in)
	require.Equal(t, webhook.StateHeld, held.State)
	require.Equal(t, webhook.ReasonPaused, held.Reason)
	require.Empty(t, held.WorkflowID)
	require.Zero(t, held.DueAt)

	cancel := webhook.PendingCommand{Command: webhook.CommandCancel}
	_, command, err := b.store.Deliveries.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, in.DeliveryID, cancel)
	require.NoError(t, err)
	in.Progress = held.Progress
	results := p.attemptsOf(t, in)
	require.Len(t, results, 1, "a command has to be carried out")
	require.Equal(t, command.ID, results[0].Command.ID)

	late := sharing(b.stored(t))[0]
	late.GiveUpAt = time.Now().Add(-time.Second)
	got, err := p.attempt(late)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDeadLettered, got.State)
	require.Equal(t, webhook.ReasonHeldExpired, got.Reason)
	require.Equal(t, late.WorkflowID(late.Run), got.WorkflowID)
	require.Zero(t, b.Count())
}

// R8: attempts that are requested together, a little early, are sent each at its own time.
func TestAttemptsWaitForTheirTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) { c.FastWait = 5 * time.Second })
	const n = 5
	all := make([]activities.AttemptInput, n)
	now := time.Now()
	for i := range all {
		all[i] = b.stored(t)
		all[i].State, all[i].DueAt = webhook.StateRetrying, now.Add(200*time.Millisecond*time.Duration(i))
	}
	require.Empty(t, p.attemptsOf(t, sharing(all...)...))
	for _, in := range all {
		attempts := b.attempts(t, in)
		require.Len(t, attempts, 1)
		require.GreaterOrEqual(t, attempts[0].StartedAt, in.DueAt.Add(-time.Millisecond), "not before its time")
		require.Less(t, attempts[0].StartedAt.Sub(in.DueAt), 5*time.Second)
	}
}

// An attempt that waits for its time leaves room for the receiver's: the fast wait
// counts from its due time. And it is not waited for longer than it may be early.
func TestEarlyAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, slow) // 50 ms
	in := b.stored(t)
	in.DueAt = time.Now().Add(500 * time.Millisecond)
	got, err := p.attempt(in)
	require.NoError(t, err)
	if got.Running {
		got, err = p.await(in)
		require.NoError(t, err)
	}
	require.Equal(t, webhook.StateDelivered, got.State)
	require.GreaterOrEqual(t, b.attempts(t, in)[0].StartedAt, in.DueAt.Add(-time.Millisecond))

	p = b.process(t, nil)
	in = b.stored(t)
	in.DueAt = time.Now().Add(time.Hour) // it waits no longer than an attempt may be early
	begun := time.Now()
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.WithinRange(t, b.attempts(t, in)[0].StartedAt, begun.Add(activities.MaxEarly-time.Millisecond), begun.Add(time.Minute))
}

// R11: an attempt that waits for its time when the process stops sends nothing.
func TestEarlyAttemptWhileTheProcessStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	looked := make(chan struct{}, 100)
	p := b.process(t, func(c *activities.Config) {
		c.Now = func() time.Time { looked <- struct{}{}; return now }
	})
	in := b.stored(t)
	in.DueAt = now.Add(activities.MaxEarly)
	done := later(func() (activities.AttemptResult, error) { return p.attempt(in) })
	for range 2 { // for how long to wait for it, and for how long it has to wait
		<-looked
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	p.Attempts.Stop(over)
	require.ErrorContains(t, (<-done).err, "this process is stopping")
	require.Zero(t, b.Count())
	require.Empty(t, b.attempts(t, in))
}
