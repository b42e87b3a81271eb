package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxNotices bounds the operational events that wait to be stored.
	maxNotices = 10_000
	// noticeBatch is how many are stored together.
	noticeBatch = 500
	// noticePause is after how long they are tried again when the record is away.
	noticePause = time.Second
	// noticeTime bounds one try.
	noticeTime = 20 * time.Second
	// noticePatience is how long a batch waits for room among the starts.
	noticePatience = 50 * time.Millisecond
	// lostEvery is how often it is logged that some were dropped.
	lostEvery = 10 * time.Second
)

// job is an operational event to be stored. That of an endpoint names it, and is filled
// in when it is its turn.
type job struct {
	notice   webhook.Notice
	endpoint webhook.EndpointID
}

// noticeQueue holds what waits to be stored. It never blocks who puts something in.
type noticeQueue struct {
	mu     *sync.Mutex
	jobs   []job
	lost   int // since it was told last
	toldAt time.Time
	wake   chan struct{}
}

func newNoticeQueue() noticeQueue {
	return noticeQueue{mu: &sync.Mutex{}, wake: make(chan struct{}, 1)}
}

// put adds a job; false when there is no place for it. lost is how many were lost since
// that was told last, when it is to be told now.
func (q *noticeQueue) put(j job, now time.Time) (ok bool, lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) >= maxNotices {
		q.lost++
		if now.Sub(q.toldAt) >= lostEvery {
			lost, q.lost, q.toldAt = q.lost, 0, now
		}
		return false, lost
	}
	q.jobs = append(q.jobs, j)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true, 0
}

// first are the next jobs, which stay until they are dropped.
func (q *noticeQueue) first() []job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.jobs[:min(len(q.jobs), noticeBatch):min(len(q.jobs), noticeBatch)]
}

// drop removes the first n, and returns how many are left.
func (q *noticeQueue) drop(n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.jobs[:n])
	if q.jobs = q.jobs[n:]; len(q.jobs) == 0 {
		q.jobs = nil
	}
	return len(q.jobs)
}

// note puts a job into the queue.
func (w *watch) note(j job) {
	if j.notice.Key == "" { // so that it can be stored again when it is not known whether it was
		j.notice.Key = fmt.Sprintf("%s/%s/%d", j.notice.Type, j.endpoint, j.notice.At.UnixMicro())
	}
	ok, lost := w.queue.put(j, time.Now())
	if !ok {
		w.NoticesLost(1)
	}
	if lost > 0 {
		w.log.Warn("more operational events than can be stored; some were dropped", "count", lost)
	}
}

// keepNotifying stores what is in the queue, until ctx ends.
func (w *watch) keepNotifying(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.queue.wake:
		}
		for w.notifyAll(ctx) > 0 { // the record is away
			pause := time.NewTimer(noticePause)
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
		}
	}
}

// notifyAll stores what is in the queue, and returns how much was left because the
// record could not be reached.
func (w *watch) notifyAll(ctx context.Context) (left int) {
	for {
		jobs := w.queue.first()
		if len(jobs) == 0 {
			return 0
		}
		if !w.notify(ctx, jobs) {
			return w.queue.drop(0)
		}
		w.queue.drop(len(jobs))
	}
}

// notify carries out jobs: together, and one by one when one of them is refused. False
// means that they are to be tried again.
func (w *watch) notify(ctx context.Context, jobs []job) bool {
	ctx, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	err := w.carryOut(ctx, jobs)
	if err == nil {
		return true
	}
	if ctx.Err() != nil || passes(err) {
		w.log.WarnContext(ctx, "operational events cannot be stored; trying on", "waiting", len(jobs), "error", err)
		return false
	}
	for i := range jobs {
		err := w.carryOut(ctx, jobs[i:i+1])
		if err != nil && (ctx.Err() != nil || passes(err)) {
			return false // what was stored is known by its key
		}
		if err != nil {
			w.NoticesLost(1)
			w.log.WarnContext(ctx, "an operational event was refused", "type", jobs[i].notice.Type, "error", err)
		}
	}
	return true
}

// passes reports an error that the same will not meet again later. Of several, one is
// enough: what was stored for others meanwhile is known by its key.
func passes(err error) bool {
	code := webhook.CodeOf(err)
	if code == webhook.CodeUnavailable || code == webhook.CodeConflict || code == webhook.CodeRateLimited {
		return true
	}
	several, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	return ok && slices.ContainsFunc(several.Unwrap(), passes)
}

// carryOut stores the operational events of jobs for whoever asked for them, and has
// their deliveries started.
func (w *watch) carryOut(ctx context.Context, jobs []job) error {
	notices := make([]webhook.Notice, 0, len(jobs))
	for i := range jobs {
		n, wanted, err := w.complete(ctx, &jobs[i])
		if err != nil {
			return err
		}
		if wanted {
			notices = append(notices, n)
		}
	}
	if len(notices) == 0 {
		return nil
	}
	stored, err := w.store.Events.Notify(ctx, notices)
	for i := range stored {
		w.Noticed(stored[i].Event.Type)
	}
	for same := range slices.Chunk(stored, webhook.MaxBatchEvents) {
		w.begin(ctx, same)
	}
	return err
}

// begin has the deliveries of what was stored started. Where more is starting than can
// be, they wait for the relay: the events that people post come first.
func (w *watch) begin(ctx context.Context, stored []webhook.Accepted) {
	ctx, cancel := context.WithTimeout(ctx, noticePatience)
	defer cancel()
	release, err := w.dispatcher.Reserve(ctx, stored[0].Event.TenantID, len(stored))
	if err != nil {
		return
	}
	defer release()
	w.dispatcher.Accepted(stored...)
}

// complete fills in a job's notice; false when nobody wants it.
func (w *watch) complete(ctx context.Context, j *job) (n webhook.Notice, wanted bool, err error) {
	n = j.notice
	if !j.endpoint.IsZero() {
		target, err := w.store.Endpoints.Cache().Target(ctx, j.endpoint)
		if webhook.CodeOf(err) == webhook.CodeNotFound { // it was deleted meanwhile
			return n, false, nil
		}
		if err != nil || target.OperationalOnly() { // operational events never cause others
			return n, false, err
		}
		n.TenantID, n.Endpoint = target.TenantID, &target.Endpoint
	}
	wanted, err = w.store.Events.Listens(ctx, n.TenantID, n.Type)
	return n, wanted, err
}
