package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// ReplayStore has the replays.
type ReplayStore interface {
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

// Replays release the sets of replays.
type Replays struct {
	*reporter

	store ReplayStore
}

// ReleaseReplay releases a batch, unless the batch of that number was released before. The status
// that it returns is authoritative: it says whether anything was released.
//
// An error of the type ErrorGone says that the replay does not exist any more.
func (r *Replays) ReleaseReplay(ctx context.Context, in Batch) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	status, err := r.store.ReleaseReplay(ctx, webhook.ReplayBatch{ID: in.ID, Seq: in.Seq, Limit: in.Limit, Now: r.now()})
	return status, r.fault(ctx, "release a batch of", in.ID, err)
}

// CountReplay counts the first outcomes that are there. Errors are ReleaseReplay's.
func (r *Replays) CountReplay(ctx context.Context, id webhook.ReplayID) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	status, err := r.store.ReplayOutcomes(ctx, id, r.now(), maxOutcomes)
	return status, r.fault(ctx, "count the outcomes of", id, err)
}

// RecordReplay writes a change of a replay's status: its state, its rate, and
// which commands have been seen. Errors are ReleaseReplay's.
func (r *Replays) RecordReplay(ctx context.Context, step webhook.ReplayStep) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	status, err := r.store.StepReplay(ctx, step)
	return status, r.fault(ctx, "record", step.ID, err)
}

func (r *Replays) fault(ctx context.Context, doing string, id webhook.ReplayID, err error) error {
	if err == nil {
		return nil
	}
	return gone(r.internalFault(ctx, fmt.Sprintf("%s %s", doing, id), err))
}
