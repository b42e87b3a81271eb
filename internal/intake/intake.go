// Package intake takes over the deliveries that the API has stored, until Temporal has their workflows. It sends the first request at once if
// it can, and otherwise queues the delivery for its start, fairly among tenants; where processes share limits, it forwards the delivery to the
// process that admits the requests to its endpoint.
//
// Nothing here has to succeed: a delivery has an outbox row, from which the relay of package recovery starts what this process does not, because
// its queue is full, Temporal is away, or it stops or dies. A gathering has none, because its deliveries were delivered.
//
// The files, from the bottom up:
//
//	fresh_token  payloads for the first attempts
//	config       what an intake needs
//	gathering    workflows of deliveries that eager requests have delivered
//	start_queue  what waits for a start
//	starts       the start of a batch
//	starters     starts that are not waited for longer than a moment
//	unhealthy    deliveries to unhealthy endpoints, collected before their start
//	released     deliveries that were released from a hold, behind all new ones
//	start_loop   takes what is queued, as one start
//	eager_start  the start after an eager request
//	accept       what this process starts: the eager request, the queue
//	forward      what goes to another process, and comes from one
//	intake       room for what is about to be stored, and what was stored
package intake

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// reserveTimeout is how long ReserveRoom waits.
const reserveTimeout = engine.Patience

// Intake takes over deliveries from the API. It has the lifetime of its engine.
type Intake struct {
	*forwarding

	loops int
}

// New returns an intake. It queues, and Start begins its work.
func New(c Config) *Intake {
	length := cmp.Or(c.QueueLength, 1000)
	if c.Now == nil {
		c.Now = time.Now
	}
	e, queue := c.Engine, newStartQueue(length)
	here := &local{
		health: e.Health, lifetime: e.Lifetime, requests: c.Requests, fresh: c.Fresh, now: c.Now, queue: queue,
		starts: &starts{
			engine: e.Starts, calls: e.Calls, health: e.Health, lifetime: e.Lifetime,
			admission: c.Admission, faults: c.Faults, outbox: c.Outbox, log: c.Logger,
			patience: startPatience, queue: queue, unhealthy: fair.New[webhook.Start](length),
			released: fair.New[*releasedGroup](releasedLength), gatherings: newGatherings(e.Starts.MaxPerWorkflow()),
		},
	}
	return &Intake{
		forwarding: &forwarding{local: here, admission: c.Admission, forwarder: c.Forwarder, reading: make(chan struct{}, maxReading)},
		loops:      cmp.Or(c.StartLoops, 1),
	}
}

// Start begins the work, which ends with the engine's lifetime. What is not started by then is left to another process, by the outbox.
func (i *Intake) Start() {
	i.started.Store(true)
	i.lifetime.Go(func() {
		var loops sync.WaitGroup
		for range i.loops {
			loops.Go(i.starts.run)
		}
		if i.admission != nil {
			loops.Go(i.starts.startUnhealthy)
			loops.Go(i.starts.startReleased)
		}
		loops.Wait()
		i.starts.leaveUnhealthy()
		i.starts.leaveReleased()
	})
}

// Waiting is how many deliveries wait for their start in this process.
func (i *Intake) Waiting() int { return i.queue.waiting.Len() + i.starts.unhealthy.Len() }

// ReserveRoom waits up to 1 s until the tenant may queue the deliveries of n events that are about to be
// stored. It does not wait because of what other tenants have queued beyond their share. The caller
// calls release once, after Accepted or when it accepts nothing.
//
// While Temporal is not available, and after the process has begun to stop, ReserveRoom does not wait, because nothing is queued
// then. A process that forwards does wait without Temporal. If the queue is full and Temporal is suspected not to be available, ReserveRoom waits for the
// check's verdict.
func (i *Intake) ReserveRoom(ctx context.Context, tenantID string, n int) (release func(), err error) {
	if i.startsNothing() {
		return func() {}, nil
	}
	if i.queue.permits.Acquire(ctx, tenantID, n, reserveTimeout) {
		return func() { i.queue.permits.Release(tenantID, n) }, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, &webhook.Error{Code: webhook.CodeUnavailable, Message: "the request was abandoned", Err: err}
	}
	if i.health.Down(ctx) || i.lifetime.Stopped() {
		return func() {}, nil
	}
	return nil, &webhook.Error{
		Code: webhook.CodeUnavailable, Message: "more events are arriving than can be started; try again shortly", RetryAfter: time.Second,
	}
}

// Accepted queues deliveries that have just been committed, sends their first request at once, or forwards them. It never blocks and never fails: what
// does not fit into the queue, or comes when the process stops, is started by the relay.
func (i *Intake) Accepted(all ...webhook.Accepted) {
	if i.startsNothing() {
		return
	}
	for _, event := range all {
		elsewhere := event.Deliveries[:0:0]
		for n := range event.Deliveries {
			if i.forwards(event.Deliveries[n].EndpointID) {
				elsewhere = append(elsewhere, event.Deliveries[n])
			} else {
				i.accept(&event, &event.Deliveries[n])
			}
		}
		if len(elsewhere) > 0 {
			event.Deliveries = elsewhere
			i.forward(event)
		}
	}
}

// startsNothing reports that new deliveries are left to the relay. Without Temporal they can still be forwarded: another process may
// reach it.
func (i *Intake) startsNothing() bool {
	return i.lifetime.Stopped() || i.forwarder == nil && !i.health.Up()
}
