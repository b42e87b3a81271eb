package activities

import (
	"context"
	"fmt"
	"time"
)

// TenantErasure removes what is stored of tenants that are being deleted.
type TenantErasure interface {
	// CheckDeletion returns CodeNotFound unless everything of a tenant is being deleted.
	CheckDeletion(ctx context.Context, tenantID string) error
	// EraseTenant removes a batch of rows of a tenant, and returns how many; 0 when none is left.
	EraseTenant(ctx context.Context, tenantID string) (rows int64, err error)
	// DeleteWorkflows does the same with workflows in Temporal.
	DeleteWorkflows(ctx context.Context, tenantID string) (workflows int64, err error)
	// CompleteDeletion records that nothing is left of a tenant.
	CompleteDeletion(ctx context.Context, tenantID string) error
}

// eraseFor is how long an activity removes rows or workflows before it returns, so that it can be repeated elsewhere.
const eraseFor = 20 * time.Second

// Erased is what an activity has removed.
type Erased struct {
	Count int64 `json:"count"`
	More  bool  `json:"more"` // there may be more
}

// TenantDeletions remove what is left of tenants.
type TenantDeletions struct{ erasure TenantErasure }

// EraseTenantRows removes rows of a tenant that is being deleted. An error of the type ErrorGone says that it is not.
func (d *TenantDeletions) EraseTenantRows(ctx context.Context, tenantID string) (Erased, error) {
	if err := d.isBeingDeleted(ctx, tenantID); err != nil {
		return Erased{}, err
	}
	return eraseSome(ctx, "rows", tenantID, d.erasure.EraseTenant)
}

// EraseTenantWorkflows removes running and closed workflows of a tenant. Errors are EraseTenantRows's.
func (d *TenantDeletions) EraseTenantWorkflows(ctx context.Context, tenantID string) (Erased, error) {
	if err := d.isBeingDeleted(ctx, tenantID); err != nil {
		return Erased{}, err
	}
	return eraseSome(ctx, "workflows", tenantID, d.erasure.DeleteWorkflows)
}

// isBeingDeleted returns an error unless the store says that everything of a tenant is to be removed: that a workflow
// says so is not enough.
func (d *TenantDeletions) isBeingDeleted(ctx context.Context, tenantID string) error {
	if err := d.erasure.CheckDeletion(ctx, tenantID); err != nil {
		return gone(fmt.Errorf("look for the deletion of tenant %s: %w", tenantID, err))
	}
	return nil
}

// CompleteTenantDeletion records that nothing is left of a tenant.
func (d *TenantDeletions) CompleteTenantDeletion(ctx context.Context, tenantID string) error {
	if err := d.erasure.CompleteDeletion(ctx, tenantID); err != nil {
		return fmt.Errorf("complete the deletion of tenant %s: %w", tenantID, err)
	}
	return nil
}

// eraseSome removes batches for eraseFor, or until there are none. After each it pauses for as long as the batch took,
// so that others get the database.
func eraseSome(ctx context.Context, what, tenantID string, batch func(context.Context, string) (int64, error)) (done Erased, err error) {
	for begun := time.Now(); time.Since(begun) < eraseFor; {
		from := time.Now()
		n, err := batch(ctx, tenantID)
		if err != nil {
			return done, fmt.Errorf("remove %s of tenant %s: %w", what, tenantID, err)
		}
		if n == 0 {
			return done, nil
		}
		done.Count += n
		pause := time.NewTimer(time.Since(from))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return done, ctx.Err()
		}
	}
	done.More = true
	return done, nil
}
