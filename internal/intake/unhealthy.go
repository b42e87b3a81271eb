package intake

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// unhealthyWait is how long deliveries to unhealthy endpoints are collected for one workflow. They
// are retried, or take long, in any case, and a workflow for each would cost ten times as much.
const unhealthyWait = time.Second

// setAside reports that a delivery is to an unhealthy endpoint. It is then collected with others, in
// a queue with a bound of its own, and its permit is released.
func (s *starts) setAside(start webhook.Start) bool {
	if s.admission == nil || start.Resume != nil || s.engine.NeedsOwn(&start) {
		return false
	}
	forecast := s.admission.Forecast(start.EndpointID)
	if !forecast.Unhealthy && forecast.Wait <= unhealthyWait && !s.isFaulty(start.EndpointID) {
		return false
	}
	aside := s.unhealthy.Put(start.TenantID, start)
	if aside {
		s.queue.release(&start)
	}
	return aside
}

// startUnhealthy starts the deliveries to unhealthy endpoints, in as few workflows as possible.
func (s *starts) startUnhealthy() {
	made := newStarters(s.patience)
	defer made.stop()
	for s.awaitUnhealthy() {
		for full := true; full && !s.lifetime.Stopped(); { // what is left after the last full workflow waits again
			batch := s.nextUnhealthy()
			groups, single := s.group(batch)
			made.do(func() { s.engine.Start(groups, single) })
			full = len(batch) == s.engine.MaxPerWorkflow()
		}
	}
}

// awaitUnhealthy waits for a delivery to an unhealthy endpoint, and then for others. It returns false when the process stops.
func (s *starts) awaitUnhealthy() bool {
	stopping := s.lifetime.Stopping().Done()
	select {
	case <-stopping:
		return false
	case <-s.unhealthy.Ready:
	}
	timer := time.NewTimer(unhealthyWait)
	defer timer.Stop()
	select {
	case <-stopping:
		return false
	case <-timer.C:
		return true
	}
}

func (s *starts) nextUnhealthy() (batch []webhook.Start) {
	now := time.Now()
	for len(batch) < s.engine.MaxPerWorkflow() {
		start, ok := s.unhealthy.Next()
		if !ok {
			break
		}
		if !s.leftToRelay(&start, now) {
			batch = append(batch, start)
		}
	}
	return batch
}

// leaveUnhealthy leaves what was collected and not started to another process.
func (s *starts) leaveUnhealthy() {
	var left []webhook.Start
	for start, ok := s.unhealthy.Next(); ok; start, ok = s.unhealthy.Next() {
		left = append(left, start)
	}
	s.leave(left...)
}
