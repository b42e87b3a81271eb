package activities_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// note is the step with which a workflow records an internal fault.
func note(in activities.AttemptInput) webhook.Step {
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.WorkflowID(in.Run), LastError: "the database was away"}
	step.Seq++
	return step
}

// unrecorded makes an attempt that the receiver answers while the store is unavailable.
func unrecorded(t *testing.T, b *bundle, p *process, wire *postgrestest.Proxy, in activities.AttemptInput) error {
	t.Helper()
	b.Hold()
	attempt := later(func() (activities.AttemptResult, error) { return p.attempt(in) })
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	wire.Cut()
	b.Release()
	return (<-attempt).err
}

// R3, R4: the store is away when the answer comes. The outcome is kept, and the
// next try records it and sends nothing; also when another workflow has recorded a step
// of its own meanwhile.
func TestOutcomeOutlivesAnOutageOfTheRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ withToken, noted bool }{
		"with a token": {withToken: true}, "with a claim": {},
		"with a token, a fault noted": {withToken: true, noted: true}, "with a claim, a fault noted": {noted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			wire, address := postgrestest.NewProxy(t, b.address)
			seen := &metrics{}
			p := b.processAt(t, address, func(c *activities.Config) { c.Observer = seen })
			in := b.stored(t)
			if c.withToken {
				in = b.fresh(t, p)
			}
			b.Script("/hook", receivertest.Step{Status: 503}, receivertest.Step{Status: 200})
			err := unrecorded(t, b, p, wire, in)
			require.ErrorContains(t, err, "the database is not reachable at the moment")
			require.NotContains(t, err.Error(), "record delivery", "the cause is for the log")
			require.Contains(t, p.log.String(), "record delivery")

			_, err = p.attempt(in)
			require.Error(t, err, "still away")
			wire.Restore()
			if c.noted {
				status, err := p.Steps.RecordStep(t.Context(), note(in))
				require.NoError(t, err)
				in.Progress = status.Progress
			}
			result, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateRetrying, result.State)
			require.Equal(t, 1, result.Attempts)
			require.Equal(t, "503", result.LastOutcome.String())
			require.Greater(t, result.Seq, in.Seq)
			require.Equal(t, 1, b.Count(), "one request")
			require.Len(t, b.attempts(t, in), 1)
			require.Equal(t, result.Progress, b.delivery(t, in).Progress)
			require.Equal(t, 1, seen.attempted)
			require.Equal(t, []string{"attempt 1"}, seen.counted)
			require.Equal(t, 2, seen.faults)

			in.Progress = result.Progress
			result, err = p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateDelivered, result.State)
			require.Equal(t, 2, b.Count())
		})
	}
}

// The same for the first attempt of a replay. Its workflow learns how many attempts there were before from the fault
// that it records.
func TestOutcomeOfAReplayOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wire, address := postgrestest.NewProxy(t, b.address)
	p := b.processAt(t, address, nil)
	in := b.stored(t)
	_, err := p.attempt(in)
	require.NoError(t, err)
	replay := webhook.PendingCommand{Command: webhook.CommandReplay}
	_, _, err = b.store.Deliveries.Command(t.Context(), webhook.Actor{Name: "test"}, tenant, in.DeliveryID, replay)
	require.NoError(t, err)
	in.Progress = webhook.Progress{Run: 2, GiveUpAt: in.GiveUpAt}
	require.Error(t, unrecorded(t, b, p, wire, in))
	wire.Restore()
	status, err := p.Steps.RecordStep(t.Context(), note(in))
	require.NoError(t, err)
	require.Equal(t, 1, status.Attempts)
	in.Progress = status.Progress
	result, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, result.State)
	require.Equal(t, 2, result.Attempts)
	require.Equal(t, 2, b.Count(), "one request in each run")
	require.Len(t, b.attempts(t, in), 2)
}

// The store is away before anything was sent: an error, no request, and the token
// is not needed for the next try.
func TestRecordAwayBeforeTheRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wire, address := postgrestest.NewProxy(t, b.address)
	p := b.processAt(t, address, nil)
	in := b.stored(t)
	_, err := p.record.Endpoints.Cache().Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	wire.Cut()
	_, err = p.attempt(in)
	require.ErrorContains(t, err, "claim attempt 1 of "+in.DeliveryID.String()+": the database is not reachable")
	require.Zero(t, b.Count())
	wire.Restore()
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 1, b.Count())
}

// A step that a workflow records while the request is under way does not make the
// request's outcome void.
func TestStepBesideARequestUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) { c.FastWait = 20 * time.Millisecond })
	in := b.stored(t)
	b.Hold()
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.True(t, got.Running)
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	status, err := p.Steps.RecordStep(t.Context(), note(in))
	require.NoError(t, err)
	in.Progress = status.Progress
	joined := later(func() (activities.AttemptResult, error) { return p.await(in) })
	b.Release()
	end := <-joined
	require.NoError(t, end.err)
	require.Equal(t, webhook.StateDelivered, end.result.State)
	require.Equal(t, 2, end.result.Seq)
	require.Equal(t, 1, b.Count())
}

// R5: a delivery that was ended meanwhile stays ended, with the attempt kept.
func TestEndBesideARequestUnderWayRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) { c.FastWait = 20 * time.Millisecond })
	in := b.stored(t)
	b.Script("/hook", receivertest.Step{Status: 500})
	b.Hold()
	_, err := p.attempt(in)
	require.NoError(t, err)
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	end := note(in)
	end.State, end.Reason, end.Claimant = webhook.StateCancelled, webhook.ReasonCancelled, p.config.Claimant
	_, err = b.store.Deliveries.RecordStep(t.Context(), end)
	require.NoError(t, err)
	b.Release()
	got, err := p.await(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateCancelled, got.State)
	require.Len(t, b.attempts(t, in), 1)
}

