-- +goose Up
-- The clock of a delivery stands still while a person or Everpost holds it (docs/adr/0010, held deliveries).
alter table deliveries
    add column held_at     timestamptz, -- since when it stands still; null: it runs
    add column held_for_ns bigint, -- for how long it has stood still in this run before held_at; null: it has not
    add column held_until  timestamptz; -- when a held delivery is given up; null: not held, or held by an earlier release, which means give_up_at

-- Only on the parent, as in 00040_scale.sql. The old ones serve until the new ones are built on all partitions, and are dropped then: see
-- partition_indexes.go.
create index deliveries_expires on only deliveries ((coalesce(held_until, give_up_at))) where state = 2;
create index deliveries_expires_by_tenant on only deliveries (tenant_id, (coalesce(held_until, give_up_at))) where state = 2;
create index deliveries_goes_on on only deliveries
    ((case when state = 2 then coalesce(held_until, give_up_at) else coalesce(due_at, owner_until, give_up_at) end)) where state < 3;
alter index deliveries_overdue rename to deliveries_overdue_superseded;
alter index deliveries_held_until rename to deliveries_held_until_superseded;
alter index deliveries_held_until_by_tenant rename to deliveries_held_until_by_tenant_superseded;
-- Their parts give up their names, so that those of the new ones have the names that they have on a new partition.
-- +goose StatementBegin
do $$
declare part record;
begin
    for part in select c.oid, c.relname from pg_inherits h join pg_class c on c.oid = h.inhrelid
        where h.inhparent in ('deliveries_overdue_superseded'::regclass, 'deliveries_held_until_superseded'::regclass,
            'deliveries_held_until_by_tenant_superseded'::regclass) loop
        execute format('alter index %I rename to %I', part.relname, 'deliveries_part_' || part.oid);
    end loop;
end
$$;
-- +goose StatementEnd
