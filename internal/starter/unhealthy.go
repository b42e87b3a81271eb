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
	// Slow reports whether an attempt is likely to take long or to be deferred.
	Slow(id webhook.EndpointID) bool
	// Forecast predicts the admission of a new delivery.
	Forecast(id webhook.EndpointID) admission.Forecast
	// Releasable is how many held deliveries are to be released now.
	Releasable(id webhook.EndpointID) int
}

// setAside reports that a delivery is to an unhealthy endpoint. It is then collected with others, in
// a queue with a bound of its own, and its permit is released.
func (d *Starter) setAside(start webhook.Start) bool {
	if d.admission == nil || start.Resume != nil || d.needsOwnWorkflow(&start) {
		return false
	}
	forecast := d.admission.Forecast(start.EndpointID)
	if !forecast.Unhealthy && forecast.Wait <= unhealthyWait && !d.heldEndpoints.isFaulty(start.EndpointID) {
		return false
	}
	aside := d.unhealthy.Put(start.TenantID, start)
	if aside {
		d.permits.Release(start.TenantID, 1)
	}
	return aside
}

// startUnhealthy starts the deliveries to unhealthy endpoints, in as few workflows as possible.
func (d *Starter) startUnhealthy() {
	for d.waitFor(d.unhealthy.Ready, unhealthyWait) {
		for full := true; full && !d.stopping(); { // what is left after the last full workflow waits again
			batch := d.nextUnhealthy()
			d.startEach(d.startShared(batch))
			full = len(batch) == d.maxPerWorkflow
		}
	}
}

func (d *Starter) nextUnhealthy() (batch []webhook.Start) {
	now := time.Now()
	for len(batch) < d.maxPerWorkflow {
		start, ok := d.unhealthy.Next()
		if !ok {
			break
		}
		if !d.leftToRelay(&start, now) {
			batch = append(batch, start)
		}
	}
	return batch
}
