package activities

import (
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// A receiver may close an idle connection at the moment at which a request is sent on it. The connection then ends
// without a byte of an answer, and it is not known whether the receiver has got the request. Waiting for a retry would
// delay a few of a hundred first attempts at receivers that are well, so the request is sent again at once, on a new
// connection: once in a run, because what happens again is no coincidence.
//
// The first attempt is recorded before the second is made, which has a number of its own. Only the second counts: for
// the policy's attempts, for admission and for what is known of the receiver. It takes the first one's permit. If the
// rate does not allow it now, or if the first attempt was eager, the workflow makes it, which finds that it is due.

// dueBefore is how much before its request an attempt that met the end of a kept connection sets the next one due: the
// workflow's clock stands at the beginning of its task, and a timer would take up to a second.
const dueBefore = 5 * time.Second

// isReused reports whether an attempt met the end of a kept connection, so that it is made again at once.
func isReused(made *webhook.Attempt) bool { return made.Outcome.Reason == retry.ReasonConnectionReused }

// asReused returns an attempt that met the end of a kept connection.
func asReused(made webhook.Attempt) webhook.Attempt {
	made.Outcome = retry.Outcome{Decision: retry.Retry, Reason: retry.ReasonConnectionReused}
	made.Error = string(retry.ReasonConnectionReused) + ": the receiver closed an idle connection as the request was sent"
	return made
}

// numberForAdmission is the number by which admission tells first attempts from retries. An attempt that met the end of a
// kept connection does not make the next one a retry.
func (in *AttemptInput) numberForAdmission() int {
	if in.Run <= 1 {
		return in.RunAttempts + 1
	}
	return in.Attempts + 1
}
