package notifications

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// LookedAt is how many endpoints one look reads at most.
const LookedAt = 50

// observedFor is for how long what a process shares of endpoints is used.
const observedFor = 30 * time.Second

// Wanted reports whether there is any channel.
func (s *Notifications) Wanted(ctx context.Context) (wanted bool, err error) {
	err = s.core.AsWorker().WithConn(ctx, "look for notification channels", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `select exists (select from notification_channels)`).Scan(&wanted)
	})
	return wanted, err
}

// Look reads the next LookedAt endpoints after an id that may be ill: those with failures on record, those that a process does not find healthy,
// those that are paused or disabled, and those of which something was told. It returns the id after which the next look begins; zero: all were
// looked at. While another process looks, it returns after, and nothing. It forgets what was told of endpoints that are deleted.
//
// It reads each of the four tables in the order of its primary key or of endpoints_stopped_by_id, and for each endpoint ten minutes of its statistics
// and its oldest held delivery by deliveries_release.
func (s *Notifications) Look(ctx context.Context, after webhook.EndpointID) (found []webhook.EndpointFacts, next webhook.EndpointID, err error) {
	err = s.core.AsWorker().ByIndex().InTx(ctx, "look at endpoints that may be ill", func(ctx context.Context, tx pgx.Tx) error {
		found, next = nil, webhook.EndpointID{}
		var alone bool
		err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock(hashtextextended('everpost/notifications/' || current_schema(), 0))`).Scan(&alone)
		if err != nil || !alone {
			next = after
			return err
		}
		rows, err := tx.Query(ctx, candidateIDs, [16]byte(after), LookedAt)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		if err != nil || len(ids) == 0 {
			return err
		}
		if len(ids) == LookedAt {
			next = ids[len(ids)-1]
		}
		_, err = tx.Exec(ctx, `
			delete from notification_told n using endpoints e where n.endpoint_id = any($1) and e.id = n.endpoint_id and e.deleted_at is not null`, ids)
		if err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, candidates, ids, observedFor.Milliseconds()); err != nil {
			return err
		}
		if found, err = pgx.CollectRows(rows, s.scanCandidate); err != nil {
			return err
		}
		return addFacts(ctx, tx, found)
	})
	return found, next, err
}

const (
	candidateIDs = `
	select distinct id from (
		(select endpoint_id as id from endpoint_trouble where endpoint_id > $1 order by endpoint_id limit $2)
		union all (select endpoint_id from notification_told where endpoint_id > $1 order by endpoint_id limit $2)
		union all (select distinct endpoint_id from endpoint_health where endpoint_id > $1 order by endpoint_id limit $2)
		union all (select id from endpoints where id > $1 and state <> 0 and deleted_at is null order by id limit $2)) all_ids
	order by id limit $2`

	candidates = `
	select e.id, e.tenant_id, e.state, e.auto_disable, e.url, e.description,
		coalesce(t.permanent_streak, 0), t.exhausted_at, t.exhausted, n.told, n.expiring_at, n.at,
		coalesce(e.retry_policy, ` + tenants.PolicyOfEndpoint + `),
		(select coalesce(jsonb_agg(h.seen), '[]') from (
			select seen from endpoint_health h where h.endpoint_id = e.id and h.seen_at > now() - $2::bigint * interval '1 millisecond' limit 100) h)
	from unnest($1::uuid[]) i (id) join endpoints e on e.id = i.id
	left join endpoint_trouble t on t.endpoint_id = e.id left join notification_told n on n.endpoint_id = e.id
	where e.deleted_at is null and not e.internal`
)

func (s *Notifications) scanCandidate(row pgx.CollectableRow) (c webhook.EndpointFacts, err error) {
	var (
		id       [16]byte
		state    int16
		disable  endpoints.DisableRow
		minutes  []time.Time
		given    []int32
		told     *int16
		expiring *time.Time
		toldAt   *time.Time
		policy   *retry.Policy
	)
	err = row.Scan(&id, &c.TenantID, &state, &disable, &c.URL, &c.Description, &c.Streak, &minutes, &given, &told, &expiring, &toldAt,
		&policy, &c.Observed)
	if err != nil {
		return c, err
	}
	c.ID, c.State, c.AutoDisable = id, webhook.EndpointState(state), webhook.AutoDisable(disable) //nolint:gosec // written by us
	c.URL = webhook.PlainURL(c.URL)
	for i, minute := range minutes {
		if minute.Add(time.Minute).After(s.core.Now().Add(-24 * time.Hour)) {
			c.Exhausted += int(given[i])
		}
	}
	c.GiveUpAfter = s.retryPolicy.GiveUpAfter
	if policy != nil {
		c.GiveUpAfter = policy.GiveUpAfter
	}
	if told != nil {
		c.Told = webhook.EndpointTold{Last: webhook.Told(*told), Expiring: postgres.OrZero(expiring), At: *toldAt} //nolint:gosec // written by us
	}
	return c, nil
}

// addFacts adds the attempts of the last ten minutes, and when the oldest held delivery is given up.
func addFacts(ctx context.Context, tx pgx.Tx, found []webhook.EndpointFacts) error {
	batch := &pgx.Batch{}
	for i := range found {
		c := &found[i]
		batch.Queue(`
			select coalesce(sum(first_attempts), 0), coalesce(sum(first_attempts), 0) - coalesce(sum(first_delivered), 0),
				max(at) filter (where attempt_delivered > 0)
			from (select first_attempts, first_delivered, attempt_delivered, at from statistics_minutes
				where tenant_id = $1 and endpoint_id = $2 and at > now() - interval '10 minutes') m`, c.TenantID, [16]byte(c.ID)).
			QueryRow(func(row pgx.Row) error {
				var last *time.Time
				err := row.Scan(&c.First, &c.FirstFailed, &last)
				if last != nil {
					c.DeliveredAt = last.Add(time.Minute)
				}
				return err
			})
		batch.Queue(`
			select coalesce(held_until, give_up_at) from deliveries where endpoint_id = $1 and state = `+postgres.Held+` order by id limit 1`, [16]byte(c.ID)).
			Query(func(rows pgx.Rows) error {
				at, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
				if len(at) > 0 {
					c.HeldUntil = at[0].UTC()
				}
				return err
			})
	}
	return tx.SendBatch(ctx, batch).Close()
}
