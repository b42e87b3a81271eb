package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Reopening is the input of Reopen.
type Reopening struct {
	webhook.Ref

	Run    int    `json:"run"` // of the dead letter
	Reason string `json:"reason,omitempty"`
}

// Reopen opens the next run of a dead letter, unless it was opened already. The status that it
// returns is authoritative. Errors are RecordStep's.
func (a *Activities) Reopen(ctx context.Context, in Reopening) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if !in.Fits() {
		return webhook.DeliveryStatus{}, gone(webhook.NotFound("delivery"))
	}
	status, err := a.store.Reopen(ctx, in.Ref, in.Run, in.Reason)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(a.internalFault(ctx, fmt.Sprintf("reopen %s", in.DeliveryID), err))
	}
	return status, nil
}

// Status is what the store has of a delivery. ErrorGone: it has none.
func (a *Activities) Status(ctx context.Context, of webhook.Ref) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if !of.Fits() {
		return webhook.DeliveryStatus{}, gone(webhook.NotFound("delivery"))
	}
	status, err := a.store.ClaimStatus(ctx, of, a.claimant)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(a.internalFault(ctx, fmt.Sprintf("read %s", of.DeliveryID), err))
	}
	status.ClaimedUntil = time.Time{} // of no interest: nothing is to be stored
	return status, nil
}

// KeepFor is how long dead letters are kept.
func (a *Activities) KeepFor(context.Context) (time.Duration, error) { return a.keepDeadLetters, nil }
