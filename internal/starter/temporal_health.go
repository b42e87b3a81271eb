package starter

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/everpost/everpost/workflows"
)

// Temporal is down when nothing can be written to it. Its health check says nothing of its history
// shards and its database. While nothing is suspected, the check makes health checks only. A call that
// is late or fails raises a suspicion. Then, and as long as Temporal is down, the check starts a
// workflow that does nothing, and the result of that start is the verdict.

const (
	// checkEvery is how often Temporal is checked. The timeout is generous: a busy Temporal is not down.
	checkEvery   = time.Second
	checkTimeout = 3 * time.Second
	// suspectAfter is how long a call may go without an answer. It is shorter than ReserveRoom waits, so
	// that no request is refused before the check has begun.
	suspectAfter = 3 * reserveTimeout / 4
	// verdictTimeout is how long isDown waits: for the check under way and the next one.
	verdictTimeout = 2 * checkTimeout
	// A start that fails at once is tried checkTries times, checkPause apart. A single shard may just
	// be moving to another host.
	checkTries = 3
	checkPause = 100 * time.Millisecond
	// checkLife is the timeout of a check's workflow that no worker takes.
	checkLife = 10 * time.Second
)

// classifyResult decides what the result of a call says of Temporal. A call that failed only raises a
// suspicion: a busy Temporal is not down, nor is one that has lost one shard of many, and while it
// counts as down, nothing limits the intake.
func (s *Starter) classifyResult(err error) {
	switch {
	case err == nil, isGone(err): // not started yet, or ended; the command is in the store
	case isUnavailable(err), isLate(err):
		s.suspect()
	default:
		s.log.Error("Temporal refused a call; it will be repeated from the outbox", "error", err)
		if !isBusy(err) && !isInvalid(err) {
			s.suspect()
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

func (s *Starter) markDown(err error) {
	if !s.temporalDown.Load() {
		s.temporalDownAt.Store(s.now().UnixMicro()) // before it counts as down
	}
	if s.temporalDown.CompareAndSwap(false, true) {
		s.log.Warn("Temporal does not answer, or cannot write; events are still accepted and will be delivered when it is back", "error", err)
	}
}

func (s *Starter) markUp() {
	if s.temporalDown.CompareAndSwap(true, false) {
		s.log.Info("Temporal can be written to again")
		s.gatherings.wake()
	}
}

// suspect has the check find out at once whether Temporal can be written to.
func (s *Starter) suspect() {
	s.suspicionMu.Lock()
	defer s.suspicionMu.Unlock()
	if s.suspicion == nil {
		s.suspicion = make(chan struct{})
	}
	select {
	case s.checkNow <- struct{}{}:
	default:
	}
}

// suspected returns a channel that is closed by the next verdict; nil if nothing is suspected.
func (s *Starter) suspected() <-chan struct{} {
	s.suspicionMu.Lock()
	defer s.suspicionMu.Unlock()
	return s.suspicion
}

// settle ends the suspicion with which a check began. One that was raised since then is left to the
// next check, unless Temporal is down.
func (s *Starter) settle() {
	s.suspicionMu.Lock()
	defer s.suspicionMu.Unlock()
	if s.suspicion != nil && (s.temporalDown.Load() || len(s.checkNow) == 0) {
		close(s.suspicion)
		s.suspicion = nil
	}
}

// isDown reports whether Temporal is down. While that is suspected, it waits for the verdict.
func (s *Starter) isDown(ctx context.Context) bool {
	suspicion := s.suspected()
	if suspicion == nil || s.temporalDown.Load() {
		return s.temporalDown.Load()
	}
	timer := time.NewTimer(verdictTimeout)
	defer timer.Stop()
	select {
	case <-suspicion:
	case <-s.stopped:
	case <-ctx.Done():
	case <-timer.C:
	}
	return s.temporalDown.Load()
}

// checkTemporal finds out again and again whether Temporal is down. A start would find out, too, but only
// after its timeout, while the queue grows.
func (s *Starter) checkTemporal() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var wrote time.Time
	for {
		var err error
		switch {
		case s.temporalDown.Load() || s.suspected() != nil && time.Since(wrote) >= suspectAfter:
			if err = s.tryWrite(); err == nil {
				wrote = time.Now()
				s.markUp()
			}
		case s.suspected() == nil:
			err = s.checkHealth()
		}
		if s.stopping() {
			return
		}
		if err != nil && !isBusy(err) { // busy changes nothing
			s.markDown(err)
		}
		s.settle()
		select {
		case <-s.stopped:
			return
		case <-s.checkNow:
		case <-tick.C:
		}
	}
}

func (s *Starter) checkHealth() error {
	ctx, cancel := context.WithTimeout(s.life, checkTimeout)
	defer cancel()
	_, err := s.client.CheckHealth(ctx, &client.CheckHealthRequest{})
	return err //nolint:wrapcheck // markDown logs it
}

// tryWrite starts a workflow that does nothing. Each has a new id, and so any shard. If no worker takes
// it, it ends by its timeout. tryWrite does not use the SDK's retries, which hide the answers.
func (s *Starter) tryWrite() (err error) {
	ctx, cancel := context.WithTimeout(s.life, checkTimeout)
	defer cancel()
	for range checkTries {
		id := "probe/" + rand.Text()
		_, err = s.client.WorkflowService().StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
			Namespace: s.namespace, WorkflowId: id, RequestId: id, WorkflowType: &commonpb.WorkflowType{Name: workflows.ProbeName},
			TaskQueue:                &taskqueuepb.TaskQueue{Name: workflows.TaskQueue},
			WorkflowExecutionTimeout: durationpb.New(checkLife),
		})
		if !isUnavailable(err) {
			return err //nolint:wrapcheck // markDown logs it
		}
		select {
		case <-time.After(checkPause):
		case <-ctx.Done():
			return err //nolint:wrapcheck // as above
		}
	}
	return err //nolint:wrapcheck // as above
}
