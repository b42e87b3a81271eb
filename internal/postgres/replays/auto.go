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

// errNothing undoes the transaction of a replay that would send nothing.
var errNothing = errors.New("there is nothing to be replayed")

// AutoReplay begins a replay of an endpoint's dead letters since a time, as the
// endpoint's auto_replay asks: false when it does not ask for it, is not active, has no
// such dead letter, or a replay of its dead letters has not ended yet.
func (s *Replays) AutoReplay(ctx context.Context, tenantID string, id webhook.EndpointID, since time.Time) (r webhook.Replay, begun bool, err error) {
	r = webhook.Replay{
		TenantID: tenantID, Source: webhook.ReplayDeadLetters, Filter: webhook.ReplayFilter{EndpointID: id, Since: since},
		Asked: webhook.DefaultReplayRate, Ramp: true,
	}
	nothing := false
	err = s.core.AsWorker().InTx(ctx, "begin a replay by itself", func(ctx context.Context, tx pgx.Tx) error {
		var wanted bool
		// The lock is what keeps two processes from beginning one each; the look for
		// others is a statement of its own, to see what was committed while this waited.
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
			err = Insert(ctx, tx, audit.System(), &r, true)
		}
		nothing = err == nil && (!wanted || r.Total != nil && *r.Total == 0)
		if nothing {
			return errNothing
		}
		return err
	})
	if nothing {
		return webhook.Replay{}, false, nil
	}
	return r, err == nil, err
}
