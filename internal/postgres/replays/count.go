package replays

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// CountReplay counts the set that CreateReplay would fix for the replay now; nil if that takes too long. Its errors
// are those of CreateReplay.
func (s *Replays) CountReplay(ctx context.Context, r webhook.Replay) (*int64, error) {
	const op = "count what a replay would send"
	release, err := s.core.TakeList(ctx, r.TenantID)
	if err != nil {
		return nil, postgres.Translate(op, err)
	}
	defer release()
	var total *int64
	err = s.core.OfTenant(r.TenantID).InTx(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
		set, err := fix(ctx, tx, &r, "")
		if err != nil {
			return err
		}
		total, err = countSet(ctx, tx, set)
		return err
	})
	return total, err
}

// fix sets the time of a replay, and returns its set. lock locks the tenant's row; "" for none.
func fix(ctx context.Context, tx pgx.Tx, r *webhook.Replay, lock string) (replaySet, error) {
	var wanted []string // event types of the endpoint; null without one
	err := tx.QueryRow(ctx, `
		select clock_timestamp(), (select event_types from endpoints where id = $2 and tenant_id = $1 and deleted_at is null and not internal)
		from tenants where id = $1 `+lock, r.TenantID, r.Filter.EndpointID).Scan(&r.CreatedAt, &wanted)
	switch {
	case postgres.IsNoRows(err):
		return replaySet{}, webhook.NotFound("tenant")
	case err != nil:
		return replaySet{}, err
	case wanted == nil && !r.Filter.EndpointID.IsZero():
		return replaySet{}, webhook.Invalid("endpoint_id", "names an endpoint that does not exist")
	}
	r.CreatedAt = r.CreatedAt.UTC()
	return setOf(r, wanted), nil
}
