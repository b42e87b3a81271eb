package intake

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// leaveTimeout bounds the access to PostgreSQL of a process that stops.
const leaveTimeout = time.Second

// starts makes the starts of what waits: the queue, the deliveries to unhealthy endpoints, what was released, and the gatherings.
type starts struct {
	engine    *engine.Starts
	calls     *engine.Calls
	health    *engine.Health
	lifetime  *engine.Lifetime
	admission Admission // nil without a worker
	faults    Faults    // nil: none are known
	outbox    Outbox    // nil: nothing is left to another process
	log       *slog.Logger

	patience   time.Duration // see startPatience
	queue      *startQueue
	unhealthy  *fair.Queue[webhook.Start]  // deliveries to unhealthy endpoints: see setAside
	released   *fair.Queue[*releasedGroup] // deliveries that were released from a hold
	gatherings *gatherings
}

// leftToRelay reports that a delivery has waited too long, or that Temporal is not available.
func (s *starts) leftToRelay(start *webhook.Start, now time.Time) bool {
	return !start.OwnWorkflow && now.Sub(start.ReceivedAt) >= queueTime || !s.health.Up()
}

// start starts deliveries: in as few workflows as possible, and in their own those that may not share
// one. Deliveries that are likely to take long share workflows among themselves.
func (s *starts) start(batch []webhook.Start) {
	s.gatherings.started(time.Now())
	var shared, slow, own []webhook.Start
	for _, start := range batch {
		switch {
		case s.engine.NeedsOwn(&start):
			own = append(own, start)
		case s.admission != nil && s.admission.LikelySlow(start.EndpointID):
			slow = append(slow, start)
		default:
			shared = append(shared, start)
		}
	}
	groups, single := s.group(shared)
	slowGroups, slowSingle := s.group(slow)
	s.engine.Start(append(groups, slowGroups...), append(append(single, slowSingle...), own...))
}

// group divides deliveries into as few groups as possible, and returns the one that is left
// over, if any: it needs no shared workflow.
func (s *starts) group(all []webhook.Start) (groups [][]webhook.Start, single []webhook.Start) {
	for len(all) > 1 || len(all) == 1 && s.isFaulty(all[0].EndpointID) { // which will only be held, and a shared workflow does that, too
		group := all[:min(s.engine.MaxPerWorkflow(), len(all))]
		all = all[len(group):]
		groups = append(groups, group)
	}
	return groups, all
}

func (s *starts) isFaulty(endpoint webhook.EndpointID) bool {
	return s.faults != nil && s.faults.IsFaulty(endpoint)
}

// leave lets another process, or the next life of this one, start deliveries at once that this process has not tried to start.
func (s *starts) leave(starts ...webhook.Start) {
	if len(starts) == 0 || s.outbox == nil {
		return
	}
	ids := make([]webhook.DeliveryID, len(starts))
	for i := range starts {
		ids[i] = starts[i].DeliveryID
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.lifetime.Calls()), leaveTimeout)
	defer cancel()
	if err := s.outbox.MakeDue(ctx, ids); err != nil {
		s.log.WarnContext(ctx, "deliveries that this process has not started are started by another one a few seconds later", "count", len(ids), "error", err)
	}
}
