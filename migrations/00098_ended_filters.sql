-- +goose Up
-- Lists, groups and replays of what has ended, or was given up, since a time.
alter table replays add column ended_since timestamptz, add column ended_until timestamptz;

-- With when each was given up. Only on the parent, like deliveries_retrying. The old index serves until the new one is built on all partitions,
-- and is dropped then: see partition_indexes.go.
create index deliveries_dead_letters on only deliveries (tenant_id, id desc)
    include (endpoint_id, reason, last_status, event_type, created_at, completed_at) where state = 4;
alter index deliveries_dead rename to deliveries_dead_superseded;
-- Its parts give up their names, so that those of the new one have the names that they have on a new partition.
-- +goose StatementBegin
do $$
declare part record;
begin
    for part in select c.oid, c.relname from pg_inherits h join pg_class c on c.oid = h.inhrelid where h.inhparent = 'deliveries_dead_superseded'::regclass loop
        execute format('alter index %I rename to %I', part.relname, 'deliveries_dead_' || part.oid);
    end loop;
end
$$;
-- +goose StatementEnd
