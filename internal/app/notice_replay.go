package app

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxAutoReplays bounds the endpoints that wait for a replay after their outage.
	maxAutoReplays = 10_000
	// autoReplayTries is how often a replay is tried to be begun, for about two minutes:
	// autoReplayPause is before the second try, and twice as much before each that follows.
	autoReplayTries = 8
	autoReplayPause = time.Second
	// autoReplayTime bounds one try.
	autoReplayTime = 10 * time.Second
	// outageMargin is how long before the opening of its circuit an outage is taken to
	// have begun: an opening needs a while of failures (a minute, by default).
	outageMargin = 2 * time.Minute
)

// autoReplay is an outage that is over.
type autoReplay struct {
	since time.Time
	tries int       // that failed
	next  time.Time // when to try it again
}

// autoReplays holds the endpoints whose dead letters may be replayed. They are apart
// from the operational events because to begin one may take seconds, and fail.
type autoReplays struct {
	mu      *sync.Mutex
	waiting map[webhook.EndpointID]autoReplay
	lost    int // for want of a place, since it was told last
	wake    chan struct{}
}

func newAutoReplays() autoReplays {
	return autoReplays{mu: &sync.Mutex{}, waiting: map[webhook.EndpointID]autoReplay{}, wake: make(chan struct{}, 1)}
}

// put adds an endpoint. With one that waits already there is one replay, of both outages.
func (q *autoReplays) put(id webhook.EndpointID, r autoReplay) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, waits := q.waiting[id]
	switch {
	case waits && known.since.Before(r.since):
		r.since = known.since
	case !waits && len(q.waiting) >= maxAutoReplays:
		q.lost++
		return
	}
	q.waiting[id] = r
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take removes one whose time has come. When there is none it returns for how long there
// will be none, unless one is put, and how many were lost.
func (q *autoReplays) take(now time.Time) (id webhook.EndpointID, r autoReplay, wait time.Duration, lost int) {
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
	lost, q.lost = q.lost, 0
	return id, r, wait, lost
}

// takeAll removes all, whether their time has come or not.
func (q *autoReplays) takeAll() map[webhook.EndpointID]autoReplay {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting = map[webhook.EndpointID]autoReplay{}
	return all
}

// keepReplaying begins replays, one after the other, until ctx ends.
func (w *watch) keepReplaying(ctx context.Context) {
	for ctx.Err() == nil {
		id, r, wait, lost := w.replays.take(time.Now())
		if wait == 0 {
			w.tryReplay(ctx, id, r)
			continue
		}
		if lost > 0 {
			w.log.WarnContext(ctx, "more outages ended at once than can be followed; dead letters of some are not replayed by themselves", "endpoints", lost)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-w.replays.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tryReplay begins a replay, or has it tried again later: others come first then.
func (w *watch) tryReplay(ctx context.Context, id webhook.EndpointID, r autoReplay) {
	err := w.replay(ctx, id, r.since)
	if err == nil {
		return
	}
	if ctx.Err() == nil { // else it is tried once more at the end
		r.tries++
		r.next = time.Now().Add(autoReplayPause << (r.tries - 1))
	}
	if r.tries >= autoReplayTries {
		w.log.WarnContext(ctx, "dead letters of an outage are not replayed by themselves", "endpoint", id, "tries", r.tries, "error", err)
		return
	}
	w.replays.put(id, r)
}

// replayAll tries once to begin what waits, until ctx ends, and returns how many failed.
func (w *watch) replayAll(ctx context.Context) (left int) {
	for id, r := range w.replays.takeAll() {
		if ctx.Err() != nil || w.replay(ctx, id, r.since) != nil {
			left++
		}
	}
	return left
}

// replay begins a replay of the dead letters of an outage that is over, if its endpoint
// asks for that.
func (w *watch) replay(ctx context.Context, id webhook.EndpointID, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, autoReplayTime)
	defer cancel()
	target, err := w.store.Endpoints.Cache().Target(ctx, id)
	if webhook.CodeOf(err) == webhook.CodeNotFound || err == nil && !target.AutoReplay {
		return nil
	}
	if err != nil {
		return err
	}
	since = since.Add(-max(outageMargin, target.CircuitBreaker.Window)).UTC().Truncate(time.Microsecond)
	r, begun, err := w.store.Replays.AutoReplay(ctx, target.TenantID, target.ID, since)
	if webhook.CodeOf(err) == webhook.CodeNotFound { // it was deleted meanwhile
		return nil
	}
	if err != nil || !begun {
		return err
	}
	w.log.InfoContext(ctx, "an outage is over: its dead letters are replayed", "endpoint", target.ID, "replay", r.ID)
	w.dispatcher.WakeReplay(ctx, r)
	return nil
}
