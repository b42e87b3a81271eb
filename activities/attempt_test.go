package activities_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

// R2: an attempt with a fresh token is sent without a claim, once.
func TestFreshTokenSendsWithoutAClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, other := b.process(t, nil), b.process(t, nil)
	in := b.fresh(t, p)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 1, got.Attempts)
	require.Equal(t, "200", got.LastOutcome.String())
	require.Zero(t, p.record.count(), "the store was not used")
	_, again := p.fresh.Take(in.Ref)
	require.False(t, again, "a token is taken once")

	// Without the token and the memo, the store knows it.
	known, err := other.attempt(in)
	require.NoError(t, err)
	require.Equal(t, got.Progress, known.Progress)
	require.Equal(t, 1, other.record.count())
	require.Equal(t, 1, b.Count())
}

// R2: without a token an attempt needs a claim, also a first one.
func TestWithoutTokenClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	in := b.stored(t)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 1, p.record.count())
	require.JSONEq(t, payload, string(b.Requests()[0].Body))
}

// R2: the token is for the first attempt of the first run only.
func TestTokenIsForTheFirstAttemptOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	in := b.fresh(t, p)
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.WorkflowID(in.Run)}
	step.Seq = 1
	status, err := b.store.Deliveries.RecordStep(t.Context(), step)
	require.NoError(t, err)
	in.Progress = status.Progress
	_, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, 1, p.record.count(), "a step was recorded, so another process may have sent it")
}

// R3: an activity that runs again, concurrently or later, gets the outcome
// and not a second request.
func TestAttemptThatRunsAgainSendsOnce(t *testing.T) {
	t.Parallel()
	for _, withToken := range []bool{true, false} {
		b := setup(t)
		p := b.process(t, nil)
		in := b.stored(t)
		if withToken {
			in = b.fresh(t, p)
		}
		b.Script("/hook", receivertest.Step{Status: 503}, receivertest.Step{Status: 200})
		b.Hold()
		var all []<-chan outcome
		for range 8 {
			all = append(all, later(func() (activities.AttemptResult, error) { return p.attempt(in) }))
		}
		require.NoError(t, b.WaitHeld(t.Context(), 1))
		b.Release()
		first := <-all[0]
		require.NoError(t, first.err)
		require.Equal(t, webhook.StateRetrying, first.result.State)
		for _, one := range all[1:] {
			require.Equal(t, first, <-one)
		}
		again, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, first.result, again)
		require.Equal(t, 1, b.Count())

		// The next attempt is another one.
		in.Progress = again.Progress
		next, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.StateDelivered, next.State)
		require.Equal(t, 2, next.Attempts)
		require.Equal(t, 2, b.Count())
	}
}

// What the receiver did, and what becomes of the delivery; the whole table of
// answers is retry's, that of faults egress's.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step     receivertest.Step
		stop     bool
		state    webhook.State
		reason   string // of the attempt
		response string
	}{
		"delivered": {step: receivertest.Step{Status: 204}, state: webhook.StateDelivered, reason: "delivered", response: "204"},
		"busy": {
			step:  receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "3600"}},
			state: webhook.StateRetrying, reason: "http_503", response: "503, Retry-After 1h",
		},
		"refused":     {step: receivertest.Step{Status: 410}, state: webhook.StateDeadLettered, reason: "http_410", response: "410"},
		"no answer":   {step: receivertest.Step{Drop: true}, state: webhook.StateRetrying, reason: "unexpected_eof", response: "unexpected_eof"},
		"not running": {stop: true, state: webhook.StateRetrying, reason: "connect_refused", response: "connect_refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.process(t, nil)
			in := b.stored(t)
			b.Script("/hook", c.step)
			if c.stop {
				b.Stop()
			}
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, c.state.String(), got.State.String())
			require.Equal(t, c.response, got.LastOutcome.String())
			require.Equal(t, 1, got.Seq)
			require.Equal(t, 1, got.RunAttempts)

			require.Equal(t, got.Progress, b.delivery(t, in).Progress)
			attempt := b.attempts(t, in)[0]
			require.Equal(t, c.reason, string(attempt.Outcome.Reason))
			require.Equal(t, 1, attempt.Number)
			if c.state == webhook.StateRetrying {
				require.Equal(t, got.Delay, attempt.Delay)
				require.WithinDuration(t, attempt.StartedAt.Add(attempt.Latency).Add(got.Delay), got.DueAt, time.Millisecond)
				require.GreaterOrEqual(t, got.Delay, attempt.Outcome.RetryAfter)
			} else {
				require.Zero(t, got.DueAt)
			}
		})
	}
}

