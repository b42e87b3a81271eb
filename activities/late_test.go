package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestWhyAnAttemptIsLate(t *testing.T) {
	t.Parallel()
	accepted := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	began := accepted.Add(time.Minute)
	unchanged := func(*AttemptInput) {}
	first := webhook.Progress{Run: 1, State: webhook.StatePending}
	retry := webhook.Progress{Run: 1, State: webhook.StateRetrying, Attempts: 2, RunAttempts: 2, DueAt: accepted.Add(50 * time.Second)}
	held := webhook.Progress{Run: 1, State: webhook.StateHeld, Reason: webhook.ReasonPaused}
	for name, c := range map[string]struct {
		progress webhook.Progress
		change   func(*AttemptInput)
		waited   string
		late     time.Duration
	}{
		"first":                   {first, unchanged, "", time.Minute},
		"first, its deliver_at":   {first, func(in *AttemptInput) { in.NotBefore = accepted.Add(58 * time.Second) }, "", 2 * time.Second},
		"first, in time":          {first, func(in *AttemptInput) { in.NotBefore = began.Add(-999 * time.Millisecond) }, "", 0},
		"first, of a past event":  {first, func(in *AttemptInput) { in.GiveUpAt = began.Add(time.Hour - 3*time.Second) }, "", 3 * time.Second},
		"first, of a later run":   {webhook.Progress{Run: 2, State: webhook.StatePending, Attempts: 3}, unchanged, "", 0},
		"retry":                   {retry, unchanged, "", 10 * time.Second},
		"retry, early":            {retry, func(in *AttemptInput) { in.DueAt = began.Add(time.Millisecond) }, "", 0},
		"after a kept connection": {retry, func(in *AttemptInput) { in.DueAt = began.Add(-dueBefore - 20*time.Millisecond) }, "", 0},
		"asked for":               {retry, func(in *AttemptInput) { in.Forced = true }, "", 0},
		"asked for, not due":      {retry, func(in *AttemptInput) { in.DueAt = time.Time{} }, "", 0},
		"deferred":                {retry, func(in *AttemptInput) { in.Reason = webhook.ReasonNoOwner }, webhook.ReasonNoOwner, 10 * time.Second},
		"faults":                  {retry, func(in *AttemptInput) { in.Faults = 2 }, webhook.ReasonInternal, 0},
		"released":                {held, unchanged, webhook.ReasonPaused, 0},
		"released after a fault":  {held, func(in *AttemptInput) { in.Reason = webhook.ReasonInternal }, webhook.ReasonInternal, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := AttemptInput{Progress: c.progress}
			in.GiveUpAt = accepted.Add(time.Hour)
			c.change(&in)
			require.Equal(t, c.waited, in.waitedFor())
			require.Equal(t, c.late, in.late(accepted, in.GiveUpAt.Add(-time.Hour), began, 0))
			require.Zero(t, in.late(accepted, in.GiveUpAt.Add(-time.Hour), began, c.late), "admission has taken it")
		})
	}
}
