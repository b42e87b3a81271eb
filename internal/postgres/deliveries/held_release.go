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
	openRelease = `r.source = ` + postgres.ReplayOfHeld + ` and not r.exhausted
		and r.event_type = '' and r.reason = '' and r.status = 0 and r.since is null and r.until is null`
	// uncovered is a held delivery of the table d that no such replay of the table release has
	// still to release.
	uncovered = `not exists (select from release r where d.id > r.cursor and d.created_at <= r.created_at)`
)

// openReleaseOf matches the replays r that are releasing held deliveries of the endpoint e, or are
// paused.
const openReleaseOf = `r.tenant_id = e.tenant_id and (r.endpoint_id = e.id or r.endpoint_id is null)
	and r.state ` + postgres.ReplayIsOpen + ` and ` + openRelease

// releaseBounds are the ids low and high for the replays r: what one of them has still to release lies
// between. Without replays, low is the highest id.
const releaseBounds = `coalesce(` + lowestCursor + `, ` + highestID + `) as low, coalesce(` + beyond + `, ` + highestID + `) as high`

const (
	highestID = `'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid`
	// lowestCursor is up to where some of the replays r have come, and beyond the first id of
	// what was created after the first of them: its time is in it. There is no min of ids.
	lowestCursor = `min(r.cursor::text collate "C")::uuid`
	beyond       = `(lpad(to_hex((extract(epoch from min(r.created_at)) * 1000)::bigint + 1), 12, '0') || repeat('0', 20))::uuid`
)

// IsHeldForNothing reports whether something is held for an endpoint that no release which is
// running has before it.
func IsHeldForNothing(ctx context.Context, tx pgx.Tx, tenantID string, endpoint webhook.EndpointID) (held bool, err error) {
	err = tx.QueryRow(ctx, `
		with release as materialized (
			select r.cursor, r.created_at from replays r
			where r.tenant_id = $2 and (r.endpoint_id = $1 or r.endpoint_id is null)
			  and r.state = `+postgres.ReplayRunning+` and r.command <> $3 and r.command <> $4
			  and `+openRelease+`),
		bound as (select `+releaseBounds+` from release r)
		select exists (select from deliveries d, bound b where d.endpoint_id = $1 and d.state = `+postgres.Held+` and d.id <= b.low and `+uncovered+`)
		    or exists (select from deliveries d, bound b where d.endpoint_id = $1 and d.state = `+postgres.Held+` and d.id >= b.high and `+uncovered+`)`,
		endpoint, tenantID, int16(webhook.ReplayPause), int16(webhook.ReplayCancel)).Scan(&held)
	return held, err
}
