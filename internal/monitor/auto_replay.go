package monitor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxReplays bounds the endpoints that wait for a replay after their outage.
	maxReplays = 10_000
	// replayTries is how often the start of a replay is tried, over about two minutes. replayRetryAfter is the pause
	// before the second try; each further pause is twice as long.
	replayTries      = 8
	replayRetryAfter = time.Second
	// replayTimeout bounds one try.
	replayTimeout = 10 * time.Second
	// outageMargin is how long before the opening of the circuit an outage is taken to have begun: a circuit opens only
	// after a while of failures (a minute, by default).
	outageMargin = 2 * time.Minute
)

// Replays stores replays.
type Replays interface {
	// AutoReplay stores a replay of the dead letters of an endpoint since a time; false when the endpoint does not ask for
	// that, or there is nothing to replay.
	AutoReplay(ctx context.Context, tenantID string, id webhook.EndpointID, since time.Time) (r webhook.Replay, begun bool, err error)
}

// outageReplay is the replay that follows an outage.
type outageReplay struct {
	since time.Time
	tries int       // that failed
	next  time.Time // when to try again
}

// replayQueue holds the endpoints that wait for a replay.
type replayQueue struct {
	mu      sync.Mutex
	waiting map[webhook.EndpointID]outageReplay
	dropped int // because the queue was full, since take reported it
	wake    chan struct{}
}

func newReplayQueue() *replayQueue {
	return &replayQueue{waiting: map[webhook.EndpointID]outageReplay{}, wake: make(chan struct{}, 1)}
}

// put adds an endpoint. An endpoint that waits already gets one replay, since its first outage.
func (q *replayQueue) put(id webhook.EndpointID, r outageReplay) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, waits := q.waiting[id]
	switch {
	case waits && known.since.Before(r.since):
		r.since = known.since
	case !waits && len(q.waiting) >= maxReplays:
		q.dropped++
		return
	}
	q.waiting[id] = r
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take removes and returns one that is due. When none is due, wait is how long that will be so unless one is put, and
// dropped is how many were dropped.
func (q *replayQueue) take(now time.Time) (id webhook.EndpointID, r outageReplay, wait time.Duration, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = time.Hour
	for id, r := range q.waiting {
		if !r.next.After(now) {
			delete(q.waiting, id)
			return id, r, 0, 0
		}
		wait = min(wait, r.next.Sub(now))
	}
	dropped, q.dropped = q.dropped, 0
	return id, r, wait, dropped
}

// takeAll removes and returns all, due or not.
func (q *replayQueue) takeAll() map[webhook.EndpointID]outageReplay {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting = map[webhook.EndpointID]outageReplay{}
	return all
}

// autoReplayer replays the dead letters of outages. It does not share a goroutine with the operational events, because
// the start of a replay may take seconds, and fail.
type autoReplayer struct {
	store     Replays
	endpoints Endpoints
	starter   Starter
	log       *slog.Logger
	now       func() time.Time // the database's clock
	queue     *replayQueue
}

// run starts replays, one after the other, until ctx ends.
func (a *autoReplayer) run(ctx context.Context) {
	for ctx.Err() == nil {
		id, r, wait, dropped := a.queue.take(time.Now())
		if wait == 0 {
			a.try(ctx, id, r)
			continue
		}
		if dropped > 0 {
			a.log.WarnContext(ctx, "too many outages ended at once; dead letters of some are not replayed automatically", "endpoints", dropped)
		}
		select {
		case <-ctx.Done():
		case <-a.queue.wake:
		case <-time.After(wait):
		}
	}
}

// try starts a replay, or queues it again for a later time.
func (a *autoReplayer) try(ctx context.Context, id webhook.EndpointID, r outageReplay) {
	err := a.start(ctx, id, r.since)
	if err == nil {
		return
	}
	if ctx.Err() == nil { // else Stop tries it once more
		r.tries++
		r.next = time.Now().Add(replayRetryAfter << (r.tries - 1))
	}
	if r.tries >= replayTries {
		a.log.WarnContext(ctx, "dead letters of an outage are not replayed automatically", "endpoint", id, "tries", r.tries, "error", err)
		return
	}
	a.queue.put(id, r)
}

// startAll tries once to start each replay that waits, until ctx ends, and returns how many failed.
func (a *autoReplayer) startAll(ctx context.Context) (left int) {
	for id, r := range a.queue.takeAll() {
		if ctx.Err() != nil || a.start(ctx, id, r.since) != nil {
			left++
		}
	}
	return left
}

// start starts a replay of the dead letters of an outage, if its endpoint asks for that.
func (a *autoReplayer) start(ctx context.Context, id webhook.EndpointID, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	target, err := a.endpoints.Target(ctx, id)
	if webhook.CodeOf(err) == webhook.CodeNotFound || err == nil && !target.AutoReplay {
		return nil
	}
	if err != nil {
		return err
	}
	since = ByClock(a.now, since).Add(-max(outageMargin, target.CircuitBreaker.Window)).UTC().Truncate(time.Microsecond)
	r, begun, err := a.store.AutoReplay(ctx, target.TenantID, target.ID, since)
	if webhook.CodeOf(err) == webhook.CodeNotFound { // deleted meanwhile
		return nil
	}
	if err != nil || !begun {
		return err
	}
	a.log.InfoContext(ctx, "an outage is over: its dead letters are replayed", "endpoint", target.ID, "replay", r.ID)
	a.starter.WakeReplay(ctx, r)
	return nil
}
