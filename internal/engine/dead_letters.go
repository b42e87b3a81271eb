package engine

import (
	"context"
	"errors"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// errUnanswered says that a workflow has not answered which dead letters it has.
var errUnanswered = errors.New("the workflow has not answered which dead letters it has")

// DeadLetters starts the workflows that keep the dead letters of shared workflows.
type DeadLetters struct{ workflows *Workflows }

// Keep starts the workflow of an id, of one or several dead letters. Where there is or was one of the id already, it returns the indexes of those
// that it does not have: a lost workflow task may have started it with fewer.
func (d *DeadLetters) Keep(ctx context.Context, id string, all []activities.DeliveryState) (left []int, err error) {
	failpoint.Hit("keep-before")
	defer failpoint.Hit("keep-after")
	refs, in := make([]webhook.Ref, len(all)), workflows.DeadLetterInput{DeadLetters: make([]*workflows.DeadLetter, len(all))}
	for i := range all {
		refs[i], in.DeadLetters[i] = all[i].Ref, workflows.NewDeadLetter(workflows.DeliveryState(all[i]))
	}
	options := d.workflows.options(id, startOnce)
	options.TypedSearchAttributes = workflows.DeadLetterAttributes(refs, d.workflows.maxEventIDs)
	options.StaticSummary = workflows.Summary(refs)
	_, err = d.workflows.client.ExecuteWorkflow(ctx, options, workflows.DeadLetterWorkflow, in)
	if err == nil || ignoreAlreadyStarted(err) != nil {
		return nil, err //nolint:wrapcheck // the activity handles it
	}
	found, err := d.workflows.Inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	if found.Status == StatusRunning {
		if _, answered := d.workflows.membersOf(ctx, found); !answered { // what it does not have must not be let go
			return nil, errUnanswered
		}
	}
	for i := range all {
		if found.Status != StatusRunning || !d.workflows.hasMember(ctx, found, all[i].DeliveryID) {
			left = append(left, i)
		} else if err := d.workflows.signal(ctx, id, all[i].Ref, all[i].Run, all[i].Command); err != nil { // it came after the start
			return nil, err
		}
	}
	return left, nil
}
