package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// slow is a process that soon takes a request for slow. A claim has as long, and is repeated after that.
func slow(c *activities.Config) { c.FastWait = 400 * time.Millisecond }

// expire ends whatever claim there is on a delivery.
func (b *bundle) expire(t *testing.T, in activities.AttemptInput) {
	t.Helper()
	b.execute(t, `update deliveries set owner_until = now() - interval '1 second' where id = $1 and owner is not null`, in.DeliveryID)
}

// claimedElsewhere gives another process the right to send for a minute.
func (b *bundle) claimedElsewhere(t *testing.T, in activities.AttemptInput) {
	t.Helper()
	begun, err := b.store.Deliveries.Claim(t.Context(), webhook.Claim{
		Ref: in.Ref, Progress: in.Progress, WorkflowID: in.WorkflowID(in.Run), Claimant: "another process", For: time.Minute,
	})
	require.NoError(t, err)
	require.True(t, begun.Granted)
}

// R4: an attempt returns after the fast wait even if the receiver is slow. The claim is stored, the request goes on, and the next
// attempt returns its outcome.
func TestSlowReceiver(t *testing.T) {
	t.Parallel()
	for name, withToken := range map[string]bool{"with a token": true, "with a claim": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, other := b.process(t, slow), b.process(t, nil) // the other only looks, however long that takes
			in := b.stored(t)
			if withToken {
				in = b.fresh(t, p)
			}
			b.Hold()
			begun := time.Now()
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.True(t, got.Running)
			require.Equal(t, in.Progress, got.Progress)
			require.Less(t, time.Since(begun), webhook.DefaultTimeout/2, "it did not wait for the receiver")
			require.NoError(t, b.WaitHeld(t.Context(), 1))
			b.awaitClaim(t, in)

			busy, err := other.attempt(in)
			require.NoError(t, err)
			require.False(t, busy.Running)
			require.Equal(t, in.Progress, busy.Progress)
			require.WithinRange(t, busy.ClaimedUntil, time.Now().Add(webhook.DefaultTimeout/2), time.Now().Add(webhook.MaxTimeout+10*time.Second))

			joined := later(func() (activities.AttemptResult, error) { return p.await(in) })
			b.Release()
			end := <-joined
			require.NoError(t, end.err)
			require.Equal(t, webhook.StateDelivered, end.result.State)
			require.Equal(t, 1, b.Count())

			again, err := p.await(in)
			require.NoError(t, err)
			require.Equal(t, end.result, again, "R3: an activity that runs again gets the same")
		})
	}
}

// R2: a foreign claim keeps others from sending; one that has expired does not.
func TestForeignClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	in := b.stored(t)
	begun, err := b.store.Deliveries.Claim(t.Context(), webhook.Claim{
		Ref: in.Ref, Progress: in.Progress, WorkflowID: in.WorkflowID(in.Run), Claimant: "a process that died", For: time.Minute,
	})
	require.NoError(t, err)
	require.True(t, begun.Granted)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Minute), got.ClaimedUntil, 30*time.Second)
	require.Zero(t, b.Count())

	b.expire(t, in)
	got, err = p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, 1, got.Attempts)
}

// A claim that ends soon by the store's clock is not requested repeatedly.
func TestBusyPause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ahead := time.Now().Add(time.Hour)
	p := b.process(t, func(c *activities.Config) { c.Now = func() time.Time { return ahead } }) // our clock is wrong
	in := b.stored(t)
	_, err := b.store.Deliveries.Claim(t.Context(), webhook.Claim{
		Ref: in.Ref, Progress: in.Progress, WorkflowID: in.WorkflowID(in.Run), Claimant: "another", For: time.Minute,
	})
	require.NoError(t, err)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Equal(t, ahead.Add(time.Second).UTC(), got.ClaimedUntil.UTC())
}

// awaitClaim waits until the store knows that the attempt is being sent. With the fast
// wait of these tests the first try to write it may have no time.
func (b *bundle) awaitClaim(t *testing.T, in activities.AttemptInput) {
	t.Helper()
	require.Eventually(t, func() bool {
		var claimed bool
		err := b.store.Pool().QueryRow(t.Context(), `select owner is not null from deliveries where id = $1`, in.DeliveryID).Scan(&claimed)
		return err == nil && claimed
	}, 20*time.Second, time.Millisecond)
}

// leaveRunning has a process make an attempt whose receiver is held, until the store has its claim.
func (b *bundle) leaveRunning(t *testing.T, p *process, in activities.AttemptInput) {
	t.Helper()
	b.Hold()
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.True(t, got.Running)
	b.awaitClaim(t, in)
}

