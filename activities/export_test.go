package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// MaxEager is for tests.
const MaxEager = maxEager

// UnderWay is how many eager requests are under way that are not slow.
func (e *EagerRequests) UnderWay() int { return e.eagerPlaces.InUse() }

// HoldPayloads takes the room of payloads of a tenant, as its attempts would.
func (a *Attempts) HoldPayloads(tenant string, bytes int) (release func()) {
	room := payloadRoom{of: a.payloads, tenant: tenant}
	room.fit(bytes)
	return room.release
}

// PayloadBytes is how much room attempts hold.
func (a *Attempts) PayloadBytes() int { return a.payloads.InUse() * payloadStep }

// Attempt makes one attempt as Attempts does, and returns its fault as it is, which is not recorded.
func (a *Attempts) Attempt(ctx context.Context, in AttemptInput) (AttemptResult, error) {
	exec, err := a.startOrJoin(in)
	if err != nil {
		return AttemptResult{}, err
	}
	limit := time.NewTimer(a.waitFor(in))
	defer limit.Stop()
	select {
	case <-exec.done:
		return exec.result, exec.err
	case <-limit.C:
		return a.leaveRunning(ctx, exec, in)
	}
}

// RecordStep writes one step as RecordSteps does, and returns its fault as it is.
func (s *Steps) RecordStep(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
	return s.recordStep(ctx, step, s.fastWait)
}

// PostWithHeaders makes the request of an event with headers, as an attempt does.
func PostWithHeaders(ctx context.Context, sender Sender, target *webhook.Target, headers map[string]string) (webhook.Attempt, error) {
	event, now := webhook.NewEventID(), time.Now()
	m := message{
		event: event, delivery: webhook.DeliveryIDOf(event, target.ID), eventType: "order.paid", created: now, number: 1, headers: headers, run: 1,
	}
	made, _, err := post(ctx, sender, now, target, m, []byte(`{"order":17}`))
	return made, err
}
