package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// tenantBatches bounds what a run does to one part of a tenant, so that every tenant gets its turn. The next run goes on.
const tenantBatches = 200

// TenantRetained is what a run has removed because of the retention of tenants.
type TenantRetained struct {
	Payloads   int64
	Attempts   int64 // without those of deliveries that were removed
	Deliveries int64
	Events     int64
}

// errElsewhere: another process removes a batch.
var errElsewhere = errors.New("another process removes what is past its tenant's retention")

// RetainTenants removes what is past its tenant's own retention: payloads, attempts, deliveries that have ended, and events
// without deliveries. Open deliveries and dead letters keep everything of theirs.
//
// It works in batches, each in a transaction of its own. Only one of all processes removes a batch at a time: the others
// leave the work to it.
func (s *Retention) RetainTenants(ctx context.Context, now time.Time) (TenantRetained, error) {
	s.tenants.Lock()
	defer s.tenants.Unlock()
	type own struct {
		ID        string
		Retention webhook.Retention
	}
	var (
		total  TenantRetained
		failed []error
	)
	all, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read the retention of tenants", pgx.RowToStructByPos[own],
		`select id, retention from tenants where retention <> '{}' order by id`)
	if err != nil {
		return total, err
	}
	for _, tenant := range all {
		for _, p := range []part{
			{"payloads", tenant.Retention.Payloads, removePayloads, &total.Payloads},
			{"attempts", tenant.Retention.Attempts, removeAttempts, &total.Attempts},
			{"deliveries", tenant.Retention.Deliveries, removeDeliveries, &total.Deliveries},
			{"events", tenant.Retention.Deliveries, removeEvents, &total.Events},
		} {
			if p.keep == 0 {
				continue
			}
			err := s.retainPart(ctx, tenant.ID, p, now.Add(-p.keep))
			if errors.Is(err, errElsewhere) {
				return total, errors.Join(failed...)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("remove old %s of tenant %s: %w", p.name, tenant.ID, err))
			}
		}
	}
	return total, errors.Join(failed...)
}

// part is a part of what is kept of a tenant.
type part struct {
	name    string
	keep    time.Duration // 0: as long as the installation
	remove  func(context.Context, pgx.Tx, batch) (removed int64, last uuid.UUID, err error)
	removed *int64
}

// batch is where a batch begins: rows of a tenant with ids above after and of deliveries that have ended before a time.
type batch struct {
	tenant string
	after  [16]byte
	before time.Time
}

// args are the parameters of a batch's statement: $1 to $4.
func (b batch) args() []any {
	return []any{b.tenant, b.after, [16]byte(postgres.IDsFrom(b.before)), postgres.DeleteBatch}
}

// retainPart removes batches until nothing is left or the part has had its turn. A part that has not been finished goes on
// where it was: what is still needed may be more than fits in a turn.
func (s *Retention) retainPart(ctx context.Context, tenant string, p part, before time.Time) error {
	place := tenant + "/" + p.name
	b := batch{tenant: tenant, after: s.unfinished[place], before: before}
	delete(s.unfinished, place)
	done := 0
	return postgres.InBatches(ctx, func() (bool, error) {
		var (
			removed int64
			last    uuid.UUID
		)
		err := s.core.AsWorker().InTx(ctx, "remove old "+p.name, func(ctx context.Context, tx pgx.Tx) error {
			if err := beginBatch(ctx, tx); err != nil {
				return err
			}
			var err error
			removed, last, err = p.remove(ctx, tx, b)
			return err
		})
		if err != nil || last == uuid.Nil {
			return false, err
		}
		*p.removed += removed
		b.after = last
		done++
		if done == s.tenantBatches {
			s.unfinished[place] = last
			return false, nil
		}
		return true, nil
	})
}

