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

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Temporal is away when it cannot be written to: whether it answers health checks says
// nothing of its history shards and its database. While nothing is in doubt it is asked for its
// health only. A call that is late or fails puts it in doubt; then, and as long as it is away, a
// workflow is started that does nothing, and what becomes of that decides.

// call makes one call to Temporal and notes what it came to.
func (d *Starter) call(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(d.life, startTimeout)
	defer cancel()
	late := time.AfterFunc(doubtAfter, d.suspect)
	err := f(ctx)
	late.Stop()
	if d.life.Err() == nil { // else Stop has cut it off
		d.note(err)
	}
}

// note looks at what a call came to. One that failed is no proof: a busy Temporal is not
// away, nor is one that has lost one shard of many, and a door that took it for that would
// let in more.
func (d *Starter) note(err error) {
	switch {
	case err == nil, isGone(err): // gone: not started yet, or ended; the record knows the command
	case isUnavailable(err), isLate(err):
		d.suspect()
	default:
		d.Logger.Error("Temporal refused a call; it will be repeated from the outbox", "error", err)
		if !isBusy(err) && !isInvalid(err) {
			d.suspect()
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

// isBusy reports that a limit was exceeded: that says nothing of whether it can be written to.
func isBusy(err error) bool {
	_, busy := errors.AsType[*serviceerror.ResourceExhausted](err)
	return busy
}

// isInvalid reports that something is wrong with the call itself.
func isInvalid(err error) bool {
	_, invalid := errors.AsType[*serviceerror.InvalidArgument](err)
	return invalid
}

func (d *Starter) setAway(err error) {
	if d.away.CompareAndSwap(false, true) {
		d.Logger.Warn("Temporal does not answer, or cannot write; events are still accepted and will be delivered when it is back", "error", err)
	}
}

func (d *Starter) setBack() {
	if d.away.CompareAndSwap(true, false) {
		d.Logger.Info("Temporal can be written to again")
		d.gatherings.wake()
	}
}

// suspect has the probe find out at once whether Temporal can be written to.
func (d *Starter) suspect() {
	d.doubtMu.Lock()
	defer d.doubtMu.Unlock()
	if d.doubted == nil {
		d.doubted = make(chan struct{})
	}
	select {
	case d.doubt <- struct{}{}:
	default:
	}
}

// inDoubt is closed when what is in doubt is settled; nil when nothing is.
func (d *Starter) inDoubt() <-chan struct{} {
	d.doubtMu.Lock()
	defer d.doubtMu.Unlock()
	return d.doubted
}

// settle ends the doubt that there was when the probe began. One that has come up since is
// looked at next, unless Temporal is away anyhow.
func (d *Starter) settle() {
	d.doubtMu.Lock()
	defer d.doubtMu.Unlock()
	if d.doubted != nil && (d.away.Load() || len(d.doubt) == 0) {
		close(d.doubted)
		d.doubted = nil
	}
}

// awayAfterAll reports whether Temporal is away. While that is in doubt it waits for the probe.
func (d *Starter) awayAfterAll(ctx context.Context) bool {
	doubted := d.inDoubt()
	if doubted == nil || d.away.Load() {
		return d.away.Load()
	}
	limit := time.NewTimer(settlePatience)
	defer limit.Stop()
	select {
	case <-doubted:
	case <-d.stopped:
	case <-ctx.Done():
	case <-limit.C:
	}
	return d.away.Load()
}

// probe keeps asking Temporal whether it is there. A start in need would find out too, but
// only after its timeout, with a queue growing behind it.
func (d *Starter) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var wrote time.Time
	for {
		var err error
		switch {
		case d.away.Load() || d.inDoubt() != nil && time.Since(wrote) >= doubtAfter:
			if err = d.tryWrite(); err == nil {
				wrote = time.Now()
				d.setBack()
			}
		case d.inDoubt() == nil:
			err = d.checkHealth()
		}
		if d.stopping() {
			return
		}
		if err != nil && !isBusy(err) { // one that is busy stays what it is taken for
			d.setAway(err)
		}
		d.settle()
		select {
		case <-d.stopped:
			return
		case <-d.doubt:
		case <-tick.C:
		}
	}
}

func (d *Starter) checkHealth() error {
	ctx, cancel := context.WithTimeout(d.life, probeTimeout)
	defer cancel()
	_, err := d.Client.CheckHealth(ctx, &client.CheckHealthRequest{})
	return err //nolint:wrapcheck // setAway logs it
}

// tryWrite starts a workflow that does nothing. Each has an id of its own, and so a shard like
// any other's; where no worker takes it, it ends by its timeout. It does not go through the
// SDK's own repetitions, which hide what was answered.
func (d *Starter) tryWrite() (err error) {
	ctx, cancel := context.WithTimeout(d.life, probeTimeout)
	defer cancel()
	for range probeTries {
		id := "probe/" + rand.Text()
		_, err = d.Client.WorkflowService().StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
			Namespace: d.Namespace, WorkflowId: id, RequestId: id, WorkflowType: &commonpb.WorkflowType{Name: workflows.ProbeName},
			TaskQueue:                &taskqueuepb.TaskQueue{Name: workflows.TaskQueue(webhook.EndpointID{})},
			WorkflowExecutionTimeout: durationpb.New(probeLife),
		})
		if !isUnavailable(err) {
			return err //nolint:wrapcheck // setAway logs it
		}
		select {
		case <-time.After(probePause):
		case <-ctx.Done():
			return err //nolint:wrapcheck // as above
		}
	}
	return err //nolint:wrapcheck // as above
}
