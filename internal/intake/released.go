package intake

import (
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// releasedLength bounds the workflows of released deliveries that wait for their start.
	releasedLength = 1000
	// yieldStep is how often the start of released deliveries looks whether new ones wait, and longestYield for how long it lets them go first: at a
	// rate at which some always wait, released ones go on, too.
	yieldStep, longestYield = 10 * time.Millisecond, time.Second
)

// releasedGroup are released deliveries that share a workflow.
type releasedGroup struct {
	starts   []webhook.Start
	queuedAt time.Time
}

// Released queues deliveries that were released from a hold for their start in the workflows that the outbox names, fairly among tenants and behind
// new deliveries. All of a workflow are among them. It never blocks: what does not fit, or waits too long, is started by the relay.
func (i *Intake) Released(all []webhook.Start) {
	now, groups := time.Now(), map[string]*releasedGroup{}
	var order []*releasedGroup
	for _, start := range all {
		g := groups[start.AssignedTo]
		if g == nil {
			g = &releasedGroup{queuedAt: now}
			groups[start.AssignedTo], order = g, append(order, g)
		}
		g.starts = append(g.starts, start)
	}
	for _, g := range order {
		_ = i.starts.released.Put(g.starts[0].TenantID, g)
	}
}

// startReleased starts released deliveries while no new ones wait, a few workflows at a time.
func (s *starts) startReleased() {
	made := newStarters(s.patience)
	defer made.stop()
	for !s.lifetime.Stopped() { // select would choose any case that is ready
		select {
		case <-s.lifetime.Stopping().Done():
		case <-s.released.Ready:
			for batch := s.nextReleased(); len(batch) > 0 && !s.lifetime.Stopped(); batch = s.nextReleased() {
				made.do(func() { s.engine.Assigned(batch) })
			}
		}
	}
}

// nextReleased lets new deliveries go first, and takes the next released ones, of one tenant after the other.
func (s *starts) nextReleased() (batch []webhook.Start) {
	if s.released.Len() == 0 {
		return nil
	}
	s.yield()
	for groups := 0; groups < engine.ConcurrentLookups && !s.lifetime.Stopped(); {
		g, ok := s.released.Next()
		if !ok {
			return batch
		}
		if time.Since(g.queuedAt) < queueTime && s.health.Up() {
			batch, groups = append(batch, g.starts...), groups+1
		}
	}
	return batch
}

// yield waits until no new deliveries wait for their start, for a second at most.
func (s *starts) yield() {
	step := time.NewTicker(yieldStep)
	defer step.Stop()
	for began := time.Now(); s.queue.waiting.Len() > 0 && time.Since(began) < longestYield; {
		select {
		case <-s.lifetime.Stopping().Done():
			return
		case <-step.C:
		}
	}
}

// leaveReleased leaves released deliveries that were not started to another process.
func (s *starts) leaveReleased() {
	var left []webhook.Start
	for g, ok := s.released.Next(); ok; g, ok = s.released.Next() {
		left = append(left, g.starts...)
	}
	s.leave(left...)
}
