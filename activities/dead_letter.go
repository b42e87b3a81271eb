package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// DeadLetterStore has the dead letters.
type DeadLetterStore interface {
	Statuses
	// Reopen opens the next run of a dead letter of the given run.
	Reopen(ctx context.Context, ref webhook.Ref, run int, reason string) (webhook.DeliveryStatus, error)
}

// Reopening is the input of Reopen.
type Reopening struct {
	webhook.Ref

	Run    int    `json:"run"` // of the dead letter
	Reason string `json:"reason,omitempty"`
}

// DeadLetters serve the workflows of dead letters.
type DeadLetters struct {
	*reporter

	store    DeadLetterStore
	claimant string
	keepFor  time.Duration
}

// Reopen opens the next run of a dead letter, unless it was opened already. The status that it
// returns is authoritative. Errors are RecordStep's.
func (d *DeadLetters) Reopen(ctx context.Context, in Reopening) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if !in.Fits() {
		return webhook.DeliveryStatus{}, gone(webhook.NotFound("delivery"))
	}
	status, err := d.store.Reopen(ctx, in.Ref, in.Run, in.Reason)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(d.internalFault(ctx, fmt.Sprintf("reopen %s", in.DeliveryID), err))
	}
	return status, nil
}

// Status is what the store has of a delivery. ErrorGone: it has none.
func (d *DeadLetters) Status(ctx context.Context, of webhook.Ref) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if !of.Fits() {
		return webhook.DeliveryStatus{}, gone(webhook.NotFound("delivery"))
	}
	status, err := d.store.ClaimStatus(ctx, of, d.claimant)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(d.internalFault(ctx, fmt.Sprintf("read %s", of.DeliveryID), err))
	}
	status.ClaimedUntil = time.Time{} // of no interest: nothing is to be stored
	return status, nil
}

// KeepFor is how long dead letters are kept.
func (d *DeadLetters) KeepFor(context.Context) (time.Duration, error) { return d.keepFor, nil }
