package deliveries

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// New events come first. Nothing is released, and no replay sends anything, while the relay is more than RelayLag late, or while more than
	// MaxUnstarted deliveries that the relay took longer than StartLag ago have not been started. The total in the outbox does not matter: a
	// large installation always has many rows, each for a moment.

	// RelayLag is how late the relay may be.
	RelayLag = 5 * time.Second
	// StartLag is how long a start may take after the relay has taken the delivery.
	StartLag = 5 * time.Second
	// MaxUnstarted is how many starts may take longer.
	MaxUnstarted = 1000
	// startRoom is how many deliveries may have been released that have not begun. Each process sees those of all, but not those of the rounds that
	// others make at the same time. ownRoom is how many of them may be of one process's lanes: as many as keep a process busy, and few, because
	// its new events wait for the processor behind them.
	startRoom, ownRoom = 400, 100
	// leastRoom is what a process may release however much others have: busy ones do not keep a quiet one from its own.
	leastRoom = 10
	// tenantsOfLane bounds the tenants with open releases of a lane that are looked at together, and dueOfTenant the due releases of each.
	tenantsOfLane, dueOfTenant = 16, 8
)

// Releases stores the releases of held deliveries, one for each endpoint that has or had some, and releases them in turns.
//
// A hold makes the release of an endpoint due in the transaction that stores the hold (queueHolds), if the endpoint is active or deleted.
// Otherwise the transaction that makes the endpoint active does so (BeginRelease). A turn that finds nothing held ends the release; it has locked
// the release's row, which such a hold waits for.
type Releases struct {
	core *postgres.Core

	due, expired cursor // of DueReleases and of ReleaseExpired
}

// cursor is the tenant after which the next call goes on. Calls at the same time may begin at the same tenant.
type cursor struct {
	mu    sync.Mutex
	after string
}

func (c *cursor) get() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.after
}

func (c *cursor) set(after string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = after
}

// NewReleases returns the store of releases.
func NewReleases(s *postgres.Core) *Releases { return &Releases{core: s} }

// releaseColumns is what releaseScanner scans, of the table r.
const releaseColumns = `r.endpoint_id, r.tenant_id, r.state, r.rate, r.until_id, case when r.counted_to is null then r.total end, r.released,
	r.started_at, r.running_at, r.faulted_at`

// releaseScanner reads releaseColumns of a row.
type releaseScanner struct {
	r        webhook.Release
	endpoint [16]byte
	state    int16
	rate     *int
	until    pgtype.UUID
	faulted  *time.Time
}

func (s *releaseScanner) targets(more ...any) []any {
	return append([]any{&s.endpoint, &s.r.TenantID, &s.state, &s.rate, &s.until, &s.r.Total, &s.r.Released, &s.r.StartedAt, &s.r.RunningAt,
		&s.faulted}, more...)
}

func (s *releaseScanner) release() webhook.Release {
	r := s.r
	r.EndpointID, r.State, r.Until = s.endpoint, webhook.ReleaseState(s.state), s.until.Bytes //nolint:gosec // written by us
	r.StartedAt, r.RunningAt, r.FaultedAt = r.StartedAt.UTC(), r.RunningAt.UTC(), postgres.OrZero(s.faulted)
	if s.rate != nil {
		r.Rate = *s.rate
	}
	return r
}

func scanRelease(row pgx.CollectableRow) (webhook.Release, error) {
	var s releaseScanner
	err := row.Scan(s.targets()...)
	return s.release(), err
}

