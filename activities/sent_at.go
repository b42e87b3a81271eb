package activities

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// SentAt returns when this process began the request that a delivery has under way; zero if it makes none.
func (a *Activities) SentAt(d *webhook.Delivery) time.Time {
	exec := a.executions.runningOf(AttemptInput{Ref: d.Ref, Progress: d.Progress})
	if exec == nil {
		return time.Time{}
	}
	select {
	case <-exec.admitted:
		return exec.began
	default: // it has no permit yet
		return time.Time{}
	}
}
