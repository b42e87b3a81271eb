package deliveries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// openRelease selects replays r that release all held deliveries of an endpoint and are not
	// exhausted. The state is a condition of its own.
	openRelease = `r.source = ` + postgres.ReplayOfHeld + ` and not r.exhausted
		and r.event_type = '' and r.reason = '' and r.status = 0 and r.since is null and r.until is null`
	// uncovered selects held deliveries of the table d that none of the replays in the table release
	// will release.
	uncovered = `not exists (select from release r where d.id > r.cursor and d.created_at <= r.created_at)`
)

// openReleaseOf matches the replays r that are releasing held deliveries of the endpoint e, or are
// paused.
const openReleaseOf = `r.tenant_id = e.tenant_id and (r.endpoint_id = e.id or r.endpoint_id is null)
	and r.state ` + postgres.ReplayIsOpen + ` and ` + openRelease

// releaseBounds are the ids low and high for the replays r: the deliveries that one of them will still
// release are between them. Without replays, low is the highest id.
const releaseBounds = `coalesce(` + lowestCursor + `, ` + highestID + `) as low, coalesce(` + beyond + `, ` + highestID + `) as high`

const (
	highestID = `'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid`
	// lowestCursor is the lowest cursor of the replays r, and beyond the lowest id that was created
	// after the first of them. PostgreSQL 15 has no min of UUIDs.
	lowestCursor = `min(r.cursor::text collate "C")::uuid`
	beyond       = `(lpad(to_hex((extract(epoch from min(r.created_at)) * 1000)::bigint + 1), 12, '0') || repeat('0', 20))::uuid`
)

// HasUncovered reports whether an endpoint has held deliveries that no running release will release.
func HasUncovered(ctx context.Context, tx pgx.Tx, tenantID string, endpoint webhook.EndpointID) (held bool, err error) {
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

// maxPausedReleases bounds PausedReleases. More than a few paused releases of a tenant at a time are of no use.
const maxPausedReleases = 100

// PausedReleases returns a tenant's paused replays that will release all held deliveries of an endpoint, oldest first.
func (s *Deliveries) PausedReleases(ctx context.Context, tenantID string) ([]webhook.PausedRelease, error) {
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read the paused releases", scanPausedRelease, `
		select r.id, r.endpoint_id, r.cursor, r.created_at from replays r
		where r.tenant_id = $1 and r.state = `+postgres.ReplayPaused+` and `+openRelease+` order by r.id limit $2`, tenantID, maxPausedReleases)
}

func scanPausedRelease(row pgx.CollectableRow) (webhook.PausedRelease, error) {
	var (
		r        webhook.PausedRelease
		id, done [16]byte
		endpoint *[16]byte
	)
	err := row.Scan(&id, &endpoint, &done, &r.CreatedAt)
	if endpoint != nil {
		r.EndpointID = *endpoint
	}
	r.ID, r.After = id, done
	return r, err
}