// R2, R5: while another process has the right to send, which may be delivering just
// now, nothing but an attempt ends the delivery.
func TestNoEndBesideAnotherProcess(t *testing.T) {
	t.Parallel()
	cancelled := func(in activities.AttemptInput) webhook.Step {
		step := note(in)
		step.State, step.Reason = webhook.StateCancelled, webhook.ReasonCancelled
		return step
	}
	t.Run("repeated by the workflow", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.process(t, nil)
		in := b.stored(t)
		b.claimedElsewhere(t, in)
		status, err := p.Steps.RecordStep(t.Context(), cancelled(in))
		require.NoError(t, err)
		require.Equal(t, webhook.StatePending, status.State)
		require.WithinRange(t, status.ClaimedUntil, time.Now().Add(time.Second), time.Now().Add(time.Minute))
		b.expire(t, in)
		status, err = p.Steps.RecordStep(t.Context(), cancelled(in))
		require.NoError(t, err)
		require.Equal(t, webhook.StateCancelled, status.State)
	})
	t.Run("not beside this one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.process(t, func(c *activities.Config) { c.Claimant = "another process" }) // the claim is of this process
		in := b.stored(t)
		b.claimedElsewhere(t, in)
		status, err := p.Steps.RecordStep(t.Context(), cancelled(in))
		require.NoError(t, err)
		require.Equal(t, webhook.StateCancelled, status.State)
	})
	t.Run("found by an attempt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.process(t, nil)
		in := b.stored(t)
		require.NoError(t, b.store.Endpoints.DeleteEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID))
		b.claimedElsewhere(t, in)
		got, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.StatePending, got.State)
		require.WithinRange(t, got.ClaimedUntil, time.Now().Add(time.Second), time.Now().Add(time.Minute))
		b.expire(t, in)
		got, err = p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.StateCancelled, got.State)
	})
}

// An error that was not written for people is only logged.
func TestUnknownFaultsAreOnlyLogged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) { c.Store = broken{} })
	in := b.stored(t)
	_, attempt := p.attempt(in)
	_, step := p.Steps.RecordStep(t.Context(), note(in))
	_, reopening := p.reopen(activities.Reopening{Ref: in.Ref})
	for _, err := range []error{attempt, step, reopening} {
		require.ErrorContains(t, err, "an internal fault; its cause is in the log")
		require.NotContains(t, err.Error(), "canary")
	}
	require.Equal(t, 3, strings.Count(p.log.String(), "dial canary-host"))
}

// broken is a store behind which something fails that is no error of the domain.
type broken struct{}

var errForeign = errors.New("dial canary-host: refused")

func (broken) Claim(context.Context, webhook.Claim) (webhook.ClaimResult, error) {
	return webhook.ClaimResult{}, errForeign
}

func (broken) RecordStep(context.Context, webhook.Step) (webhook.DeliveryStatus, error) {
	return webhook.DeliveryStatus{}, errForeign
}

func (broken) Reopen(context.Context, webhook.Ref, int, string) (webhook.DeliveryStatus, error) {
	return webhook.DeliveryStatus{}, errForeign
}

func (broken) DeliveryStatuses(context.Context, []webhook.Ref) ([]webhook.DeliveryStatus, error) {
	return nil, errForeign
}

func (broken) KeepIn(context.Context, string, []webhook.Ref, []int) error { return errForeign }

func (broken) ClaimStatus(context.Context, webhook.Ref, string) (webhook.DeliveryStatus, error) {
	return webhook.DeliveryStatus{}, errForeign
}

// R4: the store is unavailable when a slow attempt is to write its claim. It is
// written when the store is back, so that no other process sends meanwhile.
func TestClaimIsWrittenWhenTheRecordIsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wire, address := postgrestest.NewProxy(t, b.address)
	p := b.processAt(t, address, func(c *activities.Config) { c.FastWait = 100 * time.Millisecond })
	in := b.fresh(t, p)
	_, err := p.record.Endpoints.Cache().Target(t.Context(), b.endpoint.ID)
	require.NoError(t, err)
	b.Hold()
	wire.Cut()
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.True(t, got.Running)
	wire.Restore()
	require.Eventually(t, func() bool {
		var owned bool
		err := b.store.Pool().QueryRow(t.Context(), `select count(*) > 0 from deliveries where id = $1 and owner_until > now()`, in.DeliveryID).Scan(&owned)
		return err == nil && owned
	}, 20*time.Second, 10*time.Millisecond)
	busy, err := b.process(t, nil).attempt(in)
	require.NoError(t, err)
	require.False(t, busy.ClaimedUntil.IsZero())
	b.Release()
	got, err = p.await(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 1, b.Count())
}

// R5: delivered wins, also over a cancel that comes while the outcome could not be written.
func TestCancelLetsTheOutcomeBeRecordedFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wire, address := postgrestest.NewProxy(t, b.address)
	p := b.processAt(t, address, nil)
	in := b.fresh(t, p)
	require.Error(t, unrecorded(t, b, p, wire, in))
	cancel := note(in)
	cancel.State, cancel.Reason = webhook.StateCancelled, "too late"
	_, err := p.Steps.RecordStep(t.Context(), cancel)
	require.Error(t, err, "still away")
	wire.Restore()
	status, err := p.Steps.RecordStep(t.Context(), cancel)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, status.State)
	require.Equal(t, 1, status.Attempts)
	require.Equal(t, 1, b.Count())
	require.Len(t, b.attempts(t, in), 1)
	require.Equal(t, status.Progress, b.delivery(t, in).Progress)
}
