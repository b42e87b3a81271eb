package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
)

// HeartbeatEvery is the interval of a Join's heartbeats. The heartbeat timeout must be several
// times as long.
const HeartbeatEvery = 3 * time.Second

// joinPoll is how often a Join looks whether another process has recorded the outcome that it
// waits for.
const joinPoll = time.Second

// Join waits for an attempt that Attempt left running: in this process; or in the store, which
// another process writes; or, if that process's claim has run out without an outcome, by sending
// again under the same number.
//
// R11: when its worker stops, it waits for a request of this process, which the process waits for
// anyway. It does not wait for another process's: it returns an error, and Temporal starts it
// again on another worker.
func (a *Attempts) Join(ctx context.Context, in AttemptInput) (AttemptResult, error) {
	stopping := activity.GetWorkerStopChannel(ctx)
	in.Running = true
	heartbeat := time.NewTicker(HeartbeatEvery)
	defer heartbeat.Stop()
	for {
		exec, err := a.startOrJoin(in)
		if err != nil {
			return AttemptResult{}, err
		}
		if err := await(ctx, exec.done, nil, heartbeat.C); err != nil {
			return AttemptResult{}, err
		}
		if exec.err != nil || exec.result.ClaimedUntil.IsZero() {
			return exec.result, exec.err
		}
		again, stop := context.WithTimeout(ctx, min(exec.result.ClaimedUntil.Sub(a.now()), joinPoll))
		err = await(ctx, again.Done(), stopping, heartbeat.C)
		stop()
		if err != nil {
			return AttemptResult{}, err
		}
	}
}

// errWorkerStopping ends a Join whose worker is stopping.
var errWorkerStopping = errors.New("join: this worker is stopping; another one goes on waiting")

// await waits for done, and sends heartbeats meanwhile. It returns an error when stopping is
// closed. A nil channel is never closed.
func await(ctx context.Context, done, stopping <-chan struct{}, heartbeat <-chan time.Time) error {
	for {
		select {
		case <-stopping:
			return errWorkerStopping
		case <-done:
			if ctx.Err() == nil {
				return nil
			}
			return fmt.Errorf("join: %w", context.Cause(ctx))
		case <-heartbeat:
			activity.RecordHeartbeat(ctx)
		case <-ctx.Done():
			return fmt.Errorf("join: %w", context.Cause(ctx))
		}
	}
}
