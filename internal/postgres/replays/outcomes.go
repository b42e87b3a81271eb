package replays

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// ReplayOutcomes counts first outcomes of deliveries that a replay has released. It checks up to limit
// deliveries that are due for a check, and returns the status. CodeNotFound: there is no such replay.
func (s *Replays) ReplayOutcomes(ctx context.Context, id webhook.ReplayID, now time.Time, limit int) (webhook.ReplayStatus, error) {
	var status webhook.ReplayStatus
	err := s.core.AsWorker().InTx(ctx, "count first outcomes", func(ctx context.Context, tx pgx.Tx) error {
		// This also shows that the workflow is alive. It changes relay_at rarely, because that has an
		// index. The lock keeps two concurrent calls from counting twice.
		_, err := tx.Exec(ctx, `
			update replays set started = true, relay_at = case
				when command <> 0 or command_rate <> 0 then relay_at
				when state <> `+postgres.ReplayRunning+` then null
				when started and relay_at > now() + $2::bigint * interval '1 millisecond' / 2 then relay_at
				else now() + $2::bigint * interval '1 millisecond' end
			where id = $1`, id, replaySilence.Milliseconds())
		if err != nil {
			return err
		}
		if err := countOutcomes(ctx, tx, id, now, limit); err != nil {
			return err
		}
		status, err = replayStatus(ctx, tx, id)
		return err
	})
	return status, err
}

const (
	// A release is checked after 1 s, then after half its age each time. Longer pauses end on whole
	// minutes, so that many are checked together.
	firstCheck   = time.Second
	longestCheck = replaySilence / 2
)

// countOutcomes counts the outcomes that exist, removes their releases, and postpones the others.
func countOutcomes(ctx context.Context, tx pgx.Tx, id webhook.ReplayID, now time.Time, limit int) error {
	type release struct {
		Delivery    [16]byte
		Run, Number int
	}
	rows, err := tx.Query(ctx, `
		select delivery_id, run, number from replay_releases where replay_id = $1 and check_at <= $2 order by check_at limit $3`, id, now, limit)
	if err != nil {
		return err
	}
	releases, err := pgx.CollectRows(rows, pgx.RowToStructByPos[release])
	if err != nil || len(releases) == 0 {
		return err
	}
	ids, runs, numbers := make([][16]byte, len(releases)), make([]int, len(releases)), make([]int, len(releases))
	for i, r := range releases {
		ids[i], runs[i], numbers[i] = r.Delivery, r.Run, r.Number
	}
	// Each check reads by key; the limits keep the planner from reading whole tables. The first attempt
	// decides. A delivery that ended without it, or that is gone, has failed. One that is in the outbox
	// or under way has no outcome yet.
	_, err = tx.Exec(ctx, `
		with checked as (
			select u.id, case
				when a.decision is not null then a.decision = $8
				when d.run > u.run then false
				when d.state = `+postgres.Delivered+` then true
				when d.state > `+postgres.Delivered+` then false
				when d.id is null and o.delivery_id is null then false
				end as delivered
			from unnest($2::uuid[], $3::int[], $4::int[]) u (id, run, number)
			left join lateral (select decision from attempts where delivery_id = u.id and run = u.run and number = u.number limit 1) a on true
			left join lateral (select id, run, state from deliveries where id = u.id limit 1) d on true
			left join lateral (select delivery_id from outbox where delivery_id = u.id limit 1) o on true),
		settled as (
			delete from replay_releases r using checked l where r.replay_id = $1 and r.delivery_id = l.id and l.delivered is not null
			returning l.delivered),
		postponed as (
			update replay_releases r set check_at = case when $5::timestamptz - r.released_at < interval '2 minutes'
				then $5::timestamptz + greatest(($5::timestamptz - r.released_at) / 2, $6::bigint * interval '1 millisecond')
				else date_bin('1 minute', $5::timestamptz + least(($5::timestamptz - r.released_at) / 2, $7::bigint * interval '1 millisecond'), 'epoch') end
			from checked l where r.replay_id = $1 and r.delivery_id = l.id and l.delivered is null)
		update replays set
			delivered = delivered + (select count(*) from settled s where s.delivered),
			failed = failed + (select count(*) from settled s where not s.delivered)
		where id = $1`, id, ids, runs, numbers, now, firstCheck.Milliseconds(), longestCheck.Milliseconds(),
		int16(retry.Delivered))
	return err
}