// A redirect is never followed. It ends the delivery, or is its success where the endpoint says so; both name the target.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for accepted, want := range map[bool]webhook.State{false: webhook.StateDeadLettered, true: webhook.StateDelivered} {
		b := setup(t)
		p := b.process(t, nil)
		if accepted {
			b.update(t, func(e *webhook.Endpoint) { e.SuccessStatuses = []int{302} })
		}
		in := b.stored(t)
		b.Script("/hook", receivertest.Step{
			Status: 302, Header: map[string]string{"Location": "https://elsewhere.example/echo?user_content_key=canary"},
		}, receivertest.Step{Status: 303, Header: map[string]string{"Location": "/hook"}})
		got, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, want.String(), got.State.String())
		require.Equal(t, "302", got.LastOutcome.String())
		require.Equal(t, "redirect: https://elsewhere.example/echo", b.attempts(t, in)[0].Error)
		require.Equal(t, 1, b.Count())

		got, err = p.attempt(b.stored(t))
		require.NoError(t, err)
		require.Equal(t, webhook.StateDeadLettered.String(), got.State.String(), "another redirect")
	}
}

// The request is signed for its attempt, and what the store shows of it holds no
// credentials.
func TestRequestAndWhatIsShownOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	in := b.stored(t)
	_, err := p.attempt(in)
	require.NoError(t, err)
	sent := b.Requests()[0]
	require.NoError(t, sent.Verify(secret))
	require.Equal(t, payload, string(sent.Body))
	for name, want := range map[string]string{
		"X-Api-Key": "canary-header", "Content-Type": "application/json", signature.HeaderID: in.EventID.String(),
		"everpost-attempt": "1", "everpost-event-type": "order.paid", "everpost-delivery-id": in.DeliveryID.String(),
	} {
		require.Equal(t, want, sent.Header.Get(name), name)
	}
	require.Equal(t, map[string]string{
		"X-Api-Key": "[redacted]", "Accept": "*/*", "Content-Type": "application/json", "webhook-id": in.EventID.String(),
		"webhook-timestamp": sent.Header.Get("webhook-timestamp"), "webhook-signature": sent.Header.Get("webhook-signature"),
		"everpost-attempt": "1", "everpost-event-type": "order.paid", "everpost-delivery-id": in.DeliveryID.String(),
	}, b.attempts(t, in)[0].RequestHeaders)
}

// Nothing is sent, and the store says why.
func TestEndsWithoutRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*testing.T, *bundle, *activities.AttemptInput)
		state  webhook.State
		reason string
	}{
		"endpoint deleted": {func(t *testing.T, b *bundle, _ *activities.AttemptInput) {
			t.Helper()
			require.NoError(t, b.store.Endpoints.DeleteEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID))
		}, webhook.StateCancelled, webhook.ReasonEndpointDeleted},
		"give-up time passed": {func(_ *testing.T, _ *bundle, in *activities.AttemptInput) {
			in.GiveUpAt = time.Now().Add(-time.Second).UTC().Truncate(time.Microsecond)
		}, webhook.StateDeadLettered, string(retry.ReasonGiveUpTime)},
		"payload corrupt": {func(t *testing.T, b *bundle, in *activities.AttemptInput) {
			t.Helper()
			b.execute(t, `update events set payload = 'tampered' where id = $1`, in.EventID)
		}, webhook.StateDeadLettered, string(retry.ReasonPayloadCorrupt)},
		"payload removed": {func(t *testing.T, b *bundle, in *activities.AttemptInput) {
			t.Helper()
			b.execute(t, `delete from events where id = $1`, in.EventID)
		}, webhook.StateDeadLettered, string(retry.ReasonPayloadRemoved)},
		"payload erased": {func(t *testing.T, b *bundle, in *activities.AttemptInput) {
			t.Helper()
			b.execute(t, `update events set payload = '', payload_sha256 = '', payload_removed_at = now() where id = $1`, in.EventID)
		}, webhook.StateDeadLettered, string(retry.ReasonPayloadRemoved)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.process(t, nil)
			in := b.stored(t)
			c.spoil(t, b, &in)
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, c.state.String(), got.State.String())
			require.Equal(t, c.reason, got.Reason)
			require.Zero(t, got.Attempts)
			require.Equal(t, got.Progress, b.delivery(t, in).Progress)
			require.Empty(t, b.attempts(t, in))
			require.Zero(t, b.Count())
		})
	}
}

// R7: a pending cancel is found with the claim; nothing is sent, and the workflow
// writes the end.
func TestPendingCancelSendsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	in := b.stored(t)
	_, command, err := b.store.Deliveries.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, in.DeliveryID,
		webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "sold out"})
	require.NoError(t, err)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, in.Progress, got.Progress)
	require.Equal(t, webhook.CommandCancel, got.Command.Command)
	require.Equal(t, command.ID, got.Command.ID)
	require.Equal(t, "sold out", got.Command.Reason)
	require.Zero(t, b.Count())

	// A workflow that has handled the command has the attempt made.
	in.CommandDone = command.ID
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Zero(t, got.Command)
}

