package replays

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// DefaultRunning is how many replays run at a time unless Limits say otherwise.
const DefaultRunning = 50

// Limits are how many replays run at a time. Those beyond wait, queued.
type Limits struct {
	Tenant  int // of a tenant without a limit of its own; 0: as many as Overall
	Overall int // defaults to DefaultRunning
}

func (l Limits) withDefaults() Limits {
	l.Overall = cmp.Or(l.Overall, DefaultRunning)
	return l
}

// admitQueued lets queued replays run while there is room, the tenant with the fewest first, and of a tenant the oldest first. The relay starts
// their workflows after a time, unless they have answered by then.
const admitQueued = `select everpost_admit_replays($1, $2, $3)`

// AdmitReplays lets queued replays run while there is room. TakeReplays returns them at once. It costs a read of the index replays_open while
// none is queued, and otherwise one of the running ones and a few rows for each tenant with queued ones. While another process does it, it does nothing.
func (s *Replays) AdmitReplays(ctx context.Context) error {
	return s.core.AsWorker().WithConn(ctx, "let queued replays run", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			select case when pg_try_advisory_xact_lock(hashtextextended('everpost/running-replays/' || current_schema(), 0))
				then everpost_admit_replays($1, $2, $3) end
			where exists (select from replays where state = `+postgres.ReplayQueued+`)`,
			s.limits.Tenant, s.limits.Overall, int64(0))
		return err
	})
}

// admitAgain is admit for a replay whose workflow has queued it, and goes on if there is room.
func (s *Replays) admitAgain(ctx context.Context, tx pgx.Tx, id webhook.ReplayID) error {
	r := webhook.Replay{ID: id, State: webhook.ReplayQueued}
	if err := s.admit(ctx, tx, &r); err != nil || r.State != webhook.ReplayRunning {
		return err
	}
	_, err := tx.Exec(ctx, `
		update replays set started = true,
			relay_at = case when command <> 0 or command_rate <> 0 then relay_at else now() + $2::bigint * interval '1 millisecond' end
		where id = $1`, id, replaySilence.Milliseconds())
	return err
}

// admit is AdmitReplays in a transaction that has just queued a replay, whose state it reads then.
func (s *Replays) admit(ctx context.Context, tx pgx.Tx, r *webhook.Replay) error {
	if r.State != webhook.ReplayQueued {
		return nil
	}
	if _, err := tx.Exec(ctx, admitQueued, s.limits.Tenant, s.limits.Overall, deliveries.RelayAfter.Milliseconds()); err != nil {
		return err
	}
	var state int16
	err := tx.QueryRow(ctx, `select state from replays where id = $1`, r.ID).Scan(&state)
	r.State = webhook.ReplayState(state) //nolint:gosec // written by us
	return err
}
