package activities

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

// Audit writes to the audit log.
type Audit interface {
	// SignalsRefused writes that signals to a workflow were ignored.
	SignalsRefused(ctx context.Context, r webhook.RefusedSignals) error
}

// RefusedSignals record the signals that workflows have ignored.
type RefusedSignals struct {
	*reporter

	audit Audit
}

// RecordRefusedSignals writes to the audit log that signals were ignored. The log may have an entry twice,
// if the answer of the store was lost.
func (r *RefusedSignals) RecordRefusedSignals(ctx context.Context, in webhook.RefusedSignals) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if err := r.audit.SignalsRefused(ctx, in); err != nil {
		return r.internalFault(ctx, "record refused signals to "+in.WorkflowID, err)
	}
	return nil
}
