package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// tight is a process that does not wait for long.
func (b *bundle) tight(t *testing.T) *process {
	t.Helper()
	return b.process(t, func(c *activities.Config) { c.FastWait = 200 * time.Millisecond })
}

// one makes one attempt and returns its result.
func (p *process) one(t *testing.T, in activities.AttemptInput) activities.MemberResult {
	t.Helper()
	results := p.attemptsOf(t, in)
	require.Len(t, results, 1)
	require.Empty(t, results[0].Fault)
	return results[0]
}

// R4: a slow attempt stays in its shared workflow, which is to ask for it again. The claim says
// which workflow goes on; asking again sends nothing, and returns the outcome of the request.
func TestSlowAttemptStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step  receivertest.Step
		state webhook.State
	}{
		"delivered":       {state: webhook.StateDelivered},
		"failed":          {step: again(2), state: webhook.StateRetrying},
		"failed for good": {step: receivertest.Step{Status: 400}, state: webhook.StateDeadLettered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.tight(t)
			for _, in := range sharing(b.fresh(t, p), b.stored(t)) {
				b.Script(in.EventID.String(), c.step)
				b.Hold()
				for range 2 {
					begun := time.Now()
					results := p.one(t, in)
					require.True(t, results.Running)
					require.Equal(t, in.Progress, results.Progress)
					require.WithinRange(t, results.CheckAt, begun.Add(4*time.Second), time.Now().Add(webhook.DefaultTimeout+time.Second))
					b.awaitClaim(t, in)
					require.Equal(t, sharedID, b.delivery(t, in).WorkflowID)
					in.FirstTask = false
				}
				b.Release()
				require.Eventually(t, func() bool { return b.delivery(t, in).State == c.state }, 20*time.Second, time.Millisecond)
				if results := p.attemptsOf(t, in); c.state == webhook.StateDelivered {
					require.Empty(t, results)
				} else {
					require.Len(t, results, 1)
					require.False(t, results[0].Running)
					require.Zero(t, results[0].CheckAt)
					require.Equal(t, c.state, results[0].State)
					require.Equal(t, 1, results[0].Attempts)
				}
				carrier := sharedID
				if c.state == webhook.StateDeadLettered {
					carrier = in.WorkflowID(in.Run)
				}
				require.Equal(t, carrier, b.delivery(t, in).WorkflowID)
				require.Len(t, b.attempts(t, in), 1)
			}
			require.Equal(t, 2, b.Count(), "one request each")
		})
	}
}

// A request under way is not repeated by another process: its workflow waits for the end of the claim. If the
// first process has died, it is sent again under the same number.
func TestRunningRequestInAnotherProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.tight(t)
	other := b.process(t, nil)
	in := sharing(b.fresh(t, p))[0]
	b.Hold()
	require.NotZero(t, p.one(t, in).CheckAt)
	b.awaitClaim(t, in)
	in.FirstTask = false
	busy := other.one(t, in)
	require.False(t, busy.Running)
	require.Zero(t, busy.CheckAt)
	require.WithinRange(t, busy.ClaimedUntil, time.Now().Add(webhook.DefaultTimeout/2), time.Now().Add(webhook.MaxTimeout+10*time.Second))
	require.Equal(t, sharedID, busy.WorkflowID)

	dead, cancel := context.WithCancel(t.Context())
	cancel()
	p.Attempts.Stop(dead)
	b.Release()
	require.NotZero(t, other.one(t, in).ClaimedUntil)
	require.Equal(t, 1, b.Count())
	b.expire(t, in)
	require.Empty(t, other.attemptsOf(t, in))
	requests := b.Requests()
	require.Len(t, requests, 2)
	require.Equal(t, requests[0].WebhookID(), requests[1].WebhookID())
	require.Equal(t, "1", requests[1].Header.Get("everpost-attempt"))
	require.Len(t, b.attempts(t, in), 1)
	require.Equal(t, sharedID, b.delivery(t, in).WorkflowID)
}

// R11: a process that stops waits for a request under way, and returns its outcome to calls meanwhile and afterwards.
func TestProcessStopsDuringARequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.tight(t)
	in := sharing(b.fresh(t, p))[0]
	b.Hold()
	require.NotZero(t, p.one(t, in).CheckAt)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.Attempts.Stop(context.Background())
	}()
	require.Eventually(t, func() bool {
		_, err := p.attempt(b.stored(t))
		return err != nil // Stop refuses it
	}, 20*time.Second, time.Millisecond)
	in.FirstTask = false
	require.NotZero(t, p.one(t, in).CheckAt, "it still goes on")
	b.Release()
	<-stopped
	require.Equal(t, webhook.StateDelivered, b.delivery(t, in).State)
	require.Empty(t, p.attemptsOf(t, in))
	require.Len(t, b.attempts(t, in), 1)
}