// OutboxIsLate reports whether deliveries wait longer than usual for their start, or for a worker. A delivery that was taken is due again
// RelayAfter later; normally none is taken twice.
func OutboxIsLate(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (late bool, err error) {
	err = db.QueryRow(ctx, `
		select exists (select from outbox where relay_at < now() - $1::bigint * interval '1 millisecond')
			or (select count(*) > $2 from (
				select from outbox where relayed > 0 and (relayed > 1 or relay_at < now() + $3::bigint * interval '1 millisecond') limit $2 + 1) o)`,
		RelayLag.Milliseconds(), MaxUnstarted, (RelayAfter - StartLag).Milliseconds()).Scan(&late)
	return late, err
}

// StartRoom is how many deliveries of a process's lanes may be released by turns now: 0 while new events wait longer than usual for their start, and
// fewer the more were released by turns, of its lanes and of all, and have not begun. Replays, what is given up and what the relay has had to start
// do not count. It reads up to 1,001 rows by outbox_taken and up to 400 by outbox_released.
func (s *Releases) StartRoom(ctx context.Context, lanes []int) (room int, err error) {
	err = s.core.AsWorker().ByIndex().WithConn(ctx, "count what was released", func(ctx context.Context, conn postgres.Querier) error {
		late, err := OutboxIsLate(ctx, conn)
		if err != nil || late {
			return err
		}
		var waiting, own int
		err = conn.QueryRow(ctx, `
			select count(*), count(*) filter (where `+laneOf+` = any($2))
			from (select endpoint_id from outbox where released and relayed = 0 limit $1) o`, startRoom, lanes).Scan(&waiting, &own)
		room = max(min(startRoom-waiting, ownRoom-own), leastRoom-own)
		return err
	})
	return room, err
}

// laneOf is webhook.LaneOf in SQL, of a row with an endpoint_id.
const laneOf = `get_byte(uuid_send(endpoint_id), 15) % 64`

// DueReleases returns up to limit releases of some lanes whose turn has come, one of each tenant in turn, and the longest due of a tenant first. Each
// call looks at the next 16 tenants with open releases in each lane, and at 8 due releases of each of them, more if they are few.
//
// It reads the index releases_due_by_tenant: two blocks for each lane and twice that for each of these tenants in it, and two blocks for each
// release that it looks at. What else is due does not matter.
func (s *Releases) DueReleases(ctx context.Context, lanes []int, limit int) ([]webhook.DueRelease, error) {
	next, tenants, err := s.nextTenants(ctx, lanes)
	if err != nil || len(tenants) == 0 {
		return nil, err
	}
	return postgres.QueryAll(ctx, s.core.AsWorker().ByIndex(), "find releases", func(row pgx.CollectableRow) (due webhook.DueRelease, err error) {
		var s releaseScanner
		err = row.Scan(s.targets(&due.Deleted, &due.DueAt, &due.Now)...)
		due.Release = s.release()
		return due, err
	}, `
		with due as materialized (
			select d.endpoint_id, d.next_at, row_number() over (partition by t.id order by d.next_at) as turn
			from unnest($1::smallint[], $2::text[]) t (lane, id) cross join lateral (
				select r.endpoint_id, r.next_at from releases r where r.lane = t.lane and r.tenant_id = t.id and r.next_at <= now()
				order by r.next_at limit $4) d
			order by turn, next_at limit $3)
		select `+releaseColumns+`, e.deleted_at is not null, due.next_at, clock_timestamp()
		from due join releases r on r.endpoint_id = due.endpoint_id join endpoints e on e.id = due.endpoint_id
		order by due.turn, due.next_at`, next, tenants, limit, max(dueOfTenant, limit/len(tenants)))
}

// nextTenants returns the next tenants with open releases, due or not, of each of some lanes, after those of the call before.
func (s *Releases) nextTenants(ctx context.Context, lanes []int) (of []int, tenants []string, err error) {
	const next = `select r.tenant_id from releases r where r.lane = own.lane and r.next_at is not null and r.tenant_id > `
	type found struct {
		Lane   int
		Tenant string
	}
	all, err := postgres.QueryAll(ctx, s.core.AsWorker().ByIndex(), "find tenants with releases", pgx.RowToStructByPos[found], `
		select own.lane, t.id from unnest($1::smallint[]) own (lane) cross join lateral (
			with recursive tenant as (
				(`+next+`$2 order by r.tenant_id limit 1)
				union all
				select (`+next+`t.id order by r.tenant_id limit 1) from tenant t (id) where t.id is not null)
			select id from tenant t (id) where id is not null limit $3) t`, lanes, s.due.get(), tenantsOfLane)
	if err != nil {
		return nil, nil, err
	}
	count, after := map[int]int{}, ""
	for _, f := range all {
		of, tenants = append(of, f.Lane), append(tenants, f.Tenant)
		// The lane with the least last tenant is where the next call goes on. Others find some of theirs once more.
		count[f.Lane]++
		if count[f.Lane] == tenantsOfLane && (after == "" || f.Tenant < after) {
			after = f.Tenant
		}
	}
	s.due.set(after)
	return of, tenants, nil
}

// Postpone puts the next turns of due releases off. It leaves out a release that another transaction is changing, and one that has been
// changed since it was read: it has been resumed, or its endpoint changed, so that its turn may come.
func (s *Releases) Postpone(ctx context.Context, all []webhook.PostponedRelease) error {
	if len(all) == 0 {
		return nil
	}
	ids, read, pauses := make([][16]byte, len(all)), make([]time.Time, len(all)), make([]int64, len(all))
	for i, p := range all {
		ids[i], read[i], pauses[i] = p.EndpointID, p.DueAt, p.Pause.Milliseconds()
	}
	return s.core.AsWorker().WithConn(ctx, "put releases off", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			with unchanged as materialized (
				select r.endpoint_id, u.pause from unnest($1::uuid[], $2::timestamptz[], $3::bigint[]) u (id, due, pause)
					join releases r on r.endpoint_id = u.id and r.next_at = u.due
				for update of r skip locked)
			update releases r set next_at = now() + u.pause * interval '1 millisecond' from unchanged u where r.endpoint_id = u.endpoint_id`,
			ids, read, pauses)
		return err
	})
}

// ReleaseOf returns the release of an endpoint. One that has none is done, or stopped if the endpoint is not active. CodeNotFound.
func (s *Releases) ReleaseOf(ctx context.Context, tenantID string, id webhook.EndpointID) (r webhook.Release, err error) {
	err = s.core.OfTenant(tenantID).InTx(ctx, "read a release", func(ctx context.Context, tx pgx.Tx) error {
		r, _, err = readRelease(ctx, tx, tenantID, id, "")
		return err
	})
	return r, err
}

// readRelease reads the release of an endpoint, and whether that is active. lock locks both.
func readRelease(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID, lock string) (r webhook.Release, active bool, err error) {
	err = tx.QueryRow(ctx, `select state = `+postgres.EndpointActive+` from endpoints where id = $1 and tenant_id = $2 and deleted_at is null `+lock,
		id, tenantID).Scan(&active)
	if postgres.IsNoRows(err) {
		return r, false, webhook.NotFound("endpoint")
	}
	if err != nil {
		return r, false, err
	}
	rows, err := tx.Query(ctx, `select `+releaseColumns+` from releases r where endpoint_id = $1 `+lock, id)
	if err != nil {
		return r, false, err
	}
	r, err = pgx.CollectExactlyOneRow(rows, scanRelease)
	if postgres.IsNoRows(err) {
		r, err = webhook.Release{EndpointID: id, TenantID: tenantID, State: webhook.ReleaseDone}, nil
	}
	switch {
	case active:
	case r.State == webhook.ReleaseDone: // what it has released is not what is held now
		r = webhook.Release{EndpointID: id, TenantID: tenantID, State: webhook.ReleaseStopped}
	default:
		r.State = webhook.ReleaseStopped
	}
	return r, active, err
}

// ReleasesOf returns the releases of some of a tenant's endpoints, in no order. It reads by key.
func (s *Releases) ReleasesOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) ([]webhook.Release, error) {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read releases", scanRelease,
		`select `+releaseColumns+` from releases r where endpoint_id = any($1) and tenant_id = $2`, raw, tenantID)
}

// ChangeRelease changes the release of an active endpoint, with an audit entry, and returns it after that. It begins one of what is held now if
// none is under way; if nothing is held, it changes nothing.
//
// Errors: CodeNotFound; CodeConflict, the endpoint is not active.
func (s *Releases) ChangeRelease(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, change webhook.ReleaseChange,
) (r webhook.Release, err error) {
	err = s.core.OfTenant(tenantID).InTx(ctx, "change a release", func(ctx context.Context, tx pgx.Tx) error {
		before, active, err := readRelease(ctx, tx, tenantID, id, "for no key update")
		if err != nil {
			return err
		}
		if !active {
			return &webhook.Error{Code: webhook.CodeConflict, Message: "the endpoint is not active: resume it to release what is held"}
		}
		if r, err = s.changeRelease(ctx, tx, before, change); err != nil || r == before {
			return err
		}
		detail := map[string]any{"state": r.State.String()}
		if change.Rate != nil {
			detail["rate_per_minute"] = *change.Rate
		}
		return audit.Write(ctx, tx, by, tenantID, audit.EndpointRelease, id.String(), postgres.JSONBytes(detail))
	})
	return r, err
}

// changeRelease is ChangeRelease of an active endpoint's release, which this transaction has locked.
func (s *Releases) changeRelease(ctx context.Context, tx pgx.Tx, r webhook.Release, change webhook.ReleaseChange) (webhook.Release, error) {
	sameRate := change.Rate == nil || *change.Rate == r.Rate
	if sameRate && (change.State == nil || *change.State == r.State) {
		return r, nil
	}
	if r.State == webhook.ReleaseDone || r.Until.IsZero() {
		_, held, err := lowestHeld(ctx, tx, r.EndpointID, span{high: highestID})
		if err != nil || !held {
			return r, err
		}
		rate := 0
		if change.Rate != nil {
			rate = *change.Rate
		}
		if err := BeginRelease(ctx, tx, s.core.Now(), r.TenantID, r.EndpointID, rate); err != nil {
			return r, err
		}
		change.Rate = nil
	}
	var state *int16
	if change.State != nil {
		state = new(int16(*change.State))
	}
	rows, err := tx.Query(ctx, `
		update releases r set state = coalesce($2, state), rate = case when $3::int is null then rate else nullif($3, 0) end, next_at = now(),
			set_next_at = now(), running_at = case when $2 < state then now() else running_at end -- it goes on
		where endpoint_id = $1 returning `+releaseColumns, r.EndpointID, state, change.Rate)
	if err != nil {
		return r, err
	}
	return pgx.CollectExactlyOneRow(rows, scanRelease)
}

// anew is what another release of the endpoint begins with.
const anew = `state = excluded.state, until_id = excluded.until_id, total = excluded.total, released = 0, from_id = excluded.from_id, after_id = null,
	later_from_id = excluded.later_from_id, later_id = null, counted_to = excluded.counted_to, set_next_at = excluded.set_next_at,
	started_at = excluded.started_at, faulted_at = null, next_at = excluded.next_at`

// BeginRelease begins the release of all that is held of an endpoint now, at a rate per minute, 0 for Everpost's own pace.
func BeginRelease(ctx context.Context, tx pgx.Tx, now time.Time, tenantID string, id webhook.EndpointID, rate int) error {
	_, err := tx.Exec(ctx, `
		insert into releases (endpoint_id, tenant_id, rate, until_id, total, counted_to, set_next_at) values ($1, $2, nullif($3, 0), $4, 0, $4, now())
		on conflict (endpoint_id) do update set `+anew+`, rate = excluded.rate, running_at = excluded.running_at`,
		id, tenantID, rate, [16]byte(postgres.IDsFrom(now.Add(time.Millisecond)))) // the next id may be of the same millisecond
	return err
}

// StopRelease stops the release of an endpoint that is not active any more. BeginRelease begins it anew.
func StopRelease(ctx context.Context, tx pgx.Tx, id webhook.EndpointID) error {
	_, err := tx.Exec(ctx, `update releases set state = $2, next_at = null where endpoint_id = $1 and state <> $3`,
		id, int16(webhook.ReleaseStopped), int16(webhook.ReleaseDone))
	return err
}

// HastenRelease lets the next turn of an endpoint's release come at once: the endpoint was changed.
func HastenRelease(ctx context.Context, tx pgx.Tx, id webhook.EndpointID) error {
	_, err := tx.Exec(ctx, `update releases set next_at = now() where endpoint_id = $1 and next_at is not null`, id)
	return err
}

// ReleaseDeleted begins the release of all that is held of an endpoint that is being deleted: the next attempts cancel it.
func ReleaseDeleted(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID) error {
	_, err := tx.Exec(ctx, `
		insert into releases (endpoint_id, tenant_id) values ($1, $2) on conflict (endpoint_id) do update set `+anew+`, rate = null`, id, tenantID)
	return err
}

// ReleaseDepth returns how many endpoints have a release with something to do, and when the turn was due that waits longest; the zero time if
// none is due. It counts no further than 10,001, which means "more than 10,000", and the turn is one of those counted: up to 10,001 entries of
// releases_due_by_tenant.
func (s *Releases) ReleaseDepth(ctx context.Context) (running int64, due time.Time, err error) {
	var late *float64
	err = s.core.AsWorker().ByIndex().WithConn(ctx, "count releases", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `
			select count(*), extract(epoch from now() - min(next_at) filter (where next_at <= now()))::float8
			from (select next_at from releases where next_at is not null limit $1) r`, maxCountedReleases+1).Scan(&running, &late)
	})
	if err != nil || late == nil {
		return running, time.Time{}, err
	}
	return running, time.Now().Add(-time.Duration(*late * float64(time.Second))), nil
}

// maxCountedReleases is how many releases are counted.
const maxCountedReleases = 10_000

// HeldDepth returns how many deliveries are held, and when the event of the oldest one was accepted; the
// zero time without any. It counts no further than 100,001, which means "more than 100,000", and the
// oldest is one of those counted.
func (s *Releases) HeldDepth(ctx context.Context) (n int64, oldest time.Time, err error) {
	var id *[16]byte
	err = s.core.AsWorker().ByIndex().WithConn(ctx, "count held deliveries", func(ctx context.Context, conn postgres.Querier) error {
		// Of the ids, which begin with the time, because the index has them.
		return conn.QueryRow(ctx, `
			select count(*), min(id::text)::uuid from (select id from deliveries where state = `+postgres.Held+` limit $1) d`,
			MaxCountedOverall+1).Scan(&n, &id)
	})
	if err != nil || id == nil {
		return n, time.Time{}, err
	}
	age := s.core.Now().Sub(webhook.DeliveryID(*id).Time())
	return n, time.Now().Add(-age), nil // as old by this process's clock as it is by the database's
}