// An event that is to be delivered later is recorded as waiting, and sent when its
// time has come: what is remembered of the first try must not stand in its way.
func TestDeliverAtWaitsAndIsSentThen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	clock := &clock{now: time.Now()}
	p := b.process(t, func(c *activities.Config) { c.Now = clock.Now })
	in := b.stored(t)
	in.NotBefore = clock.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StatePending, got.State)
	require.Equal(t, in.NotBefore, got.DueAt)
	require.Equal(t, 1, got.Seq)
	require.Zero(t, b.Count())
	again, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, got, again)

	clock.advance(time.Hour - 10*time.Millisecond) // timers are not exact
	in.Progress = got.Progress
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 1, got.Attempts)
	require.Equal(t, 1, b.Count())
}

// A replay opened in the store: the next run's workflow learns there how many
// attempts were made before.
func TestNextRunCountsOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	in := b.stored(t)
	b.Script("/hook", receivertest.Step{Status: 400})
	dead, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDeadLettered, dead.State)
	status, err := p.reopen(activities.Reopening{Ref: in.Ref, Run: 1, Reason: "fixed"})
	require.NoError(t, err)
	require.Equal(t, 2, status.Run)

	in.Progress = webhook.Progress{Run: 2, GiveUpAt: status.GiveUpAt}
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 2, got.Attempts)
	require.Equal(t, 1, got.RunAttempts)
	require.Equal(t, "2", b.Requests()[1].Header.Get("everpost-attempt"))

	// The workflow of the run before learns that there is a later one.
	in.Progress = dead.Progress
	in.State = webhook.StateRetrying
	old, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, got.Progress, old.Progress)
	require.Equal(t, 2, b.Count())
}

// The store is authoritative, even if it has lost steps: the delivery goes on from there.
func TestRecordThatWasRestoredRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	in := b.stored(t)
	b.Script("/hook", receivertest.Step{Status: 500})
	first, err := p.attempt(in)
	require.NoError(t, err)

	in.Progress = first.Progress
	in.Seq, in.Attempts = 7, 7
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, first.Progress, got.Progress)
	require.Zero(t, got.ClaimedUntil)
	require.Equal(t, 1, b.Count())
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// metrics are what an observer gets.
type metrics struct {
	mu                sync.Mutex
	attempted, faults int
	counted           []string
	ended             []string // the reasons of the ends without an attempt
}

func (m *metrics) Deferred(string) {}

func (m *metrics) Attempted(webhook.Ref, *webhook.Attempt, webhook.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempted++
}

func (m *metrics) Counted(_ webhook.Ref, a *webhook.Attempt, p webhook.Progress, ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := "no attempt"
	if a != nil {
		text = fmt.Sprintf("attempt %d", a.Number)
	}
	if ended {
		text += ", " + p.State.String()
	}
	if ended && a == nil {
		m.ended = append(m.ended, p.Reason)
	}
	m.counted = append(m.counted, text)
}

func (m *metrics) InternalFault(error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults++
}

// Internal faults are errors: nothing is counted, nothing of the receiver is
// recorded, and the next try may succeed.
func TestOwnFaultCountsNothing(t *testing.T) {
	t.Parallel()
	var index []int
	for name, c := range map[string]struct {
		send func(context.Context, egress.Request) egress.Response
		want string
	}{
		"a panic": {send: func(context.Context, egress.Request) egress.Response { panic(payload + secret) }, want: "panic: a value of type string"},
		"a panic of the runtime": {send: func(context.Context, egress.Request) egress.Response {
			_ = index[len(payload)]
			return egress.Response{}
		}, want: "index out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			seen := &metrics{}
			p := b.process(t, func(config *activities.Config) {
				config.Observer, config.Sender = seen, faulty(c.send)
			})
			in := b.stored(t)
			for range 2 {
				_, err := p.attempt(in)
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), "canary")
				require.NotContains(t, err.Error(), secret)
			}
			require.Equal(t, 2, seen.faults)
			require.Zero(t, seen.attempted)
			require.Zero(t, b.Count())
			require.Empty(t, b.attempts(t, in))
			require.Zero(t, b.delivery(t, in).Attempts)
			require.NotContains(t, p.log.String(), "canary")
			require.NotContains(t, p.log.String(), secret)
		})
	}
}

// Nothing that is secret gets into results, which are history, nor into logs.
func TestNoSecretLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	for _, step := range []receivertest.Step{{Status: 200}, {Status: 503}, {Status: 400}, {Drop: true}} {
		b.Script("/hook", step)
		value, err := p.environment().ExecuteLocalActivity(p.Attempts.Attempt, b.stored(t))
		require.NoError(t, err)
		var raw map[string]any
		require.NoError(t, value.Get(&raw))
		require.NotContains(t, fmt.Sprint(raw), "canary")
	}
	require.NotContains(t, p.log.String(), "canary")
	require.NotContains(t, p.log.String(), secret)
}
