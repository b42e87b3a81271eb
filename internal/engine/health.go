package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/everpost/everpost/workflows"
)

const (
	// checkEvery is how often Temporal is checked. The timeout is generous: a busy Temporal is not down.
	checkEvery   = time.Second
	checkTimeout = 3 * time.Second
	// Patience is how long who has no room for more may wait for Temporal, before it counts as overloaded.
	Patience = time.Second
	// suspectAfter is how long a call may go without an answer. It is shorter than Patience, so
	// that no request is refused before the check has begun.
	suspectAfter = 3 * Patience / 4
	// verdictTimeout is how long Verdict waits: for the check under way and the next one.
	verdictTimeout = 2 * checkTimeout
	// A start that fails at once is tried checkTries times, checkPause apart. A single shard may just
	// be moving to another host.
	checkTries = 3
	checkPause = 100 * time.Millisecond
	// checkLife is the timeout of a check's workflow that no worker takes.
	checkLife = 10 * time.Second
)

// Health is whether Temporal is available.
//
// Temporal is down when nothing can be written to it. Its health check says nothing of its history
// shards and its database. While nothing is suspected, the check makes health checks only. A call that
// is late or fails raises a suspicion. Then, and as long as Temporal is down, the check starts a
// workflow that does nothing, and the result of that start is the verdict.
type Health struct {
	client    client.Client
	namespace string
	lifetime  *Lifetime
	log       *slog.Logger
	now       func() time.Time

	down        atomic.Bool   // Temporal cannot be written to; deliveries stay in the outbox
	downAt      atomic.Int64  // since when, in microseconds of Unix time
	recovered   chan struct{} // receives a value when Temporal is available again
	checkNow    chan struct{} // wakes the check
	suspicionMu sync.Mutex
	suspicion   chan struct{} // closed by the check's verdict; nil while nothing is suspected
}

func newHealth(c *Config, lifetime *Lifetime) *Health {
	return &Health{
		client: c.Client, namespace: c.Namespace, lifetime: lifetime, log: c.Logger, now: c.Now,
		recovered: make(chan struct{}, 1), checkNow: make(chan struct{}, 1),
	}
}

// Up reports whether Temporal was available when it was last checked.
func (h *Health) Up() bool { return !h.down.Load() }

// TemporalDownSince is since when Temporal has not been available; zero if it is.
func (h *Health) TemporalDownSince() time.Time {
	if h.Up() {
		return time.Time{}
	}
	return time.UnixMicro(h.downAt.Load()).UTC()
}

// Recovered gets a value when Temporal is available again. One of its receivers gets it.
func (h *Health) Recovered() <-chan struct{} { return h.recovered }

// classify decides what the result of a call says of Temporal. A call that failed only raises a
// suspicion: a busy Temporal is not down, nor is one that has lost one shard of many, and while it
// counts as down, nothing limits the intake.
func (h *Health) classify(err error) {
	switch {
	case err == nil, isGone(err): // not started yet, or ended; the command is in the store
	case isUnavailable(err), isLate(err):
		h.suspect()
	default:
		h.log.Error("Temporal refused a call; it will be repeated from the outbox", "error", err)
		if !isBusy(err) && !isInvalid(err) {
			h.suspect()
		}
	}
}

func isGone(err error) bool {
	_, ok := errors.AsType[*serviceerror.NotFound](err)
	return ok
}

func isUnavailable(err error) bool {
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	return unavailable
}

func isLate(err error) bool {
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	return late || errors.Is(err, context.DeadlineExceeded)
}

// isBusy reports that a limit was exceeded, which says nothing of whether Temporal can be written to.
func isBusy(err error) bool {
	_, busy := errors.AsType[*serviceerror.ResourceExhausted](err)
	return busy
}

// isInvalid reports an error of the call itself.
func isInvalid(err error) bool {
	_, invalid := errors.AsType[*serviceerror.InvalidArgument](err)
	return invalid
}

// MarkDown notes that Temporal is not available, and ends a suspicion.
func (h *Health) MarkDown(err error) {
	if !h.down.Load() {
		h.downAt.Store(h.now().UnixMicro()) // before it counts as down
	}
	if h.down.CompareAndSwap(false, true) {
		h.log.Warn("Temporal does not answer, or cannot write; events are still accepted and will be delivered when it is back", "error", err)
	}
	h.settle()
}