// beginBatch returns errElsewhere if another process removes a batch. It locks deliveries first, as the drop of a day does.
func beginBatch(ctx context.Context, tx pgx.Tx) error {
	var alone bool
	err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock(hashtextextended('everpost/tenant-retention/' || current_schema(), 0))`).Scan(&alone)
	switch {
	case err != nil:
		return err
	case !alone:
		return errElsewhere
	}
	_, err = tx.Exec(ctx, `lock table deliveries in row share mode`)
	return err
}

// removePayloads removes payloads of events all of whose deliveries have ended. The deliveries are locked, so that none of
// them is replayed meanwhile.
func removePayloads(ctx context.Context, tx pgx.Tx, b batch) (removed int64, last uuid.UUID, err error) {
	events, last, err := lockEvents(ctx, tx, b, `payload_removed_at is null`)
	if err != nil || len(events) == 0 {
		return 0, last, err
	}
	low, high := bounds(events)
	ended, err := collectIDs(ctx, tx, `
		select id from deliveries where tenant_id = $1 and id >= $2 and id < $3 and event_id = any($4)
			and state `+postgres.IsFinished+` and completed_at < $5
		order by id for update skip locked`, b.tenant, low, high, events, b.before)
	if err != nil {
		return 0, last, err
	}
	err = tx.QueryRow(ctx, `select everpost_retain_payloads(`+eventsWithout(`id <> all(coalesce($5::uuid[], '{}'))`)+`, $2, $3)`,
		b.tenant, low, high, events, ended).Scan(&removed)
	return removed, last, err
}

// removeAttempts removes the attempts of deliveries that have ended.
func removeAttempts(ctx context.Context, tx pgx.Tx, b batch) (removed int64, last uuid.UUID, err error) {
	ended, last, err := lockEnded(ctx, tx, b, `attempts_removed < run`)
	if err != nil || len(ended) == 0 {
		return 0, last, err
	}
	if removed, err = deleteAttempts(ctx, tx, ended); err != nil {
		return 0, last, err
	}
	low, high := bounds(ended)
	_, err = tx.Exec(ctx, `update deliveries set attempts_removed = run where id = any($1) and id >= $2 and id < $3`, ended, low, high)
	return removed, last, err
}

// removeDeliveries removes deliveries that have ended, with their attempts.
func removeDeliveries(ctx context.Context, tx pgx.Tx, b batch) (removed int64, last uuid.UUID, err error) {
	ended, last, err := lockEnded(ctx, tx, b, `true`)
	if err != nil || len(ended) == 0 {
		return 0, last, err
	}
	if _, err := deleteAttempts(ctx, tx, ended); err != nil {
		return 0, last, err
	}
	low, high := bounds(ended)
	gone, err := tx.Exec(ctx, `delete from deliveries where id = any($1) and id >= $2 and id < $3`, ended, low, high)
	return gone.RowsAffected(), last, err
}

// removeEvents removes events without deliveries, with their external ids.
func removeEvents(ctx context.Context, tx pgx.Tx, b batch) (removed int64, last uuid.UUID, err error) {
	events, last, err := lockEvents(ctx, tx, b, `true`)
	if err != nil || len(events) == 0 {
		return 0, last, err
	}
	low, high := bounds(events)
	err = tx.QueryRow(ctx, `
		with gone as (
			delete from events where id >= $2 and id < $3 and id = any(`+eventsWithout(`true`)+`) returning id, external_id),
		keys as (
			delete from idempotency_keys k using gone
			where k.tenant_id = $1 and k.kind = 1 and k.key = gone.external_id and k.event_id = gone.id)
		select count(*) from gone`, b.tenant, low, high, events).Scan(&removed)
	return removed, last, err
}

// lockEvents locks the next events that meet a condition, with not many more deliveries than a batch. They are locked
// against a replay of events, which may be adding a delivery: it skips them afterwards.
func lockEvents(ctx context.Context, tx pgx.Tx, b batch, condition string) (events [][16]byte, last uuid.UUID, err error) {
	rows, err := tx.Query(ctx, `
		select id, cardinality(endpoint_ids) from events where tenant_id = $1 and id > $2 and id < $3 and `+condition+`
		order by id limit $4 for update skip locked`, b.args()...)
	if err != nil {
		return nil, last, err
	}
	var (
		id                 [16]byte
		endpoints, matched int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &endpoints}, func() error {
		if matched += endpoints; matched <= postgres.DeleteBatch || len(events) == 0 {
			events, last = append(events, id), id
		}
		return nil
	})
	return events, last, err
}

// lockEnded locks the next deliveries that have ended and meet a condition. It skips locked ones: they are being replayed.
func lockEnded(ctx context.Context, tx pgx.Tx, b batch, condition string) (ended [][16]byte, last uuid.UUID, err error) {
	ended, err = collectIDs(ctx, tx, `
		select id from deliveries where tenant_id = $1 and id > $2 and id < $3 and state `+postgres.IsFinished+` and completed_at < $5 and `+condition+`
		order by id limit $4 for update skip locked`, append(b.args(), b.before)...)
	if len(ended) > 0 {
		last = ended[len(ended)-1]
	}
	return ended, last, err
}

// eventsWithout is the array of the events $4 of the tenant $1 that have no delivery that meets a condition, and none in the
// outbox. $2 and $3 are their bounds.
func eventsWithout(condition string) string {
	return `array(select unnest($4::uuid[]) except (
		select event_id from outbox where tenant_id = $1 and delivery_id >= $2 and delivery_id < $3 and event_id = any($4)
		union all
		select event_id from deliveries where tenant_id = $1 and id >= $2 and id < $3 and event_id = any($4) and ` + condition + `))`
}

func deleteAttempts(ctx context.Context, tx pgx.Tx, of [][16]byte) (int64, error) {
	low, high := bounds(of)
	gone, err := tx.Exec(ctx, `delete from attempts where delivery_id = any($1) and delivery_id >= $2 and delivery_id < $3`, of, low, high)
	return gone.RowsAffected(), err
}

func collectIDs(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([][16]byte, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[[16]byte])
}

// bounds are the first id of the millisecond of the first of sorted ids, and of that after the last. An event and its deliveries
// have the same millisecond.
func bounds(sorted [][16]byte) (low, high [16]byte) {
	first, last := postgres.TimeOf(sorted[0]), postgres.TimeOf(sorted[len(sorted)-1])
	return postgres.IDsFrom(first), postgres.IDsFrom(last.Add(time.Millisecond))
}
