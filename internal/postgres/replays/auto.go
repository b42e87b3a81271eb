package replays

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// errNothing rolls back the creation of an empty replay.
var errNothing = errors.New("there is nothing to be replayed")

// AutoReplay creates a replay of an endpoint's dead letters since a time. It returns false if the endpoint
// has no auto_replay, is not active or has no such dead letter, or if a replay of its dead letters is
// open.
func (s *Replays) AutoReplay(ctx context.Context, tenantID string, id webhook.EndpointID, since time.Time) (r webhook.Replay, created bool, err error) {
	r = webhook.Replay{
		TenantID: tenantID, Source: webhook.ReplayDeadLetters, Filter: webhook.ReplayFilter{EndpointID: id, Since: since},
		Asked: webhook.DefaultReplayRate, Ramp: true,
	}
	nothing := false
	err = s.core.AsWorker().InTx(ctx, "create an automatic replay", func(ctx context.Context, tx pgx.Tx) error {
		var wanted bool
		// The lock keeps two processes from creating one each. The second statement sees what was
		// committed while the first waited for the lock.
		err := tx.QueryRow(ctx, `
			select auto_replay and state = `+postgres.EndpointActive+` from endpoints where id = $1 and tenant_id = $2 and deleted_at is null
			for no key update`, id, tenantID).Scan(&wanted)
		if postgres.IsNoRows(err) {
			wanted, err = false, nil
		}
		if err == nil && wanted {
			err = tx.QueryRow(ctx, `
				select not exists (select from replays where tenant_id = $1 and endpoint_id = $2 and source = $3 and state `+postgres.ReplayIsOpen+`)`,
				tenantID, id, int16(webhook.ReplayDeadLetters)).Scan(&wanted)
		}
		if err == nil && wanted {
			err = Insert(ctx, tx, audit.System(), &r)
		}
		nothing = err == nil && (!wanted || r.Total != nil && *r.Total == 0)
		switch {
		case err != nil:
			return err
		case nothing:
			return errNothing
		}
		return s.admit(ctx, tx, &r)
	})
	if nothing {
		return webhook.Replay{}, false, nil
	}
	return r, err == nil, err
}
