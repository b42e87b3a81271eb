package activities_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// together lets claims be made when so many wait to be made.
type together struct {
	activities.Store

	n   int
	mu  sync.Mutex
	in  int
	all chan struct{}
}

func (s *together) Claim(ctx context.Context, claim webhook.Claim) (webhook.ClaimResult, error) {
	s.mu.Lock()
	s.in++
	if s.in == s.n {
		close(s.all)
	}
	s.mu.Unlock()
	select {
	case <-s.all:
		return s.Store.Claim(ctx, claim)
	case <-ctx.Done():
		return webhook.ClaimResult{}, context.Cause(ctx)
	}
}

// A claim takes no slot of its endpoint: with max_in_flight 1, several are made at a time.
func TestClaimsTakeNoSlot(t *testing.T) {
	t.Parallel()
	b, g := setup(t), admission.New(admission.Config{})
	b.limit(t, 1, 10_000)
	p := b.guarded(t, g, func(c *activities.Config) { c.Store = &together{Store: c.Store, n: 5, all: make(chan struct{})} })
	_, err := p.attempt(b.fresh(t, p)) // with a token
	require.NoError(t, err)
	require.Equal(t, 1, b.Count(), "admission knows the endpoint")

	all := make([]activities.AttemptInput, 5)
	for i := range all {
		all[i] = b.stored(t)
	}
	require.Empty(t, p.attemptsOf(t, sharing(all...)...))
	require.Equal(t, 6, b.Count())
	require.Equal(t, 1, b.Most())
	require.Zero(t, p.Attempts.PayloadBytes())
}

// refusing is an admission that refuses a delivery of which it seemed that it would be admitted soon.
type refusing struct {
	activities.Admission

	before   func()
	decision admission.Decision
}

func (refusing) Near(r admission.Request) (timeout time.Duration, near bool) {
	return r.Limits.LongestTimeout(), true
}

func (r refusing) Acquire(context.Context, admission.Request) admission.Decision {
	r.before()
	return r.decision
}

// An attempt that has claimed and is refused gives its claim back: another process can make it at once.
func TestRefusalEndsTheClaim(t *testing.T) {
	t.Parallel()
	for name, decision := range map[string]admission.Decision{
		"deferred": {Until: time.Now().Add(time.Minute), Wait: time.Minute, Reason: webhook.ReasonInFlight},
		"held":     {Reason: webhook.ReasonBacklog},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			in := b.stored(t)
			claim := webhook.Claim{Ref: in.Ref, Progress: in.Progress, Claimant: "another", WorkflowID: in.WorkflowID(1), For: time.Minute}
			p := b.process(t, func(c *activities.Config) {
				c.Admission = refusing{admission.New(admission.Config{}), func() {
					got, err := b.store.Deliveries.Claim(context.Background(), claim)
					require.NoError(t, err)
					require.False(t, got.Granted, "it is claimed while admission is asked")
					require.Greater(t, time.Until(got.Status.ClaimedUntil), webhook.DefaultTimeout, "for the longest request and more")
				}, decision}
			})
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, decision.Reason, got.Reason)
			require.Zero(t, b.Count())
			require.Zero(t, p.Attempts.PayloadBytes())

			claim.Progress = got.Progress
			again, err := b.store.Deliveries.Claim(t.Context(), claim)
			require.NoError(t, err)
			require.True(t, again.Granted)
			require.Equal(t, []byte(payload), again.Payload)
		})
	}
}

// A deferral after a claim does not end the claim that another process has made since, and waits for it.
func TestDeferralAfterALostClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.stored(t)
	p := b.process(t, func(c *activities.Config) {
		c.Admission = refusing{admission.New(admission.Config{}), func() {
			b.expire(t, in)
			b.claimedElsewhere(t, in)
		}, admission.Decision{Until: time.Now().Add(time.Minute), Wait: time.Minute, Reason: webhook.ReasonInFlight}}
	})
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.False(t, got.ClaimedUntil.IsZero())
	require.Equal(t, in.Seq, b.delivery(t, in).Seq)
}
