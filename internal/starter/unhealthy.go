package starter

import (
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// unhealthyWait is how long deliveries to unhealthy endpoints are collected for one workflow. They
// are retried, or take long, in any case, and a workflow for each would cost ten times as much.
const unhealthyWait = time.Second

// AdmissionForecast is what the starter uses of an admission.Controller.
type AdmissionForecast interface {
	// LikelySlow reports whether an attempt is likely to take long or to be deferred.
	LikelySlow(id webhook.EndpointID) bool
	// Forecast predicts the admission of a new delivery.
	Forecast(id webhook.EndpointID) admission.Forecast
	// Admits reports whether this process admits the requests to an endpoint. If not, another process does, and releases its
	// held deliveries.
	Admits(id webhook.EndpointID) bool
	// Releasable is how many held deliveries are to be released now.
	Releasable(id webhook.EndpointID) int
}

// setAside reports that a delivery is to an unhealthy endpoint. It is then collected with others, in
// a queue with a bound of its own, and its permit is released.
func (s *Starter) setAside(start webhook.Start) bool {
	if s.admission == nil || start.Resume != nil || s.needsOwnWorkflow(&start) {
		return false
	}
	forecast := s.admission.Forecast(start.EndpointID)
	if !forecast.Unhealthy && forecast.Wait <= unhealthyWait && !s.heldEndpoints.isFaulty(start.EndpointID) {
		return false
	}
	aside := s.unhealthy.Put(start.TenantID, start)
	if aside {
		s.permits.Release(start.TenantID, 1)
	}
	return aside
}

// startUnhealthy starts the deliveries to unhealthy endpoints, in as few workflows as possible.
func (s *Starter) startUnhealthy() {
	for s.waitFor(s.unhealthy.Ready, unhealthyWait) {
		for full := true; full && !s.stopping(); { // what is left after the last full workflow waits again
			batch := s.nextUnhealthy()
			s.startEach(s.startGroups(batch))
			full = len(batch) == s.maxPerWorkflow
		}
	}
}

func (s *Starter) nextUnhealthy() (batch []webhook.Start) {
	now := time.Now()
	for len(batch) < s.maxPerWorkflow {
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
func (s *Starter) leaveUnhealthy() {
	var left []webhook.Start
	for start, ok := s.unhealthy.Next(); ok; start, ok = s.unhealthy.Next() {
		left = append(left, start)
	}
	s.leave(left...)
}
