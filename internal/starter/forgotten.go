package starter

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// forgottenEvery is how often all endpoints are looked at for what is held although they are
// active: so it goes on within a minute, whatever it was held by.
const forgottenEvery = 20 * time.Second

// Forgotten is what is held for active endpoints, and what no release has before it.
type Forgotten interface {
	// ForgottenEndpoints are up to limit endpoints with such deliveries, in the order of
	// their ids, after the given one.
	ForgottenEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error)
	// ReleaseForgotten releases such deliveries of an endpoint, as ReleaseBacklog does.
	ReleaseForgotten(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error)
}

// Resumed says that an endpoint may have become active: what is held for it behind the back of
// its release is looked for at once, and for a few seconds.
func (d *Starter) Resumed(endpoint webhook.EndpointID) {
	if d.forgottenStore != nil {
		d.forgotten.add(time.Now(), endpoint)
	}
}

// releaseForgotten lets go of what is held for active endpoints, as far as the gate has room
// for it.
func (d *Starter) releaseForgotten() {
	tick := time.NewTicker(releaseEvery)
	defer tick.Stop()
	var looked time.Time
	for {
		select {
		case <-d.stopped:
			return
		case <-tick.C:
		}
		if time.Since(looked) >= forgottenEvery && d.find(&d.forgotten, d.forgottenStore.ForgottenEndpoints) {
			looked = time.Now()
		}
		forEach(releaseWidth, d.forgotten.all(), func(id webhook.EndpointID) {
			if d.temporalDown.Load() || d.stopping() {
				return
			}
			began := time.Now()
			if !d.releaseSome(id, d.forgottenStore.ReleaseForgotten) {
				d.forgotten.forget(id, began)
			}
		})
	}
}
