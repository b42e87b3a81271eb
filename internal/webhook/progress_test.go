package webhook_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// However often a delivery is held and let go, what is left of its time only passes while its clock runs, and the clock never stands still for longer
// than it may.
func TestHolding(t *testing.T) {
	t.Parallel()
	const maxHeld = 100 * time.Hour
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		p := webhook.Progress{Run: 1, State: webhook.StateRetrying, RunAttempts: 1, GiveUpAt: now.Add(72 * time.Hour)}
		left, held := 72*time.Hour, time.Duration(0)
		for range rapid.IntRange(1, 8).Draw(t, "holds") {
			reason := rapid.SampledFrom([]string{
				webhook.ReasonPaused, webhook.ReasonDisabled, webhook.ReasonInternal, webhook.ReasonBacklog,
			}).Draw(t, "reason")
			p = p.Holding(reason, now, maxHeld)
			pause := time.Duration(rapid.IntRange(0, 40_000).Draw(t, "seconds")) * time.Second
			expired := p.Expired(now.Add(pause))
			now = now.Add(pause)
			if webhook.StopsClock(reason) {
				held += pause
				require.Equal(t, held > maxHeld, expired)
			} else {
				left -= pause
				require.Equal(t, left < 0, expired)
			}
			if expired {
				return
			}
			p = p.WaitingUntil(now, now)
			require.Equal(t, []any{webhook.StateRetrying, now.Add(left), held}, []any{p.State, p.GiveUpAt, p.HeldFor})
			require.True(t, p.HeldAt.IsZero() && p.HeldUntil.IsZero())
			require.Equal(t, p.GiveUpAt, p.Expires())
		}
	})
}

// A process of an earlier release has held it: its clock runs, and it expires at its give-up time. A clock that steps back moves nothing.
func TestHeldByAnEarlierRelease(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var p webhook.Progress
	require.NoError(t, json.Unmarshal([]byte(`{"run":1,"seq":2,"state":"held","reason":"endpoint_paused","give_up_at":"2026-01-02T04:04:05Z"}`), &p))
	require.Equal(t, p.GiveUpAt, p.Expires())
	require.False(t, p.Expired(now.Add(time.Hour)))
	require.True(t, p.Expired(now.Add(time.Hour+1)))

	p = p.Holding(webhook.ReasonPaused, now, time.Hour)
	require.Equal(t, p.GiveUpAt, p.ClockRunning(now.Add(-time.Minute)).GiveUpAt)
}
