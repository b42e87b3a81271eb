package activities

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// lateFrom is from when on an attempt counts as late. It is far more than what an attempt takes to begin when nothing waits, and than
// two clocks differ.
const lateFrom = time.Second

// waitedFor is webhook.Attempt.WaitedFor of the attempt. A step that defers or holds a delivery has a reason; one that an attempt
// leads to has none.
func (in *AttemptInput) waitedFor() string {
	switch {
	case in.Faults > 0:
		return webhook.ReasonInternal
	case in.State == webhook.StateHeld, in.Deferred():
		return in.Reason
	}
	return ""
}

// late is webhook.Attempt.Late of an attempt that began at a time. The first attempt of a delivery is due when its event is accepted,
// or at the event's deliver_at. Of a replay, and of a delivery that was held, it is not known since when it could be sent.
func (in *AttemptInput) late(accepted, began time.Time) time.Duration {
	due := in.DueAt
	if due.IsZero() {
		if in.Run > 1 || in.RunAttempts > 0 || in.State == webhook.StateHeld {
			return 0
		}
		due = accepted
	}
	if in.NotBefore.After(due) {
		due = in.NotBefore
	}
	if late := began.Sub(due) - in.admitting; late >= lateFrom {
		return late
	}
	return 0
}
