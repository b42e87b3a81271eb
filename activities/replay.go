package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Replays stores replays.
type Replays interface {
	// ReleaseReplay releases the next batch of a replay's set, once for each number.
	ReleaseReplay(ctx context.Context, b webhook.ReplayBatch) (webhook.ReplayStatus, error)
	// ReplayOutcomes counts the first outcomes of what was released.
	ReplayOutcomes(ctx context.Context, id webhook.ReplayID, now time.Time, limit int) (webhook.ReplayStatus, error)
	// StepReplay writes a change of a replay's status.
	StepReplay(ctx context.Context, step webhook.ReplayStep) (webhook.ReplayStatus, error)
}

// maxOutcomes bounds the releases whose first outcomes one query counts.
const maxOutcomes = 2000

// Batch is the next part of a replay's set.
type Batch struct {
	ID    webhook.ReplayID `json:"id"`
	Seq   int64            `json:"seq"` // one more than the status's
	Limit int              `json:"limit"`
}

// ReleaseReplay releases a batch, unless the batch of that number was released before. The status
// that it returns is authoritative: it says whether anything was released.
//
// An error of the type ErrorGone says that the replay does not exist any more.
func (a *Activities) ReleaseReplay(ctx context.Context, in Batch) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	status, err := a.replays.ReleaseReplay(ctx, webhook.ReplayBatch{ID: in.ID, Seq: in.Seq, Limit: in.Limit, Now: a.now()})
	return status, a.replayFault(ctx, "release a batch of", in.ID, err)
}

// CountReplay counts the first outcomes that are there. Errors are ReleaseReplay's.
func (a *Activities) CountReplay(ctx context.Context, id webhook.ReplayID) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	status, err := a.replays.ReplayOutcomes(ctx, id, a.now(), maxOutcomes)
	return status, a.replayFault(ctx, "count the outcomes of", id, err)
}

// RecordReplay writes a change of a replay's status: its state, its rate, and
// which commands have been seen. Errors are ReleaseReplay's.
func (a *Activities) RecordReplay(ctx context.Context, step webhook.ReplayStep) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	status, err := a.replays.StepReplay(ctx, step)
	return status, a.replayFault(ctx, "record", step.ID, err)
}

func (a *Activities) replayFault(ctx context.Context, doing string, id webhook.ReplayID, err error) error {
	if err == nil {
		return nil
	}
	return gone(a.internalFault(ctx, fmt.Sprintf("%s %s", doing, id), err))
}
