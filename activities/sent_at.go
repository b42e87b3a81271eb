package activities

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// SentAt returns when this process began the request that a delivery has under way; zero if it makes none.
func (a *Activities) SentAt(d *webhook.Delivery) time.Time {
	run := a.runs.runningOf(AttemptInput{Ref: d.Ref, Progress: d.Progress})
	if run == nil {
		return time.Time{}
	}
	select {
	case <-run.admitted:
		return run.began
	default: // it has no permit yet
		return time.Time{}
	}
}
