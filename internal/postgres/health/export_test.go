// What the tests look into.

package health

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

type Failures = failures

func (s *failures) Add(a0 *webhook.EndpointFailures, a1 webhook.AutoDisable, a2 time.Time) {
	s.add(a0, a1, a2)
}
func (s *failures) Empty() bool                                     { return s.empty() }
func (s *failures) Why(a0 webhook.AutoDisable, a1 time.Time) string { return s.why(a0, a1) }

const SeenLife = seenLife
