package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// Deliveries that ended and were not delivered are listed by their end; the delivered ones cost the history nothing.
func TestEndsOfAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	all := sharing(b.stored(t), b.stored(t), b.stored(t), b.stored(t))
	for _, i := range []int{1, 3} {
		all[i] = b.to(t, all[i], webhook.NewEndpointID()) // which there is not: deleted
	}
	env := p.environment()
	env.RegisterActivity(p.Attempts.Attempts)
	value, err := env.ExecuteLocalActivity(p.Attempts.Attempts, all)
	require.NoError(t, err)
	var result activities.AttemptsResult
	require.NoError(t, value.Get(&result))
	require.Equal(t, activities.AttemptsResult{
		Ended: []activities.End{{State: webhook.StateCancelled, Reason: webhook.ReasonEndpointDeleted, Of: []int{1, 3}}},
	}, result)
	require.Equal(t, webhook.StateDelivered, b.delivery(t, all[0]).State)
}
