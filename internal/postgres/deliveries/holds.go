package deliveries

import (
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// IsHeld selects held deliveries of the table d that are not being released. One that is being released
// has an outbox row, and then an owner. A claim counts for two minutes after its end, as it does for the
// reconciler: until then its process may still record the result. A delivery with a command is started
// because of that.
const IsHeld = `d.state = ` + postgres.Held + ` and d.command = ` + postgres.NoCommand + ` and (d.owner is null or d.owner_until < now() - interval '2 minutes')
	and not exists (select from outbox o where o.delivery_id = d.id)`

// queueHolds makes the releases of the endpoints due for which deliveries are being held, if they are active or deleted. It comes last in its
// transaction, because it locks rows that others want.
//
// A release that waits after an internal fault is not hastened. A set grows by what this transaction
// has held of it, which a step that was refused has not.
func queueHolds(batch *pgx.Batch, all []*recording) {
	var (
		endpoints, ids [][16]byte
		internal       []bool
	)
	for _, r := range all {
		if r.Step.State == webhook.StateHeld {
			endpoints, ids = append(endpoints, r.Step.EndpointID), append(ids, r.Step.DeliveryID)
			internal = append(internal, r.Step.Reason == webhook.ReasonInternal)
		}
	}
	if len(ids) > 0 {
		batch.Queue(noteHolds, endpoints, ids, internal)
	}
}

const noteHolds = `
	insert into releases as r (endpoint_id, tenant_id, faulted_at)
	select e.id, e.tenant_id, case when exists (
		select from unnest($1::uuid[], $3::bool[]) u (endpoint, internal) where u.endpoint = e.id and u.internal) then now() end
	from endpoints e
	where e.id = any($1) and (e.state = ` + postgres.EndpointActive + ` or e.deleted_at is not null)
	order by e.id
	on conflict (endpoint_id) do update set
		faulted_at = coalesce(excluded.faulted_at, case when r.state < 2 then r.faulted_at end),
		next_at = case when r.next_at is not null and excluded.faulted_at is not null then r.next_at else least(r.next_at, now()) end,
		from_id = least(r.from_id, (` + lowestHold + `)),
		later_from_id = least(r.later_from_id, (` + lowestHold + ` and u.id > r.until_id)),
		total = case when r.state < 2 then r.total + (
			select count(*) from unnest($1::uuid[], $2::uuid[]) u (endpoint, id) where u.endpoint = r.endpoint_id and u.id <= r.until_id
				and (r.counted_to is null or u.id > r.counted_to or u.id <= r.after_id) -- the others are still to be counted
				-- No join, which would read all that is held by a plan of an empty day.
				and (select d.state = ` + postgres.Held + ` and d.xmin = pg_current_xact_id()::xid from deliveries d
					where d.id = u.id and d.endpoint_id = u.endpoint)) end,
		state = case when r.state < 2 then r.state else 0 end,
		released = case when r.state < 2 then r.released else 0 end,
		started_at = case when r.state < 2 then r.started_at else now() end,
		rate = case when r.state < 2 then r.rate end,
		until_id = case when r.state < 2 then r.until_id end
	where r.next_at is null or r.next_at > now() or r.until_id is not null or excluded.faulted_at is not null or r.from_id > (` + lowestHold + `)`

// lowestHold is the lowest of what is being held of the endpoint of r.
const lowestHold = `select min(u.id::text collate "C")::uuid from unnest($1::uuid[], $2::uuid[]) u (endpoint, id) where u.endpoint = r.endpoint_id`
