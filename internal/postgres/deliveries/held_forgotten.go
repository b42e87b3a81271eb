package deliveries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// openRelease is a replay r that releases all that is held for an endpoint, and is not
	// exhausted. Its state is checked apart.
	openRelease = `r.source = ` + postgres.ReplayOfHeld + ` and not r.exhausted and r.event_type = '' and r.reason = '' and r.status = 0
		and r.since is null and r.until is null`
	// uncovered is a held delivery of the table d that no such replay of the table release has
	// still to release.
	uncovered = `not exists (select from release r where d.id > r.cursor and d.created_at <= r.created_at)`
)

// ForgottenEndpoints are active endpoints for which a delivery is held because they were paused or
// disabled before, unless an open replay of held deliveries has still to release it. They are at
// most limit, those after the given one, in the order of their ids.
func (s *Held) ForgottenEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker(), "look for what is held for active endpoints", scanEndpointID, withHeld+`
		select e.id from held join endpoints e on e.id = held.id
		cross join lateral (
			select coalesce(`+lowestCursor+`, `+highestID+`) as low, `+beyond+` as high from replays r
			where r.tenant_id = e.tenant_id and (r.endpoint_id = e.id or r.endpoint_id is null) and r.state `+postgres.ReplayIsOpen+` and `+openRelease+`) r
		where e.state = `+postgres.EndpointActive+` and e.deleted_at is null and (
			exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $2 and d.id <= r.low)
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $3 and d.id <= r.low)
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $2 and d.id >= r.high)
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $3 and d.id >= r.high))
		limit $4`, after, webhook.ReasonPaused, webhook.ReasonDisabled, limit)
}

const (
	highestID = `'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid`
	// lowestCursor is up to where some of the replays r have come, and beyond the first id of
	// what was created after the first of them: its time is in it. There is no min of ids.
	lowestCursor = `min(r.cursor::text collate "C")::uuid`
	beyond       = `(lpad(to_hex((extract(epoch from min(r.created_at)) * 1000)::bigint + 1), 12, '0') || repeat('0', 20))::uuid`
)

// ReleaseForgotten releases up to limit of what is held for an endpoint although that is
// active: see ForgottenEndpoints. One cause is a process that did not know yet that the endpoint
// was resumed, and held a delivery after the release had passed it; another is two workflows of
// one delivery that did not know of each other. Otherwise it is like ReleaseBacklog.
func (s *Held) ReleaseForgotten(ctx context.Context, endpoint webhook.EndpointID, limit int) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().InTx(ctx, "release what is held for an active endpoint", func(ctx context.Context, tx pgx.Tx) error {
		found, err := lockForgotten(ctx, tx, endpoint, limit)
		if err != nil {
			return err
		}
		starts, err = Release(ctx, tx, s.core.Now(), found, RelayAfter)
		return err
	})
	return starts, err
}

// lockForgotten reads what is forgotten for a change: the oldest first of each kind.
func lockForgotten(ctx context.Context, tx pgx.Tx, endpoint webhook.EndpointID, limit int) ([]webhook.Delivery, error) {
	var low, high [16]byte
	err := tx.QueryRow(ctx, `
		select coalesce(`+lowestCursor+`, `+highestID+`), coalesce(`+beyond+`, `+highestID+`)
		from endpoints e left join replays r
		  on r.tenant_id = e.tenant_id and (r.endpoint_id = e.id or r.endpoint_id is null) and r.state `+postgres.ReplayIsOpen+` and `+openRelease+`
		where e.id = $1`, endpoint).Scan(&low, &high)
	if err != nil {
		return nil, err
	}
	var all []webhook.Delivery
	for _, part := range []struct {
		bound, reason string
		id            [16]byte
	}{
		{`d.id <= $4`, webhook.ReasonPaused, low},
		{`d.id <= $4`, webhook.ReasonDisabled, low},
		{`d.id >= $4`, webhook.ReasonPaused, high},
		{`d.id >= $4`, webhook.ReasonDisabled, high},
	} {
		if len(all) == limit {
			break
		}
		rows, err := tx.Query(ctx, `
			with release as materialized (
				select r.cursor, r.created_at from replays r join endpoints e on e.id = $1 and e.tenant_id = r.tenant_id
				where (r.endpoint_id = e.id or r.endpoint_id is null) and r.state `+postgres.ReplayIsOpen+` and `+openRelease+`)
			select `+Columns+` from deliveries d
			where d.endpoint_id = $1 and d.reason = $3 and `+part.bound+` and `+IsHeld+` and `+uncovered+`
			  and exists (select from endpoints e where e.id = $1 and e.state = `+postgres.EndpointActive+` and e.deleted_at is null)
			order by d.id limit $2 for update of d skip locked`, endpoint, limit-len(all), part.reason, part.id)
		if err != nil {
			return nil, err
		}
		found, err := pgx.CollectRows(rows, Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// IsHeldForNothing reports whether something is held for an endpoint that no release which is
// running has before it.
func IsHeldForNothing(ctx context.Context, tx pgx.Tx, tenantID string, endpoint webhook.EndpointID) (held bool, err error) {
	err = tx.QueryRow(ctx, `
		with release as materialized (
			select r.cursor, r.created_at from replays r
			where r.tenant_id = $2 and (r.endpoint_id = $1 or r.endpoint_id is null) and r.state = `+postgres.ReplayRunning+` and r.command <> $3 and r.command <> $4
			  and `+openRelease+`),
		bound as (select coalesce(`+lowestCursor+`, `+highestID+`) as low, coalesce(`+beyond+`, `+highestID+`) as high from release r)
		select exists (select from deliveries d, bound b where d.endpoint_id = $1 and d.state = `+postgres.Held+` and d.id <= b.low and `+uncovered+`)
		    or exists (select from deliveries d, bound b where d.endpoint_id = $1 and d.state = `+postgres.Held+` and d.id >= b.high and `+uncovered+`)`,
		endpoint, tenantID, int16(webhook.ReplayPause), int16(webhook.ReplayCancel)).Scan(&held)
	return held, err
}
