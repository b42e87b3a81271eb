package engine

import (
	"context"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// maxHandOvers bounds the hand-overs under way, over all shared workflows: so each start is as
	// fast as a single one, and none is begun that does not end in time.
	maxHandOvers = 8
	// handOverTimeout is how long a hand-over waits to begin.
	handOverTimeout = time.Second
)

// HandOvers starts the workflows of deliveries that leave shared ones.
type HandOvers struct {
	workflows *Workflows
	permits   *fair.Semaphore
}

func newHandOvers(w *Workflows) *HandOvers {
	return &HandOvers{workflows: w, permits: fair.NewCapped(maxHandOvers, maxHandOvers)}
}

// HandOver starts the own workflow of a delivery that leaves a shared one. It is also nil if that
// workflow runs already: it has the delivery, and is signalled the command, if there is one. If it
// ends before that, HandOver returns an error, and the next try starts another one.
// activities.ErrTooManyHandOvers means that too many hand-overs are under way.
func (o *HandOvers) HandOver(ctx context.Context, h activities.DeliveryState) error {
	if !o.permits.Acquire(ctx, h.TenantID, 1, handOverTimeout) {
		return activities.ErrTooManyHandOvers
	}
	defer o.permits.Release(h.TenantID, 1)
	failpoint.Hit("hand-over-before")
	options := o.workflows.ownOptions(h.Ref, h.Run, startAgain) // it may have had its own workflow before, which held it and has ended
	_, err := o.workflows.client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.HandOverInput(workflows.DeliveryState(h)))
	if err != nil && ignoreAlreadyStarted(err) == nil && h.Command.Command != webhook.CommandNone {
		// A workflow task that was lost because a signal came may have handed it over, without the
		// command. A signal that was sent by hand is not in the store.
		return o.workflows.signal(ctx, options.ID, h.Ref, h.Run, h.Command)
	}
	return ignoreAlreadyStarted(err)
}
