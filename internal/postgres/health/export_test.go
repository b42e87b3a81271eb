// Names for the tests, which are in a package of their own.

package health

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

type Failures = failures

func (s *failures) Add(t *webhook.EndpointFailures, settings webhook.AutoDisable, changed time.Time) {
	s.add(t, settings, changed)
}
func (s *failures) Empty() bool { return s.empty() }
func (s *failures) Why(settings webhook.AutoDisable, now time.Time) string {
	return s.why(settings, now)
}

const ObservationLife = observationLife
