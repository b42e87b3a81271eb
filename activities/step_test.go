package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// A policy of a tenant or an endpoint cannot retry faster than the installation lets it; the installation's own may.
func TestTheLeastRetryDelay(t *testing.T) {
	t.Parallel()
	fast := retry.Policy{
		Strategy: retry.StrategyFixed, Base: time.Millisecond, MaxAttempts: 10, GiveUpAfter: time.Hour,
		RetryStatuses: []int{500},
	}
	slow := fast
	slow.Base = time.Minute
	for name, c := range map[string]struct {
		endpoint webhook.Endpoint
		want     time.Duration
	}{
		"the endpoint's":      {webhook.Endpoint{RetryPolicy: fast}, 100 * time.Millisecond},
		"the tenant's":        {webhook.Endpoint{Inherited: webhook.InheritedPolicy{Policy: fast, Source: webhook.PolicyOfTenant}}, 100 * time.Millisecond},
		"the installation's":  {webhook.Endpoint{Inherited: webhook.InheritedPolicy{Policy: fast}}, time.Millisecond},
		"a longer one is own": {webhook.Endpoint{RetryPolicy: slow}, time.Minute},
	} {
		now := time.Now()
		made := webhook.Attempt{StartedAt: now, Outcome: retry.Outcome{Decision: retry.Retry}}
		step := new(AttemptInput).stepAfter(&webhook.Target{Endpoint: c.endpoint}, made, 100*time.Millisecond)
		require.Equal(t, webhook.StateRetrying, step.State, name)
		require.Equal(t, c.want, step.Delay, name)
		require.WithinDuration(t, now.Add(c.want), step.DueAt, time.Millisecond, name)
	}
}
