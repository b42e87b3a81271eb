package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Replays is where replays stand.
type Replays interface {
	// ReleaseReplay releases the next of a replay's set, once for each number.
	ReleaseReplay(ctx context.Context, b webhook.ReplayBatch) (webhook.ReplayStatus, error)
	// ReplayOutcomes counts the first outcomes of what was released.
	ReplayOutcomes(ctx context.Context, id webhook.ReplayID, now time.Time, limit int) (webhook.ReplayStatus, error)
	// StepReplay writes a change of where a replay stands.
	StepReplay(ctx context.Context, step webhook.ReplayStep) (webhook.ReplayStatus, error)
}

// maxOutcomes bounds how many releases one look for first outcomes looks at.
const maxOutcomes = 2000

// Batch is the next of a replay's set.
type Batch struct {
	ID    webhook.ReplayID `json:"id"`
	Seq   int64            `json:"seq"` // one more than the standing's
	Limit int              `json:"limit"`
}

// ReleaseReplay releases a batch, unless one of its number was released before. The
// standing that it returns rules: it says whether anything was released.
//
// An error of the type ErrorGone says that there is no such replay any more.
func (a *Activities) ReleaseReplay(ctx context.Context, in Batch) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, ownWork)
	defer cancel()
	standing, err := a.Replays.ReleaseReplay(ctx, webhook.ReplayBatch{ID: in.ID, Seq: in.Seq, Limit: in.Limit, Now: a.Now()})
	return standing, a.replayFault(ctx, "release a batch of", in.ID, err)
}

// CountReplay counts the first outcomes that are there. Errors are ReleaseReplay's.
func (a *Activities) CountReplay(ctx context.Context, id webhook.ReplayID) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, ownWork)
	defer cancel()
	standing, err := a.Replays.ReplayOutcomes(ctx, id, a.Now(), maxOutcomes)
	return standing, a.replayFault(ctx, "count the outcomes of", id, err)
}

// RecordReplay writes a change of where a replay stands: its state, its rate, and
// which commands have been seen. Errors are ReleaseReplay's.
func (a *Activities) RecordReplay(ctx context.Context, step webhook.ReplayStep) (webhook.ReplayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, ownWork)
	defer cancel()
	standing, err := a.Replays.StepReplay(ctx, step)
	return standing, a.replayFault(ctx, "record", step.ID, err)
}

func (a *Activities) replayFault(ctx context.Context, doing string, id webhook.ReplayID, err error) error {
	if err == nil {
		return nil
	}
	return gone(a.ownFault(ctx, fmt.Sprintf("%s %s", doing, id), err))
}