// R4: another process waits for the claim, and returns what the first
// process records.
func TestAnotherProcessAdoptsTheOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	full := admission.New(admission.Config{}) // the other process may send nothing
	request := admission.RequestFor(&b.endpoint, webhook.DeliveryIDOf(webhook.NewEventID(), b.endpoint.ID))
	for range b.endpoint.MaxInFlight {
		require.NotNil(t, full.TryAcquire(request))
	}
	p, other := b.process(t, slow), b.guarded(t, full, slow)
	in := b.fresh(t, p)
	b.Script("/hook", receivertest.Step{Status: 503}, receivertest.Step{Status: 200})
	b.leaveRunning(t, p, in)
	joined := later(func() (activities.AttemptResult, error) { return other.await(in) })
	require.Eventually(t, func() bool { return other.record.looked() > 1 }, 20*time.Second, time.Millisecond, "it looks again while the claim is there")
	b.Release()
	released := time.Now()
	end := <-joined
	require.NoError(t, end.err)
	require.Less(t, time.Since(released), webhook.MaxTimeout/2, "it looks before the claim ends")
	require.Equal(t, webhook.StateRetrying, end.result.State)
	require.Equal(t, 1, end.result.Attempts)
	require.Equal(t, 1, b.Count())
}

// R5: two processes have sent the same attempt, because the first one's claim ran out. Delivered wins, although the
// other's failure was recorded first.
func TestDeliveredWinsOverTheSameAttemptElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, other := b.process(t, slow), b.process(t, func(c *activities.Config) {
		c.Sender = faulty(func(context.Context, egress.Request) egress.Response {
			return egress.Response{Answer: retry.Answer{Status: 503}}
		})
	})
	in := b.fresh(t, p)
	b.leaveRunning(t, p, in)
	b.expire(t, in)
	failed, err := other.attempt(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateRetrying, failed.State)
	b.Release()
	got, err := p.await(in)
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
	require.Equal(t, got.Progress, b.delivery(t, in).Progress)
	attempts := b.attempts(t, in)
	require.Len(t, attempts, 1)
	require.Equal(t, 1, got.Attempts)
	require.Equal(t, 200, attempts[0].Outcome.Status)
	require.Empty(t, attempts[0].DelaySource, "none follows")
	next := in
	next.Progress, next.DueAt, next.FirstTask = failed.Progress, time.Time{}, false
	found, err := other.attempt(next)
	require.NoError(t, err)
	require.Equal(t, got.Progress, found.Progress, "nothing is sent again")
}

// R4: when the first process died, its right to send runs out, and another one sends again
// under the same number.
func TestAnotherProcessSendsAgainAfterADeath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, other := b.process(t, slow), b.process(t, slow)
	in := b.fresh(t, p)
	b.leaveRunning(t, p, in)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	p.Attempts.Stop(dead)

	joined := later(func() (activities.AttemptResult, error) { return other.await(in) })
	require.Eventually(t, func() bool { return other.record.looked() > 1 }, 20*time.Second, time.Millisecond, "it waits for the claim first")
	require.Equal(t, 1, b.Count())
	b.expire(t, in)
	b.Release()
	end := <-joined
	require.NoError(t, end.err)
	require.Equal(t, webhook.StateDelivered, end.result.State)
	require.Equal(t, 1, end.result.Attempts, "the same number")
	requests := b.Requests()
	require.Len(t, requests, 2)
	require.Equal(t, requests[0].WebhookID(), requests[1].WebhookID())
	require.Equal(t, "1", requests[1].Header.Get("everpost-attempt"))
}

// The requests under way are bounded; one that is there already is joined all the
// same.
func TestTooManyUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, func(c *activities.Config) { c.FastWait, c.MaxRunning = 50*time.Millisecond, 1 })
	in, second := b.stored(t), b.stored(t)
	b.Hold()
	_, err := p.attempt(in)
	require.NoError(t, err)
	_, err = p.attempt(second)
	require.ErrorContains(t, err, "too many attempts are running")
	_, err = p.await(second)
	require.ErrorContains(t, err, "too many attempts are running")
	joined := later(func() (activities.AttemptResult, error) { return p.await(in) })
	b.Release()
	require.NoError(t, (<-joined).err)
	got, err := p.await(second) // on a busy machine it is slow
	require.NoError(t, err)
	require.Equal(t, webhook.StateDelivered, got.State)
}

// R11: Stop waits for a request under way and for its step.
func TestStopWaitsForTheRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, slow)
	in := b.fresh(t, p)
	b.Hold()
	_, err := p.attempt(in)
	require.NoError(t, err)
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.Attempts.Stop(context.Background())
	}()
	require.Eventually(t, func() bool {
		_, err := p.attempt(b.stored(t))
		return err != nil // Stop refuses new attempts
	}, 20*time.Second, time.Millisecond)
	select {
	case <-stopped:
		require.Fail(t, "Stop did not wait")
	default:
	}
	b.Release()
	<-stopped
	require.Equal(t, webhook.StateDelivered, b.delivery(t, in).State)
}

// R11: when its time is over, Stop cuts off what is under way. Nothing is counted:
// the attempt is made again elsewhere.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, slow)
	in := b.stored(t)
	b.Hold()
	_, err := p.attempt(in)
	require.NoError(t, err)
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	joined := later(func() (activities.AttemptResult, error) { return p.await(in) })
	over, cancel := context.WithCancel(t.Context())
	cancel()
	begun := time.Now()
	p.Attempts.Stop(over)
	require.Less(t, time.Since(begun), webhook.DefaultTimeout/2)
	require.Error(t, (<-joined).err)
	require.Empty(t, b.attempts(t, in))
	require.Zero(t, b.delivery(t, in).Attempts)
	_, err = p.attempt(b.stored(t))
	require.ErrorContains(t, err, "this process is stopping")
}