// MarkUp notes that Temporal is available.
func (h *Health) MarkUp() {
	if h.down.CompareAndSwap(true, false) {
		h.log.Info("Temporal can be written to again")
		select {
		case h.recovered <- struct{}{}:
		default: // a value is pending
		}
	}
}

// suspect has the check find out at once whether Temporal can be written to.
func (h *Health) suspect() {
	h.suspicionMu.Lock()
	defer h.suspicionMu.Unlock()
	if h.suspicion == nil {
		h.suspicion = make(chan struct{})
	}
	select {
	case h.checkNow <- struct{}{}:
	default:
	}
}

// suspected returns a channel that is closed by the next verdict; nil if nothing is suspected.
func (h *Health) suspected() <-chan struct{} {
	h.suspicionMu.Lock()
	defer h.suspicionMu.Unlock()
	return h.suspicion
}

// settle ends the suspicion with which a check began. One that was raised since then is left to the
// next check, unless Temporal is down.
func (h *Health) settle() {
	h.suspicionMu.Lock()
	defer h.suspicionMu.Unlock()
	if h.suspicion != nil && (h.down.Load() || len(h.checkNow) == 0) {
		close(h.suspicion)
		h.suspicion = nil
	}
}

// Down reports whether Temporal is down. While that is suspected, it waits for the verdict.
func (h *Health) Down(ctx context.Context) bool {
	suspicion := h.suspected()
	if suspicion == nil || h.down.Load() {
		return h.down.Load()
	}
	timer := time.NewTimer(verdictTimeout)
	defer timer.Stop()
	select {
	case <-suspicion:
	case <-h.lifetime.Stopping().Done():
	case <-ctx.Done():
	case <-timer.C:
	}
	return h.down.Load()
}

// run finds out again and again whether Temporal is down. A start would find out, too, but only
// after its timeout, while the queue grows.
func (h *Health) run() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var wrote time.Time
	for {
		var err error
		switch {
		case h.down.Load() || h.suspected() != nil && time.Since(wrote) >= suspectAfter:
			if err = h.tryWrite(); err == nil {
				wrote = time.Now()
				h.MarkUp()
			}
		case h.suspected() == nil:
			err = h.checkHealth()
		}
		if h.lifetime.Stopped() {
			return
		}
		if err != nil && !isBusy(err) { // busy changes nothing
			h.MarkDown(err)
		}
		h.settle()
		select {
		case <-h.lifetime.Stopping().Done():
			return
		case <-h.checkNow:
		case <-tick.C:
		}
	}
}

func (h *Health) checkHealth() error {
	ctx, cancel := context.WithTimeout(h.lifetime.Calls(), checkTimeout)
	defer cancel()
	_, err := h.client.CheckHealth(ctx, &client.CheckHealthRequest{})
	return err //nolint:wrapcheck // MarkDown logs it
}

// tryWrite starts a workflow that does nothing. Each has a new id, and so any shard. If no worker takes
// it, it ends by its timeout. tryWrite does not use the SDK's retries, which hide the answers.
func (h *Health) tryWrite() (err error) {
	ctx, cancel := context.WithTimeout(h.lifetime.Calls(), checkTimeout)
	defer cancel()
	for range checkTries {
		id := "probe/" + rand.Text()
		_, err = h.client.WorkflowService().StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
			Namespace: h.namespace, WorkflowId: id, RequestId: id, WorkflowType: &commonpb.WorkflowType{Name: workflows.ProbeName},
			TaskQueue:                &taskqueuepb.TaskQueue{Name: workflows.TaskQueue},
			WorkflowExecutionTimeout: durationpb.New(checkLife),
		})
		if !isUnavailable(err) {
			return err //nolint:wrapcheck // MarkDown logs it
		}
		select {
		case <-time.After(checkPause):
		case <-ctx.Done():
			return err //nolint:wrapcheck // as above
		}
	}
	return err //nolint:wrapcheck // as above
}
