package explain

import (
	"fmt"

	"github.com/everpost/everpost/internal/webhook"
)

// addDelay says why the last attempt came later than its due time, as long as the delivery does not wait again for something that
// matters more.
func (s *Situation) addDelay(e *Explanation) {
	d := &s.Delivery
	if d.LastOutcome == nil || d.State == webhook.StateHeld || d.Deferred() || d.LastError != "" {
		return
	}
	if s.WaitedFor != "" {
		_, why := waits(s.WaitedFor)
		e.Cause = joined(e.Cause, sentence(fmt.Sprintf("before attempt %d it waited because %s", d.Attempts, why)))
	}
	if s.Late == 0 {
		return
	}
	e.Cause = joined(e.Cause, sentence(fmt.Sprintf(
		"attempt %d began %s after it was due: Everpost, PostgreSQL or Temporal did not keep up, or was away", d.Attempts, elapsed(s.Late))))
	e.Operator = joined(e.Operator, "If attempts often begin late, see whether the machines had CPU, memory and disk to spare at that time.")
}
