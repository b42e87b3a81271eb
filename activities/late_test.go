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
	first := webhook.Progress{Run: 1, State: webhook.StatePending}
	retry := webhook.Progress{Run: 1, State: webhook.StateRetrying, Attempts: 2, RunAttempts: 2, DueAt: accepted.Add(50 * time.Second)}
	for name, c := range map[string]struct {
		progress webhook.Progress
		change   func(*AttemptInput)
		waited   string
		late     time.Duration
	}{
		"first":                   {progress: first, late: time.Minute},
		"first, its deliver_at":   {progress: first, change: func(in *AttemptInput) { in.NotBefore = accepted.Add(58 * time.Second) }, late: 2 * time.Second},
		"first, in time":          {progress: first, change: func(in *AttemptInput) { in.NotBefore = began.Add(-999 * time.Millisecond) }},
		"first, a slow admission": {progress: first, change: func(in *AttemptInput) { in.admitting = time.Minute }},
		"retry":                   {progress: retry, late: 10 * time.Second},
		"retry, early":            {progress: retry, change: func(in *AttemptInput) { in.DueAt = began.Add(time.Millisecond) }},
		"deferred": {
			progress: retry, change: func(in *AttemptInput) { in.Reason = webhook.ReasonNoOwner }, waited: webhook.ReasonNoOwner, late: 10 * time.Second,
		},
		"faults":            {progress: retry, change: func(in *AttemptInput) { in.Faults = 2 }, waited: webhook.ReasonInternal, late: 10 * time.Second},
		"released":          {progress: webhook.Progress{Run: 1, State: webhook.StateHeld, Reason: webhook.ReasonPaused}, waited: webhook.ReasonPaused},
		"replayed":          {progress: webhook.Progress{Run: 2, State: webhook.StatePending, Attempts: 3}},
		"asked for at once": {progress: webhook.Progress{Run: 1, State: webhook.StateRetrying, Attempts: 1, RunAttempts: 1}},
		"released for a new check": {
			progress: webhook.Progress{Run: 2, State: webhook.StateHeld, Reason: webhook.ReasonInternal}, waited: webhook.ReasonInternal,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := AttemptInput{Progress: c.progress}
			if c.change != nil {
				c.change(&in)
			}
			require.Equal(t, c.waited, in.waitedFor())
			require.Equal(t, c.late, in.late(accepted, began))
		})
	}
}
