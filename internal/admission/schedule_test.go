package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// What keeps a new delivery from being admitted at once, for how long, and what is given as the reason.
func TestEarliest(t *testing.T) {
	t.Parallel()
	const now = time.Minute
	for name, c := range map[string]struct {
		change func(*schedule)
		at     time.Duration
		reason string // not looked at if the delivery is admitted at once
	}{
		"at once":     {func(*schedule) {}, now, ""},
		"slots":       {func(s *schedule) { s.slots.add(&activeRequest{start: now, timeout: now}) }, now + 2*time.Second, webhook.ReasonInFlight},
		"rate":        {func(s *schedule) { s.rate.next = now + time.Second }, now + time.Second - burst, webhook.ReasonRate},
		"ramp-up":     {func(s *schedule) { s.rate.nextLate = now + time.Second }, now + time.Second - burst, webhook.ReasonRate},
		"blocked":     {func(s *schedule) { s.blockedUntil, s.blockedFor = 2*now, webhook.ReasonRetryAfter }, 2 * now, webhook.ReasonRetryAfter},
		"circuit":     {func(s *schedule) { s.breaker.state, s.breaker.until = webhook.CircuitOpen, 2*now }, 2 * now, webhook.ReasonCircuitOpen},
		"probe":       {func(s *schedule) { s.breaker.beginProbe(&activeRequest{start: now}) }, now + 3*time.Second, webhook.ReasonCircuitOpen},
		"reservation": {func(s *schedule) { s.reservations.add(now, webhook.DeliveryID{}) }, now + 10*time.Second, webhook.ReasonRate},
		"waiter": {func(s *schedule) {
			s.waiters = []*waiter{{at: now + time.Second}}
			s.reservations.add(now+time.Second, webhook.DeliveryID{})
		}, now + 11*time.Second, webhook.ReasonRate},
	} {
		ctl := newClock().controller()
		s := &newEndpoint(webhook.NewEndpointID(), &ctl.environment, nil, 0).schedule
		s.configure(0, Limits{MaxInFlight: 1, Rate: 0.1}.withDefaults())
		s.slots.measure(2 * time.Second)
		require.True(t, s.admissible(now), name)
		c.change(s)
		at, reason := s.earliest(now)
		require.Equal(t, c.at, at, name)
		if at > now {
			require.Equal(t, c.reason, reason, name)
		}
		require.Equal(t, at <= now, s.admissible(now), name)
	}
}
