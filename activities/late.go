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

// late is webhook.Attempt.Late of an attempt that began at a time, after admission had taken a while, which does not count. The first
// attempt of a delivery is due when its event is accepted, or a replay makes the delivery of a past event, which is when its run begins; or at
// the event's deliver_at. When one is due that a person asked for, that was held, or that met an internal fault, or the first one of a later
// run, is not known.
func (in *AttemptInput) late(accepted, runBegan, began time.Time, admitting time.Duration) time.Duration {
	due, least := in.DueAt, lateFrom+dueBefore // the attempt after the end of a kept connection is due by so much too early
	if due.IsZero() {
		due, least = accepted, lateFrom
		if runBegan.After(due) {
			due = runBegan
		}
		if in.Run > 1 || in.RunAttempts > 0 {
			return 0
		}
	}
	if in.Forced || in.State == webhook.StateHeld || in.waitedFor() == webhook.ReasonInternal {
		return 0
	}
	if in.NotBefore.After(due) {
		due = in.NotBefore
	}
	if late := began.Sub(due) - admitting; late >= least {
		return late
	}
	return 0
}
