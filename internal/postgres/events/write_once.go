package events

import (
	"context"
	"slices"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
)

// storeAtOnce writes keys, events and outbox rows, and says that it has: if every tenant's
// endpoints are of the version that the events were matched with, and none of the keys is
// there. Else it writes nothing. Its parameters are versions, then keyRows, OutboxRows and
// eventRows.
//
// What is there is looked up by subqueries that PostgreSQL makes no joins of, so that a plan which
// is kept from when the tables were small is one for large ones. The keys are counted for that they
// are taken first: a statement that waits for another's key has written nothing yet.
//
//nolint:gochecknoglobals // a constant that Go cannot write as one
var storeAtOnce = `
	with wanted as materialized (` + keyRows.Query(3) + `),
	usual as materialized (
		select not exists (
				select from unnest($1::text[], $2::bigint[]) u (tenant, version)
				where (select t.endpoints_version from tenants t where t.id = u.tenant) is distinct from u.version)
			and not exists (
				select from wanted w
				where (select i.event_id from idempotency_keys i where i.tenant_id = w.tenant and i.kind = w.kind and i.key = w.key) is not null)
			as yes),
	keys as (` + insertKeys + `wanted where (select yes from usual) returning 1),
	stored as (` + insertEvents + `(` + eventRows.Query(20) + `) r where (select yes from usual) and (select count(*) from keys) >= 0),
	to_start as (` + deliveries.InsertOutbox + deliveries.SelectOutbox(10) + `
		where (select yes from usual) and (select count(*) from keys) >= 0)
	select yes from usual`

// writeAtOnce writes all requests in one statement, which is a transaction by itself. It
// reports false, and has written nothing, when something speaks against one of them.
func writeAtOnce(ctx context.Context, db postgres.Querier, items []*intake) (written bool, err error) {
	tenants, versions := versionsOf(items)
	if tenants == nil {
		return false, nil
	}
	for _, in := range items {
		in.reset()
		if !in.acceptable() {
			return false, nil
		}
	}
	keys := keysOf(items)
	for _, in := range items {
		if in.Again {
			return false, nil
		}
	}
	ev, ob := newRows(items)
	args := slices.Concat([]any{tenants, versions}, keyRows.Args(keys), deliveries.OutboxRows.Args(ob), eventRows.Args(ev))
	err = db.QueryRow(ctx, storeAtOnce, args...).Scan(&written)
	if postgres.IsTaken(err) { // by another process, just now
		err = nil
	}
	return written, err
}

// acceptable reports whether a request is neither over a quota nor for an unknown endpoint,
// if all of its events are new.
func (in *intake) acceptable() bool { return in.unknown() == nil && in.over() == nil }

// versionsOf are the tenants and the versions of their endpoints that the requests were
// matched with; nil if these differ.
func versionsOf(items []*intake) (tenants []string, versions []int64) {
	of := make(map[string]int64, 1)
	for _, in := range items {
		version, there := of[in.TenantID]
		if there && version != in.Version {
			return nil, nil
		}
		if !there {
			of[in.TenantID] = in.Version
			tenants, versions = append(tenants, in.TenantID), append(versions, in.Version)
		}
	}
	return tenants, versions
}
